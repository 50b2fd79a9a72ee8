//! Attributes, extended attributes, and the removal of privileges.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    process::{Command, Stdio},
};

use rustix::{
    fs::{CWD, IFlags, XattrFlags, ioctl_setflags},
    io::Errno,
};

use crate::{
    common::{Mounted, can_mount, has, is_root, names, said, skipped},
    requests::alone,
};

#[test]
fn attributes_are_kept() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--mode", "1777", "--uid", "12", "--gid", "34"]);
    let root = fs::metadata(mounted.root()).unwrap();
    assert_eq!((root.mode() & 0o7777, root.uid(), root.gid(), root.nlink()), (0o1777, 12, 34, 2));
    assert_eq!(root.size(), 40, "as tmpfs counts");
    // The umask is applied exactly once.
    let script = "umask 027; : > f; mkdir d; mkfifo -m 666 p";
    assert!(Command::new("/bin/sh").args(["-c", script]).current_dir(mounted.root()).status().unwrap().success());
    let mode = |name: &str| fs::metadata(mounted.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("f"), mode("d"), mode("p")), (0o640, 0o750, 0o666));
    assert_eq!(fs::metadata(mounted.root()).unwrap().size(), 100);

    let file = mounted.path("f");
    std::os::unix::fs::chown(&file, Some(5), Some(6)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4711)).unwrap();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (5, 6, 0o4711));
    std::os::unix::fs::chown(&file, Some(7), None).unwrap();
    assert_eq!(mode("f"), 0o711);

    let stamp = |secs, nanos| rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
    for (atime, mtime) in [((1, 999_999_999), (1_700_000_000, 5)), ((-2, 800_000_000), (-5, 0))] {
        let times =
            rustix::fs::Timestamps { last_access: stamp(atime.0, atime.1), last_modification: stamp(mtime.0, mtime.1) };
        rustix::fs::utimensat(CWD, &file, &times, rustix::fs::AtFlags::empty()).unwrap();
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), atime);
        assert_eq!((found.mtime(), found.mtime_nsec()), mtime);
    }
    // The smallest possible time is stored as the smallest representable one.
    let least = stamp(i64::MIN, 0);
    let times = rustix::fs::Timestamps { last_access: least, last_modification: least };
    rustix::fs::utimensat(CWD, &file, &times, rustix::fs::AtFlags::empty()).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mtime(), i64::MIN.div_euclid(1_000_000_000));
    mounted.umount();
}

#[test]
fn extended_attributes_are_kept() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let file = mounted.path("f");
    fs::write(&file, "").unwrap();
    let set = |name, value: &[u8], flags| rustix::fs::setxattr(&file, name, value, flags);
    set("user.one", b"1", XattrFlags::CREATE).unwrap();
    set("user.two", b"", XattrFlags::empty()).unwrap();
    assert_eq!(set("user.one", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.three", b"3", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.one", &mut value), Ok(1));
    assert_eq!(value[0], b'1');
    assert_eq!(rustix::fs::getxattr(&file, "user.none", &mut value), Err(Errno::NODATA));
    set("user.long", &[7; 100], XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(&file, "user.long", &mut value), Err(Errno::RANGE));
    let mut list = [0; 256];
    let length = rustix::fs::listxattr(&file, &mut list).unwrap();
    let mut names: Vec<&[u8]> = list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"user.long"[..], b"user.one", b"user.two"]);
    rustix::fs::removexattr(&file, "user.two").unwrap();
    assert_eq!(rustix::fs::removexattr(&file, "user.two"), Err(Errno::NODATA));
    mounted.umount();
}

