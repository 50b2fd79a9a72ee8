//! The mounted tree, through the real command and the real kernel.

mod attributes;
#[path = "../common/mod.rs"]
mod common;
mod mapping;
#[path = "../requests/mod.rs"]
mod requests;

use std::{
    collections::HashSet,
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use common::{Mounted, assert_broken_off, can_mount, names, pando, run, said, wait_until_mounted};
use pandofs_testkit::await_value;
use requests::alone;
use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags},
    io::Errno,
    process::{Signal, kill_process},
};

#[test]
fn files_hold_what_is_written() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    fs::write(mounted.path("big"), &big).unwrap();
    assert_eq!(fs::read(mounted.path("big")).unwrap(), big);

    let file = fs::OpenOptions::new().write(true).create_new(true).open(mounted.path("f")).unwrap();
    file.write_all_at(b"end", 1 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().size(), (1 << 40) + 3);
    let mut middle = [1; 16];
    let reader = fs::File::open(mounted.path("f")).unwrap();
    reader.read_exact_at(&mut middle, 1 << 20).unwrap();
    assert_eq!(middle, [0; 16]);
    let data = rustix::fs::seek(&reader, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(data > 0 && data <= 1 << 40, "{data}");
    assert_eq!(rustix::fs::seek(&reader, rustix::fs::SeekFrom::Hole(0)), Ok(0));
    file.set_len(2).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), [0, 0]);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8192).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 8192);
    file.sync_all().unwrap();

    // Appends from two open file descriptions, one after the other, are stored in that order.
    let append = || fs::OpenOptions::new().append(true).create(true).open(mounted.path("log")).unwrap();
    let (mut one, mut two) = (append(), append());
    one.write_all(b"one ").unwrap();
    two.write_all(b"two ").unwrap();
    one.write_all(b"three").unwrap();
    assert_eq!(fs::read(mounted.path("log")).unwrap(), b"one two three");
    // With O_TRUNC.
    fs::write(mounted.path("log"), b"new").unwrap();
    assert_eq!(fs::read(mounted.path("log")).unwrap(), b"new");
    drop((file, reader, one, two));
    mounted.umount();
}

/// O_TRUNC is refused even with O_RDONLY. The kernel finds out that the file is being executed only
/// after it has opened the file.
#[test]
fn a_running_program_cannot_be_truncated() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let program = mounted.path("program");
    let bytes = fs::copy("/bin/sleep", &program).unwrap();
    let mut running = Command::new(&program).arg("1000").spawn().unwrap();
    for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let opened = rustix::fs::open(&program, access | OFlags::TRUNC, Mode::empty());
        assert_eq!(opened.map(drop), Err(Errno::TXTBSY), "{access:?}");
        assert_eq!(fs::metadata(&program).unwrap().len(), bytes, "{access:?}");
    }
    assert!(running.try_wait().unwrap().is_none(), "it ended");
    running.kill().unwrap();
    running.wait().unwrap();
    // After the end of the program, O_TRUNC with O_RDONLY succeeds.
    rustix::fs::open(&program, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    mounted.umount();
}

