//! The call that makes many entries of a directory of a mount (`PANDOFS_XCREATE` of `pandofs.h`).

mod common;
mod requests;

use std::{
    fs::{self, File, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    process::Command,
};

use common::{Mounted, can_mount, has, is_root, said};
use pando_vfs::records::{
    Attr, BulkXattr, Entry, Fields, FileKind, Packer, Pushed, Time, XCREATE, XCREATE_ROOT, XattrValue,
};
use requests::alone;
use rustix::{
    fs::{IFlags, Mode, OFlags, XattrFlags, ioctl_setflags},
    io::Errno,
};
use tempfile::TempDir;

/// The attributes of a new entry that belongs to the caller.
fn attr(mode: u32) -> Attr {
    Attr { have: Fields::MODE, mode, ..Attr::default() }
}

/// One record.
fn record(name: &str, kind: FileKind, attr: &Attr, body: &[u8], xattrs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 80_000];
    let entry = Entry { attr: Some(attr), target: Some(body), ..Entry::new(name.as_bytes(), Some(kind), 0, 0) };
    let xattrs = xattrs.iter().map(|(name, value)| BulkXattr { name, value: XattrValue::Bytes(value) });
    let mut packer = Packer::new(&mut bytes);
    assert_eq!(packer.push(&entry, xattrs), Pushed::Packed);
    let used = packer.used();
    bytes.truncate(used);
    bytes
}

fn file(name: &str) -> Vec<u8> {
    record(name, FileKind::File, &attr(0o644), name.as_bytes(), &[])
}

/// How many entries the last call of this thread made, if it failed.
fn made(dir: impl AsFd) -> Result<usize, Errno> {
    let mut value = [0; 20];
    let length = rustix::fs::fgetxattr(dir, XCREATE_ROOT, &mut value[..])?;
    Ok(std::str::from_utf8(&value[..length]).expect("text").parse().expect("a number"))
}

/// Makes the entries. The error has the number of those that were made.
fn xcreate(dir: &Path, records: &[Vec<u8>]) -> Result<(), (usize, Errno)> {
    let dir = File::open(dir).expect("a directory");
    let records = records.concat();
    let done = rustix::fs::fsetxattr(&dir, XCREATE_ROOT, &records, XattrFlags::empty());
    done.map_err(|error| (made(&dir).expect("a number"), error))
}

#[test]
fn records_have_all_that_an_entry_has() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let all = Attr {
        have: Fields::MODE | Fields::UID | Fields::GID | Fields::ATIME | Fields::MTIME,
        mode: 0o6755,
        uid: 1234,
        gid: 5678,
        atime: Time { secs: -5, nanos: 999_999_999 },
        mtime: Time { secs: 1 << 33, nanos: 1 },
        rdev_major: 300,
        rdev_minor: 70_000,
        ..Attr::default()
    };
    let xattrs: [(&[u8], &[u8]); 3] = [(b"user.a", b"value"), (b"trusted.b", b""), (b"user.large", &[b'l'; 9000])];
    let records = [
        record("file", FileKind::File, &all, b"contents", &xattrs),
        record("link", FileKind::Symlink, &all, b"where/it/leads", &[]),
        record("device", FileKind::CharDevice, &all, b"", &[]),
        record("plain", FileKind::File, &Attr { have: Fields::empty(), ..all }, b"", &[]),
    ];
    assert_eq!(xcreate(&mounted.root(), &records), Ok(()));
    for name in ["file", "link", "device"] {
        let now = fs::symlink_metadata(mounted.path(name)).unwrap();
        assert_eq!((now.uid(), now.gid()), (1234, 5678), "{name}");
        assert_eq!((now.atime(), now.atime_nsec(), now.mtime(), now.mtime_nsec()), (-5, 999_999_999, 1 << 33, 1));
        assert_eq!(now.mode() & 0o7777, if name == "link" { 0o777 } else { 0o6755 });
    }
    let device = fs::metadata(mounted.path("device")).unwrap();
    assert!(device.file_type().is_char_device() && device.rdev() == rustix::fs::makedev(300, 70_000));
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"contents");
    assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("where/it/leads"));
    for (name, value) in xattrs {
        let mut found = vec![0; 10_000];
        let length = rustix::fs::getxattr(mounted.path("file"), name, &mut found[..]).unwrap();
        assert_eq!(&found[..length], value);
    }
    let plain = fs::metadata(mounted.path("plain")).unwrap();
    assert_eq!((plain.uid(), plain.mode() & 0o7777, plain.len()), (0, 0o600, 0));
    assert!(plain.mtime() > 0 && plain.mtime() < 1 << 33);
    mounted.umount();
}