#[test]
fn noatime_keeps_the_atime_of_files_that_are_read() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for (options, left) in [(&[][..], true), (&["-o", "noatime"], false)] {
        let mounted = Mounted::new(options);
        fs::write(mounted.path("file"), "contents").unwrap();
        fs::create_dir(mounted.path("dir")).unwrap();
        symlink("target", mounted.path("link")).unwrap();
        let old = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        for name in ["file", "dir", "link"] {
            rustix::fs::utimensat(CWD, mounted.path(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "contents");
        assert_eq!(names(&mounted.path("dir")), Vec::<String>::new());
        assert_eq!(fs::read_link(mounted.path("link")).unwrap().to_str(), Some("target"));
        let touched =
            ["file", "dir", "link"].map(|name| fs::symlink_metadata(mounted.path(name)).unwrap().atime() != 1);
        assert_eq!(touched, [left; 3], "{options:?}");
        mounted.umount();
    }
}

#[test]
fn flags_are_set_by_the_programs_of_the_system() {
    let _alone = alone();
    if !can_mount() || !has(&["lsattr", "chattr"]) {
        return;
    }
    if !is_root() {
        return skipped("only root may protect a file");
    }
    let mounted = Mounted::new(&[]);
    let file = mounted.path("file");
    fs::write(&file, "some bytes").unwrap();
    let shown = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&file).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.split_once(' ').map_or(String::new(), |(flags, _)| flags.replace('-', ""))
    };
    assert_eq!(shown("lsattr", &["-d"]), "");
    let ctime = || fs::metadata(&file).unwrap().ctime_nsec();
    let old = ctime();
    shown("chattr", &["+adA"]);
    assert_eq!(shown("lsattr", &["-d"]), "adA");
    assert_ne!(ctime(), old, "the kernel asks again after the change");
    assert_eq!(rustix::fs::setxattr(&file, "user.one", b"1", XattrFlags::empty()), Err(Errno::PERM));
    // The same by FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR.
    if has(&["xfs_io"]) {
        assert_eq!(shown("xfs_io", &["-r", "-c", "lsattr"]), "aAd");
        shown("xfs_io", &["-r", "-c", "chattr -aA +i"]);
        assert_eq!(shown("lsattr", &["-d"]), "id");
        // A project is not known here.
        let output = Command::new("xfs_io").args(["-r", "-c", "chproj 7"]).arg(&file).output().unwrap();
        assert!(said(&output).contains("not supported"), "{}", said(&output));
    }
    // Compression is not known here.
    let output = Command::new("chattr").arg("+c").arg(&file).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("not supported"), "{}", said(&output));
    shown("chattr", &["-iadA"]);
    fs::remove_file(&file).unwrap();
    mounted.umount();
}

/// A change that the flags refuse leaves setuid as it was. A program that has the file open may
/// still truncate it when it has become immutable.
#[test]
fn refused_change_of_an_immutable_file_leaves_setuid() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    if !is_root() || !has(&["perl"]) {
        return skipped("needs root, who may protect a file, and perl");
    }
    // With `suid` the kernel itself clears the bits.
    for suid in ["nosuid", "suid"] {
        immutable_file_keeps_setuid(suid);
    }
}

fn immutable_file_keeps_setuid(suid: &str) {
    let mounted = Mounted::new(&["--allow-other", "--mode", "1777", "--attr-timeout", "0", "-o", suid]);
    let path = mounted.path("file");
    fs::write(&path, "some bytes").unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    let open = fs::File::options().write(true).open(&path).unwrap();
    let flagged = fs::File::open(&path).unwrap();
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let does_with = |call: &str, input: Stdio| {
        let program = format!("use Fcntl; {call} or die \"$!\"");
        let arguments = ["--reuid", "1000", "--regid", "1000", "--clear-groups", "perl", "-e", &program];
        let mut command = Command::new("setpriv");
        let output = command.args(arguments).current_dir(mounted.root()).stdin(input).output().unwrap();
        assert!(output.status.success() || said(&output).contains("Operation not permitted"), "{}", said(&output));
        output.status.success()
    };
    let does = |call: &str| does_with(call, Stdio::null());
    let truncations = [
        (IFlags::IMMUTABLE, "truncate('file', 3)"),
        (IFlags::APPEND, "truncate('file', 3)"),
        (IFlags::APPEND, "sysopen(FILE, 'file', O_WRONLY | O_APPEND | O_TRUNC)"),
    ];
    for (flag, call) in truncations {
        ioctl_setflags(&flagged, flag).unwrap();
        assert!(!does(call), "{call}");
        assert_eq!((mode(), fs::metadata(&path).unwrap().len()), (0o4755, 10), "{call}");
    }
    assert_eq!(open.set_len(3).unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()), "append-only");
    ioctl_setflags(&flagged, IFlags::IMMUTABLE).unwrap();
    let copied = rustix::fs::copy_file_range(&flagged, None, &open, Some(&mut 20), 5);
    assert_eq!(copied, Err(Errno::PERM), "it is open, and a copy is refused all the same, as on Linux");
    open.set_len(3).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "som");
    // By a user, to whom root passes the open file. The kernel clears setuid before.
    let by_user = "open(FILE, '>&=', 0); truncate(FILE, 2)";
    assert!(does_with(by_user, open.try_clone().unwrap().into()), "{suid}");
    assert_eq!((mode(), fs::metadata(&path).unwrap().len()), (0o755, 2), "{suid}");
    ioctl_setflags(&flagged, IFlags::empty()).unwrap();
    drop((open, flagged));
    mounted.umount();
}