#[test]
fn names_are_created_moved_and_removed() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let path = |name: &str| mounted.path(name);
    fs::create_dir_all(path("a/b/c")).unwrap();
    fs::write(path("a/f"), "f").unwrap();
    fs::rename(path("a/f"), path("a/b/g")).unwrap();
    assert_eq!((names(&path("a")), names(&path("a/b"))), (vec!["b".into()], vec!["c".into(), "g".into()]));
    assert_eq!(fs::rename(path("a"), path("a/b/c/a")).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(fs::remove_dir(path("a/b")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);

    fs::hard_link(path("a/b/g"), path("h")).unwrap();
    let (one, two) = (fs::metadata(path("a/b/g")).unwrap(), fs::metadata(path("h")).unwrap());
    assert_eq!((one.ino(), one.nlink(), two.nlink()), (two.ino(), 2, 2));
    fs::write(path("h"), "through the other name").unwrap();
    assert_eq!(fs::read_to_string(path("a/b/g")).unwrap(), "through the other name");
    fs::remove_file(path("a/b/g")).unwrap();
    assert_eq!(fs::metadata(path("h")).unwrap().nlink(), 1);

    symlink("a/b", path("link")).unwrap();
    assert_eq!(fs::read_link(path("link")).unwrap().to_str(), Some("a/b"));
    assert_eq!(names(&path("link")), ["c"]);

    fs::write(path("x"), "x").unwrap();
    let rename2 = |from, to, flags| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags);
    assert_eq!(rename2("x", "h", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename2("x", "h", RenameFlags::EXCHANGE | RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rename2("x", "h", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(path("h")).unwrap(), "x");
    assert_eq!(fs::read_to_string(path("x")).unwrap(), "through the other name");

    // A missing name is found as soon as it is created, although the kernel caches negative
    // dentries.
    assert!(!path("later").exists());
    fs::write(path("later"), "").unwrap();
    assert!(path("later").exists());
    let long = "n".repeat(256);
    assert_eq!(fs::write(path(&long), "").unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    fs::write(path(&long[..255]), "").unwrap();

    rustix::fs::mknodat(CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
    fs::remove_dir_all(path("a")).unwrap();
    mounted.umount();
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!(names(&mounted.root()), Vec::<String>::new());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    // The name is free, and a new file of that name is another file.
    fs::write(mounted.path("f"), "other").unwrap();
    assert_ne!(fs::metadata(mounted.path("f")).unwrap().ino(), file.metadata().unwrap().ino());
    drop(file);
    mounted.umount();
}

#[test]
fn a_directory_of_ten_thousand_is_read_completely() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let dir = mounted.path("many");
    fs::create_dir(&dir).unwrap();
    thread::scope(|scope| {
        for part in 0..2 {
            let dir = &dir;
            scope.spawn(move || {
                for i in (part..10_000).step_by(2) {
                    fs::write(dir.join(format!("name-{i}")), "").unwrap();
                }
            });
        }
    });
    for with_attributes in [false, true] {
        let mut seen = HashSet::new();
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if with_attributes {
                assert_eq!(entry.metadata().unwrap().size(), 0);
            }
            assert!(seen.insert(entry.file_name()), "{:?} came twice", entry.file_name());
        }
        assert_eq!(seen.len(), 10_000);
    }
    // Entries are removed while the directory is read: each remaining one is read exactly once.
    let mut removed = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!((removed, fs::read_dir(&dir).unwrap().count()), (10_000, 0));
    fs::remove_dir(&dir).unwrap();
    mounted.umount();
}

#[test]
fn limits_are_those_that_were_given() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--size", "1M", "--inodes", "10"]);
    let stat = rustix::fs::statvfs(mounted.root()).unwrap();
    assert_eq!((stat.f_blocks * stat.f_frsize, stat.f_files, stat.f_namemax), (1 << 20, 10, 255));
    let full = fs::write(mounted.path("f"), vec![1; 2 << 20]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(rustix::fs::statvfs(mounted.root()).unwrap().f_bfree, 0);
    fs::remove_file(mounted.path("f")).unwrap();
    // The inode is freed when the kernel forgets it. The kernel sends that a little later.
    while rustix::fs::statvfs(mounted.root()).unwrap().f_ffree < 9 {
        thread::yield_now();
    }
    for i in 0..9 {
        fs::write(mounted.path(i.to_string()), "").unwrap();
    }
    let full = fs::write(mounted.path("one too many"), "").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    // Links and extended attributes count too.
    let full = fs::hard_link(mounted.path("0"), mounted.path("one too many")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(rustix::fs::setxattr(mounted.path("0"), "user.x", b"", XattrFlags::empty()), Err(Errno::NOSPC));
    mounted.umount();
}

/// Removed data is free at once, although the kernel sends the FORGET later. The same holds for
/// direct writes, which the kernel answers with EIO if a part does not fit.
#[test]
fn a_direct_write_that_does_not_fit_fails_with_enospc() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--size", "64K"]);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = options.open(mounted.path("f")).unwrap();
    for size in [0, 1 << 20] {
        file.set_len(size).unwrap();
        let refused = file.write_at(&[1; 128 << 10], 0).unwrap_err();
        assert_eq!((refused.kind(), file.metadata().unwrap().len()), (io::ErrorKind::StorageFull, size));
    }
    drop(file);
    mounted.umount();
}

#[test]
fn removed_data_makes_room_for_the_next_file() {
    const BYTES: usize = 700 << 10;
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--size", "1M", "--inodes", "2", "--threads", "3"]);
    let path = mounted.path("a");
    let contents = vec![1; BYTES];
    for round in 0..200 {
        let made = [
            rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::RegularFile, Mode::RUSR, 0).map_err(io::Error::from),
            fs::remove_file(&path),
            fs::create_dir(&path),
            fs::remove_dir(&path),
            symlink("target", &path),
            fs::remove_file(&path),
            fs::write(&path, &contents),
            fs::remove_file(&path),
        ];
        assert!(made.iter().all(Result::is_ok), "round {round}: {made:?}");
    }
    mounted.umount();
}

#[test]
fn unsupported_operations_have_their_errno() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let file = fs::File::create(mounted.path("f")).unwrap();
    assert_eq!(rustix::fs::ioctl_blkpbszget(&file), Err(Errno::NOTTY));
    assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    rustix::fs::syncfs(&file).unwrap();
    drop(file);
    mounted.umount();
}

/// An anonymous file (O_TMPFILE) stores data, can be linked if that is permitted, and is freed at
/// the last close.
#[test]
fn an_anonymous_file_can_be_linked() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    for options in [&[][..], &["--source", source.path().to_str().unwrap()]] {
        link_an_anonymous_file(Mounted::new(options));
    }
    assert_eq!(fs::read_to_string(source.path().join("named")).unwrap(), "kept");
}