/// The kernel has cached a listing and attributes. It has made none of the new entries itself.
#[test]
fn new_entries_show_at_once() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let source = TempDir::new().unwrap();
    for options in [&[][..], &["--source", source.path().to_str().unwrap()]] {
        let mounted = Mounted::new(options);
        let dir = mounted.path("d");
        fs::create_dir(&dir).unwrap();
        for round in 0..60 {
            let names = [format!("a{round}"), format!("b{round}")];
            // The kernel caches the second listing.
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 2 * round);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 2 * round);
            let changed = || fs::metadata(&dir).map(|now| (now.mtime(), now.mtime_nsec())).unwrap();
            let before = changed();
            let mut records = [file(&names[0]), file(&names[1])].to_vec();
            let mut expected = Ok(());
            if round % 2 == 1 {
                // A call that fails makes entries too.
                records.push(file(&names[0]));
                expected = Err((2, Errno::EXIST));
            }
            // Times of a host may be those of its clock's ticks.
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert_eq!(xcreate(&dir, &records), expected);
            // Each look makes the kernel forget something, so each is the first one in some rounds.
            for look in 0..3 {
                match (round + look) % 3 {
                    0 => assert_eq!(fs::read_dir(&dir).unwrap().count(), 2 * round + 2, "{round}"),
                    1 => assert!(changed() > before, "{round}"),
                    _ => names.iter().for_each(|name| {
                        assert_eq!(fs::read_to_string(dir.join(name)).expect("visible"), *name, "{round}");
                    }),
                }
            }
        }
        mounted.umount();
    }
}

/// An entry would stay hidden if the kernel has cached that its name does not exist.
#[test]
fn names_that_were_not_found_lately_are_left_to_single_calls() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    assert_eq!(fs::metadata(mounted.path("b")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(xcreate(&root, &[file("a"), file("b")]), Err((0, Errno::OPNOTSUPP)));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    assert_eq!(xcreate(&root, &[file("a")]), Ok(()));
    if is_root() {
        // In an append-only directory the server could not remove half an entry.
        fs::create_dir(mounted.path("log")).unwrap();
        let log = fs::File::open(mounted.path("log")).unwrap();
        ioctl_setflags(&log, IFlags::APPEND).unwrap();
        assert_eq!(xcreate(&mounted.path("log"), &[file("a")]), Err((0, Errno::OPNOTSUPP)));
        ioctl_setflags(&log, IFlags::empty()).unwrap();
        drop(log);
        assert_eq!(xcreate(&mounted.path("log"), &[file("a")]), Ok(()));
    }
    // Where the kernel caches none, all are made.
    mounted.umount();
    let mounted = Mounted::new(&["--attr-timeout", "0"]);
    assert_eq!(fs::metadata(mounted.path("b")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(xcreate(&mounted.root(), &[file("a"), file("b")]), Ok(()));
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"b");
    mounted.umount();
}

/// Each thread learns how many entries its own call made.
#[test]
fn a_failed_call_says_how_many_entries_it_made() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    assert_eq!(xcreate(&root, &[file("b")]), Ok(()));
    fs::write(mounted.path("b"), "mine").unwrap();
    assert_eq!(xcreate(&root, &[file("a"), file("b"), file("c")]), Err((1, Errno::EXIST)));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert_eq!(made(File::open(&root).unwrap()), Ok(0));
            xcreate(&root, &[file("d"), file("e"), file("b")])
        });
        assert_eq!(other.join().unwrap(), Err((2, Errno::EXIST)));
    });
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"mine");
    // A number is shown once, and not after another call.
    let dir = File::open(&root).unwrap();
    assert_eq!(made(&dir), Ok(0));
    let failing = [file("f"), file("b")].concat();
    let set = |records: &[u8]| rustix::fs::fsetxattr(&dir, XCREATE_ROOT, records, XattrFlags::empty());
    assert_eq!((set(&failing), made(&dir), made(&dir)), (Err(Errno::EXIST), Ok(1), Ok(0)));
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!((set(&failing), set(b"no records"), made(&dir)), (Err(Errno::EXIST), Err(Errno::INVAL), Ok(0)));
    drop(dir);
    mounted.umount();
}

