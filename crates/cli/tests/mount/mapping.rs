//! One file through several open file descriptions, and through a mapping.

use std::{fs, io::Write, os::unix::fs::FileExt, process::Command, thread};

use crate::{
    common::{Mounted, can_mount, said, skipped},
    requests::alone,
};

/// Two open file descriptions of one file, one of them appending.
#[test]
fn appends_and_writes_do_not_disturb_each_other() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--attr-timeout", "0"]);
    let append = fs::OpenOptions::new().read(true).append(true).create(true).open(mounted.path("f")).unwrap();
    (&append).write_all(b"0123456789").unwrap();
    let direct = fs::OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    direct.write_all_at(b"ab", 2).unwrap();
    (&append).write_all(b"!").unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"01ab456789!");
    drop((append, direct));
    mounted.umount();
}

/// A lack of space is reported by msync or fsync, and not lost with the pages.
#[test]
fn a_mapping_that_does_not_fit_fails() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--size", "1M"]);
    fs::write(mounted.path("other"), vec![1; 600 << 10]).unwrap();
    let script = "import mmap\nf = open('f', 'w+b')\nf.truncate(1 << 20)\nm = mmap.mmap(f.fileno(), 1 << 20)\n\
                  m[:] = b'x' * (1 << 20)\nm.flush()";
    let program = Command::new("python3").args(["-c", script]).current_dir(mounted.root()).output();
    let Some(done) = program.ok().filter(|done| !said(done).contains("ModuleNotFoundError")) else {
        return skipped("not installed: python3 with mmap");
    };
    assert!(!done.status.success() && said(&done).contains("No space left on device"), "{}", said(&done));
    mounted.umount();
}

/// The server does not have data that only a mapping has. SEEK_HOLE must not report such a range as
/// a hole.
#[test]
fn data_in_a_mapping_is_not_a_hole() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let script = "import mmap, os, subprocess\nmaps = []\n\
                  for name, start in ('empty', b''), ('begun', b'begun'):\n  \
                    f = open(name, 'w+b', 0)\n  f.write(start)\n  f.truncate(1 << 20)\n  \
                    m = mmap.mmap(f.fileno(), 1 << 20)\n  m[500000:500005] = b'hello'\n  maps.append(m)\n  \
                    subprocess.run(['cp', name, 'copy'], check=True)\n  \
                    subprocess.run(['tar', '-cSf', 'tar', name], check=True)\n  \
                    r = os.open(name, os.O_RDONLY)\n  \
                    print(*(open(n, 'rb').read().count(b'hello') for n in ('copy', 'tar')), \
                          os.lseek(r, 9, os.SEEK_DATA), os.lseek(r, 9, os.SEEK_HOLE))\n  \
                    try: os.lseek(r, 1 << 20, os.SEEK_DATA)\n  \
                    except OSError as e: print(e.strerror)";
    let program = Command::new("python3").args(["-c", script]).current_dir(mounted.root()).output();
    let Some(done) = program.ok().filter(|done| !said(done).contains("ModuleNotFoundError")) else {
        return skipped("not installed: python3 with mmap");
    };
    let each = "1 1 9 1048576\nNo such device or address\n";
    assert_eq!(String::from_utf8_lossy(&done.stdout), each.repeat(2), "{}", said(&done));
    // The file is not open for writing any more, which the kernel sends a little later. Then
    // holes are reported as holes.
    let reader = fs::File::open(mounted.path("empty")).unwrap();
    while rustix::fs::seek(&reader, rustix::fs::SeekFrom::Hole(0)) != Ok(0) {
        thread::yield_now();
    }
    assert_eq!(rustix::fs::seek(&reader, rustix::fs::SeekFrom::Data(0)), Ok(500_000 / 4096 * 4096));
    drop(reader);
    mounted.umount();
}