fn link_an_anonymous_file(mounted: Mounted) {
    let nameless = |flags| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | flags;
        rustix::fs::open(mounted.root(), flags, Mode::RUSR | Mode::WUSR).unwrap()
    };
    let link = |file: &OwnedFd, name: &str| {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, from, CWD, mounted.path(name), AtFlags::SYMLINK_FOLLOW)
    };
    let file = nameless(OFlags::empty());
    rustix::io::write(&file, b"kept").unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    assert_eq!((stat.st_nlink, stat.st_size, stat.st_mode & 0o777), (0, 4, 0o600));
    assert_eq!(names(&mounted.root()), Vec::<String>::new());
    link(&file, "named").unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 1);
    drop(file);
    assert_eq!(fs::read_to_string(mounted.path("named")).unwrap(), "kept");

    let private = nameless(OFlags::EXCL);
    assert_eq!(link(&private, "none").unwrap_err(), Errno::NOENT);
    drop(private);
    assert_eq!(names(&mounted.root()), ["named"]);
    assert_eq!(
        rustix::fs::open(mounted.path("named"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap_err(),
        Errno::NOTDIR
    );
    let open_without_a_name = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", mounted.pid().as_raw_nonzero())).unwrap();
        // Behind the link is the file itself.
        let is_deleted = |fd: io::Result<fs::DirEntry>| {
            fs::metadata(fd.unwrap().path()).is_ok_and(|file| file.is_file() && file.nlink() == 0)
        };
        fds.map(is_deleted).filter(|is| *is).count()
    };
    await_value(0, open_without_a_name);
    mounted.umount();
}

/// statx(2) reports the btime of a file, which never changes.
#[test]
fn the_btime_never_changes() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--birth-times"]);
    let before = SystemTime::now() - Duration::from_millis(50);
    fs::write(mounted.path("f"), "").unwrap();
    let born = fs::metadata(mounted.path("f")).unwrap().created().unwrap();
    assert!(before <= born && born <= SystemTime::now(), "{born:?}");
    let long_ago = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH).set_accessed(SystemTime::UNIX_EPOCH);
    fs::File::options().write(true).open(mounted.path("f")).unwrap().set_times(long_ago).unwrap();
    fs::rename(mounted.path("f"), mounted.path("g")).unwrap();
    let metadata = fs::metadata(mounted.path("g")).unwrap();
    assert_eq!((metadata.created().unwrap(), metadata.modified().unwrap()), (born, SystemTime::UNIX_EPOCH));
    mounted.umount();
}