/// An entry whose owner, attribute or contents cannot be set is not there afterwards.
#[test]
fn an_entry_is_made_as_a_whole_or_not_at_all() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--size", "100k"]);
    let root = mounted.root();
    let nobody = Attr { have: Fields::UID, uid: u32::MAX, ..attr(0) };
    let late = Attr { have: Fields::MTIME, mtime: Time { secs: 0, nanos: 1_000_000_000 }, ..attr(0) };
    let value: [(&[u8], &[u8]); 1] = [(b"user.", b"value")];
    for (kind, attr, xattrs, error) in [
        (FileKind::File, nobody, &[][..], Errno::INVAL),
        (FileKind::Fifo, late, &[], Errno::INVAL),
        (FileKind::File, attr(0o600), &value, Errno::INVAL),
        (FileKind::Symlink, attr(0o600), &[(b"user.a", b"value")], Errno::PERM),
    ] {
        let records = [file("first"), record("bad", kind, &attr, b"body", xattrs), file("last")];
        assert_eq!(xcreate(&root, &records), Err((1, error)), "{kind:?}");
        fs::remove_file(mounted.path("first")).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
    // The rest may be tried again: space may be freed soon.
    let large = |name| record(name, FileKind::File, &attr(0o600), &[1; 30_000], &[]);
    assert_eq!(xcreate(&root, &[large("a"), large("b")]), Ok(()));
    assert_eq!(xcreate(&root, &[large("c"), large("d"), file("e")]), Err((1, Errno::BUSY)));
    assert_eq!(xcreate(&root, &[large("d"), file("e")]), Err((0, Errno::NOSPC)));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 3);
    mounted.umount();
}

#[test]
fn bad_records_make_nothing() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    let good = file("good");
    for name in ["", ".", "..", "a/b", "/", "a\0b"] {
        assert_eq!(xcreate(&root, &[file(name)]), Err((0, Errno::INVAL)), "{name:?}");
    }
    assert_eq!(xcreate(&root, &[file(&"n".repeat(256))]), Err((0, Errno::NAMETOOLONG)));
    let directory = record("d", FileKind::Directory, &attr(0o755), b"", &[]);
    assert_eq!(xcreate(&root, &[directory]), Err((0, Errno::INVAL)));
    let link = |target: &[u8]| record("l", FileKind::Symlink, &attr(0), target, &[]);
    assert_eq!(xcreate(&root, &[link(b"")]), Err((0, Errno::NOENT)));
    assert_eq!(xcreate(&root, &[link(&[b'x'; 4096])]), Err((0, Errno::NAMETOOLONG)));
    for cut in 1..good.len() {
        assert_eq!(xcreate(&root, &[good.clone(), good[..cut].to_vec()]), Err((0, Errno::INVAL)), "{cut}");
    }
    // The number of extended attributes, of which there are none.
    let mut more = good.clone();
    more[32] = 1;
    assert_eq!(xcreate(&root, &[more]), Err((0, Errno::INVAL)));
    // No attributes, and no type.
    let without = |place: usize| {
        let mut bytes = good.clone();
        bytes[place] = 0;
        bytes
    };
    assert_eq!(xcreate(&root, &[without(7)]).unwrap_err().1, Errno::INVAL);
    assert_eq!(xcreate(&root, &[without(6)]).unwrap_err().1, Errno::INVAL);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    // Any byte may be wrong. The server goes on.
    for place in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[place] = value;
            if xcreate(&root, &[bytes]).is_ok() {
                let names = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
                names.for_each(|path| fs::remove_file(path).unwrap());
            }
        }
    }
    assert_eq!(xcreate(&root, &[]), Ok(()));
    assert_eq!(xcreate(&root, &[good]), Ok(()));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    mounted.umount();
}