/// A user who gets an open file from another process may use it, even if this user could not open
/// it.
#[test]
fn open_files_may_be_passed_to_other_users() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let file = fs::File::create(mounted.path("f")).unwrap();
    let script =
        "import os\nos.setuid(65534)\nos.write(0, b'x')\nos.posix_fallocate(0, 0, 8192)\nos.lseek(0, 0, os.SEEK_DATA)";
    let user = Command::new("python3").args(["-c", script]).stdin(file.try_clone().unwrap()).output();
    let Ok(done) = user else { return skipped("not installed: python3") };
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(file.metadata().unwrap().size(), 8192);
    drop(file);
    mounted.umount();
}

#[test]
fn writing_removes_setuid_and_setgid() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for options in [&["--allow-other", "--mode", "1777"][..], &["--allow-other", "--mode", "1777", "-o", "suid"]] {
        let mounted = Mounted::new(options);
        let file = mounted.path("f");
        for (script, left) in [("printf x >> f", 0o777), (": > f", 0o777), ("truncate -s 3 f", 0o777), ("true", 0o6777)]
        {
            fs::write(&file, "contents").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
            let mut shell = Command::new("/bin/sh");
            std::os::unix::process::CommandExt::uid(&mut shell, 65534);
            assert!(shell.args(["-c", script]).current_dir(mounted.root()).status().unwrap().success());
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, left, "{script}, {options:?}");
        }
        mounted.umount();
    }
}

/// truncate(2) is a modification only if the size changes. ftruncate(2) always is.
#[test]
fn truncation_to_the_same_size_depends_on_the_call() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let file = fs::File::create(mounted.path("f")).unwrap();
    file.set_len(2).unwrap();
    let old = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
    rustix::fs::futimens(&file, &times).unwrap();
    let ctime = || file.metadata().map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
    let before = ctime();
    for (size, modified) in [(2, false), (3, true)] {
        // The Rust standard library has no truncate(2).
        let script = format!("import os; os.truncate('f', {size})");
        let program = Command::new("python3").args(["-c", &script]).current_dir(mounted.root()).output();
        let Ok(done) = program else { return skipped("not installed: python3") };
        assert!(done.status.success(), "{}", said(&done));
        let found = file.metadata().unwrap();
        assert_eq!((found.size(), found.mtime() != 1, ctime() != before), (size, modified, modified));
    }
    rustix::fs::futimens(&file, &times).unwrap();
    file.set_len(3).unwrap();
    assert_ne!(file.metadata().unwrap().mtime(), 1);
    drop(file);
    mounted.umount();
}

/// A chown that changes neither owner nor group counts too. The kernel sends such a request before
/// users other than root allocate.
#[test]
fn chown_without_a_change_removes_setuid_and_setgid() {
    let _alone = alone();
    if !can_mount() || !has(&["fallocate"]) {
        return;
    }
    for options in [&["--allow-other", "--mode", "1777"][..], &["--allow-other", "--mode", "1777", "-o", "suid"]] {
        let mounted = Mounted::new(options);
        let file = fs::OpenOptions::new().write(true).create_new(true).open(mounted.path("f")).unwrap();
        file.set_len(10).unwrap();
        let mark = || file.set_permissions(fs::Permissions::from_mode(0o6777)).unwrap();
        let mode = || file.metadata().unwrap().mode() & 0o7777;
        let ctime = || file.metadata().map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
        mark();
        std::os::unix::fs::fchown(&file, None, None).unwrap();
        assert_eq!(mode(), 0o777, "{options:?}");
        let before = ctime();
        std::os::unix::fs::fchown(&file, None, None).unwrap();
        assert_ne!(ctime(), before, "{options:?}");
        let by_another = |script| {
            let mut shell = Command::new("/bin/sh");
            std::os::unix::process::CommandExt::uid(&mut shell, 65534);
            shell.args(["-c", script]).current_dir(mounted.root()).status().unwrap().success()
        };
        for script in ["fallocate -l 20 f", "fallocate -p -o 0 -l 4 f"] {
            mark();
            assert!(by_another(script));
            assert_eq!(mode(), 0o777, "{script}, {options:?}");
        }
        // Ignored, or EPERM if the kernel sends the mode.
        mark();
        by_another("chown : f 2> /dev/null");
        assert_eq!(mode(), 0o6777, "{options:?}: it is not theirs to take away");
        drop(file);
        mounted.umount();
    }
}