#[test]
fn mount_options_reach_the_kernel() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let options = |mounted: &Mounted| {
        let point = mounted.root().canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap().to_owned()
    };
    let plain = Mounted::new(&[]);
    let line = options(&plain);
    assert!(line.contains("rw,nosuid,nodev") && line.contains("fuse.pandofs pandofs"), "{line}");
    assert!(line.contains("default_permissions") && !line.contains("allow_other"), "{line}");
    plain.umount();
    let asked = Mounted::new(&["-o", "suid,dev,noexec,ro", "--allow-other", "--threads", "1"]);
    let line = options(&asked);
    assert!(line.contains("ro,noexec") && !line.contains("nosuid") && !line.contains("nodev"), "{line}");
    assert!(line.contains("allow_other"), "{line}");
    let refused = fs::write(asked.path("f"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    asked.umount();
}

#[test]
fn a_dead_mount_of_a_killed_server_is_removed() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    fs::write(mounted.path("f"), "lost").unwrap();
    // The kernel caches these attributes for a day, and still answers with them.
    fs::metadata(mounted.root()).unwrap();
    kill_process(mounted.pid(), Signal::KILL).unwrap();
    mounted.ended();
    assert_broken_off(&rustix::fs::statfs(mounted.root()).unwrap_err().into());
    let output = run(&["mount", mounted.path("f").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("pando umount"), "{}", said(&output));
    // The next mount at the same place notices the dead mount, reports it, and works.
    let mut mounted = Mounted::again(mounted.into_temp(), &[]);
    assert_eq!(names(&mounted.root()), Vec::<String>::new());
    kill_process(mounted.pid(), Signal::TERM).unwrap();
    let (status, errors) = mounted.ended();
    assert!(status.success() && errors.contains("cleaned a mount left dead"), "{status}: {errors}");

    // Unmounting a dead mount works too.
    let mut mounted = Mounted::again(mounted.into_temp(), &[]);
    kill_process(mounted.pid(), Signal::KILL).unwrap();
    mounted.ended();
    let output = run(&["umount", mounted.root().to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(mounted.root().is_dir());
}

#[test]
fn a_daemon_returns_when_it_is_mounted() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("grove");
    let grove = grove.to_str().unwrap();
    let output = run(&["mount", "--daemon", grove]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("pando umount"));
    assert!(output.stderr.is_empty());
    fs::write(format!("{grove}/f"), "in the background").unwrap();
    let mut value = [0_u8; 16];
    let length = rustix::fs::getxattr(grove, pando_fuse::SERVER_PID_XATTR, &mut value).unwrap();
    let pid = std::str::from_utf8(&value[..length]).unwrap();
    assert!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("pando"));

    // The parent prints errors of the child.
    let again = run(&["mount", "--daemon", grove]);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("mounted here already"), "{}", said(&again));

    let output = run(&["umount", grove]);
    assert!(output.status.success(), "{}", said(&output));
    // No process is left, except for a zombie if no process collects orphans.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_else(|_| "gone) Z".into());
    assert!(state.rsplit(") ").next().unwrap().starts_with('Z'), "{state}");
}

/// The proposed command can be copied into a shell, whatever the name of the directory.
#[test]
fn the_ready_line_says_how_to_unmount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("it's $HOME's; grove");
    let output = run(&["mount", "--daemon", grove.to_str().unwrap()]);
    let line = String::from_utf8(output.stdout).unwrap();
    let leave = line.trim_end().strip_suffix(')').unwrap().rsplit_once("to leave: pando ").unwrap().1;
    let shell =
        Command::new("/bin/sh").args(["-c", &format!("\"$0\" {leave}"), env!("CARGO_BIN_EXE_pando")]).output().unwrap();
    assert!(shell.status.success(), "{leave}: {}", said(&shell));
    assert!(!run(&["umount", grove.to_str().unwrap()]).status.success(), "it is unmounted");
}

#[test]
fn refused_mounts_name_the_reason() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    let output = run(&["mount", root.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("pando umount"), "{}", said(&output));
    // A mount that was unmounted by others is not ours any more.
    let inside = root.join("dir");
    fs::create_dir(&inside).unwrap();
    let output = run(&["umount", inside.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(root.to_str().unwrap()), "it names where trees are: {}", said(&output));
    mounted.umount();
}

#[test]
fn entries_of_nonempty_directories_return_after_the_unmount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("grove")).unwrap();
    fs::write(temp.path().join("grove/below"), "kept").unwrap();
    let mut mounted = Mounted::again(temp, &["--nonempty"]);
    assert_eq!(names(&mounted.root()), Vec::<String>::new());
    kill_process(mounted.pid(), Signal::TERM).unwrap();
    assert!(mounted.ended().0.success());
    assert_eq!(names(&mounted.root()), ["below"]);
}

#[test]
fn a_ready_line_that_cannot_be_written_is_no_failure() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("grove");
    let grove = grove.to_str().unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // A closed pipe, a full disk, and a full disk for messages too.
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    for (out, errors) in
        [(Stdio::from(writer), Stdio::piped()), (full().into(), Stdio::piped()), (full().into(), full().into())]
    {
        let child = pando(&["mount", grove]).stdout(out).stderr(errors).spawn().unwrap();
        wait_until_mounted(grove, true);
        fs::write(format!("{grove}/f"), "served").unwrap();
        let output = run(&["umount", grove]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let output = pando(&["mount", "--daemon", grove]).stdout(full()).output().unwrap();
    assert!(output.status.success() && said(&output).contains("it holds all the same"), "{}", said(&output));
    fs::write(format!("{grove}/f"), "served").unwrap();
    let output = run(&["umount", grove]);
    assert!(output.status.success(), "{}", said(&output));
}