/// Where single calls must be used, the attribute does not exist, and setting it makes nothing.
#[test]
fn it_exists_only_on_directories_whose_calls_are_served_at_once() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let records = file("new");
    let refused = |path: &Path| {
        let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let set = rustix::fs::fsetxattr(&file, XCREATE_ROOT, &records, XattrFlags::empty());
        (made(&file).unwrap_err(), set.unwrap_err())
    };
    let other = TempDir::new().unwrap();
    let other = rustix::fs::open(other.path(), OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::fsetxattr(&other, XCREATE, &records, XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    // Injected delays are not served through io_uring.
    let by_ring = std::env::var("PANDO_TEST_IO_URING").is_ok_and(|way| way == "always");
    for options in [["--delay", "write=1ms"], ["--fault", "write=EIO"]].iter().filter(|_| !by_ring) {
        let mounted = Mounted::new(options);
        assert_eq!(refused(&mounted.root()), (Errno::NODATA, Errno::OPNOTSUPP));
        mounted.umount();
    }
    let mounted = Mounted::new(if by_ring { &[] } else { &["--delay", "read=1us"] });
    // Root has a name of its own.
    let root = File::open(mounted.root()).unwrap();
    let plain = rustix::fs::fsetxattr(&root, XCREATE, &records, XattrFlags::empty());
    let value = rustix::fs::fgetxattr(&root, XCREATE, &mut [0; 20][..]);
    assert_eq!((plain, value), (Err(Errno::OPNOTSUPP), Err(Errno::NODATA)));
    drop(root);
    fs::write(mounted.path("file"), "").unwrap();
    assert_eq!(refused(&mounted.path("file")), (Errno::NODATA, Errno::NOTDIR));
    assert_eq!(xcreate(&mounted.root(), &[file("new")]), Ok(()));
    mounted.umount();
}

/// The kernel checks that the caller may write to the directory, and the server all else.
#[test]
fn a_caller_makes_what_single_calls_would_let_it_make() {
    let _alone = alone();
    if !can_mount() || !has(&["python3", "setpriv", "unshare", "mount", "sh"]) {
        return;
    }
    let mounted = Mounted::new(&["--allow-other"]);
    fs::set_permissions(mounted.root().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let (open, shared, closed) = (mounted.path("open"), mounted.path("shared"), mounted.path("closed"));
    for (dir, mode) in [(&open, 0o777), (&shared, 0o775), (&closed, 0o755)] {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(&shared, None, Some(777)).unwrap();
    let script = r"
import errno, os, sys
records, directory = bytes.fromhex(sys.argv[1]), sys.argv[2]
def call(what):
    try:
        return what()
    except OSError as error:
        return errno.errorcode[error.errno]
name = sys.argv[3]
print(call(lambda: os.setxattr(directory, name, records)), call(lambda: os.getxattr(directory, name).decode()))
";
    let call_by = |name: &str, before: &[&str], dir: &Path, records: &[Vec<u8>]| {
        let hex = data_encoding::HEXLOWER.encode(&records.concat());
        let mut command = Command::new(before[0]);
        // Anybody can start the Python of the system.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(&before[1..]);
        let output = command.args(["python3", "-c", script, &hex]).arg(dir).arg(name).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    };
    let call = |before: &[&str], dir: &Path, records: &[Vec<u8>]| call_by(XCREATE, before, dir, records);
    let call_as_root = |before: &[&str], dir: &Path, records: &[Vec<u8>]| call_by(XCREATE_ROOT, before, dir, records);
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let member = ["setpriv", "--reuid", "65534", "--regid", "65534", "--groups", "777"];
    assert_eq!(call(&user, &open, &[file("by user")]), "None 0");
    assert_eq!(fs::metadata(open.join("by user")).unwrap().uid(), 65534);
    assert_eq!(call(&user, &shared, &[file("by user")]), "EACCES 0");
    assert_eq!(call(&member, &shared, &[file("by member")]), "None 0");
    assert_eq!(call(&user, &closed, &[file("by user")]), "EACCES 0");
    // Writing to a directory is not enough: its names must be reachable.
    fs::set_permissions(&open, Permissions::from_mode(0o776)).unwrap();
    assert_eq!(call(&user, &open, &[file("unreachable")]), "EACCES 0");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let given = Attr { have: Fields::UID, uid: 0, ..attr(0) };
    let label: [(&[u8], &[u8]); 1] = [(b"trusted.label", b"")];
    for bad in [
        record("given", FileKind::File, &given, b"", &[]),
        record("null", FileKind::CharDevice, &Attr { rdev_major: 1, rdev_minor: 3, ..attr(0o600) }, b"", &[]),
        record("label", FileKind::File, &attr(0o600), b"", &label),
    ] {
        assert_eq!(call(&user, &open, std::slice::from_ref(&bad)), "EPERM 0");
        assert_eq!(fs::read_dir(&open).unwrap().count(), 1);
        assert_eq!(call_as_root(&["env"], &open, &[bad]), "None 0");
        for entry in fs::read_dir(&open).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != "by user") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    // Root without all capabilities, a user with some, root of another user namespace, and a
    // sandbox: only the kernel can tell what they may do.
    let weak = ["setpriv", "--bounding-set=-chown", "--inh-caps=-all", "--reuid=0", "--clear-groups"];
    let strong = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=+chown", "--ambient-caps=+chown"];
    let inside = ["unshare", "--user", "--map-root-user"];
    let confined = [&user[..], &["--no-new-privs"]].concat();
    assert_eq!(call_as_root(&weak, &open, &[file("new")]), "ENOTSUP ENODATA");
    for caller in [&weak[..], &strong, &inside, &confined] {
        assert_eq!(call(caller, &open, &[file("new")]), "ENOTSUP ENODATA", "{caller:?}");
    }
    for caller in [&user[..], &inside] {
        assert_eq!(call_as_root(caller, &open, &[file("new")]), "EPERM ENODATA", "{caller:?}");
    }
    // Others may not remove what is in a sticky directory, and undoing is not removing.
    fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(call(&user, &open, &[record("given", FileKind::File, &given, b"", &[])]), "EPERM 0");
    assert!(!open.join("given").exists());
    // The group of a setgid directory is inherited, and a mode with setgid is not, by others.
    fs::set_permissions(&open, Permissions::from_mode(0o2777)).unwrap();
    std::os::unix::fs::chown(&open, None, Some(778)).unwrap();
    assert_eq!(call(&user, &open, &[record("sub", FileKind::File, &attr(0o2711), b"", &[])]), "None 0");
    let sub = fs::metadata(open.join("sub")).unwrap();
    assert_eq!((sub.uid(), sub.gid(), sub.mode() & 0o7777), (65534, 778, 0o711));
    let bound = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let read_only = ["unshare", "--mount", "sh", "-c", bound, open.to_str().unwrap()];
    assert_eq!(call_as_root(&read_only, &open, &[file("new")]), "EROFS 0");
    assert!(!open.join("new").exists());
    mounted.umount();
}
