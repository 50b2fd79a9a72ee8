//! `pando import`: a tree and a tar stream are copied into a mount, many entries in one request.

mod common;
mod requests;

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{Mounted, can_mount, has, pando, run, said, set};
use requests::{Requests, alone};
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

/// A directory with entries of each kind. Root makes it.
fn source(root: &Path) {
    for dir in ["a", "a/b", "empty", "setgid"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for file in 0..600_usize {
        let dir = ["", "a", "a/b"][file % 3];
        let path = root.join(dir).join(format!("{}{file}", "f".repeat(file % 200)));
        fs::write(&path, "x".repeat(file * 7)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o400 + file as u32 % 0o400)).unwrap();
        chown(&path, Some(file as u32), Some(2 * file as u32)).unwrap();
    }
    for (name, size) in [("empty file", 0), ("small", 48 << 10), ("large", (48 << 10) + 1), ("huge", 3 << 20)] {
        fs::write(root.join(name), vec![b'd'; size]).unwrap();
    }
    let set_ids = root.join("set ids");
    fs::write(&set_ids, "program").unwrap();
    chown(&set_ids, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&set_ids, Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(root.join("setgid"), Permissions::from_mode(0o2775)).unwrap();
    chown(root.join("setgid"), None, Some(777)).unwrap();
    fs::write(root.join("setgid/inherits nothing"), "").unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, b"data", 20_000).unwrap();
    holes.set_len(40_000).unwrap();
    File::create(root.join("hole")).unwrap().set_len(10_000).unwrap();
    symlink("where/it/leads", root.join("link")).unwrap();
    symlink("x".repeat(4095), root.join("a/long link")).unwrap();
    fs::hard_link(root.join("small"), root.join("a/b/other name")).unwrap();
    fs::hard_link(root.join("a/long link"), root.join("a/other link")).unwrap();
    let _ = UnixListener::bind(root.join("socket")).unwrap();
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("tty", FileType::CharacterDevice, rustix::fs::makedev(300, 70_000)),
        ("disk", FileType::BlockDevice, rustix::fs::makedev(8, 1)),
    ] {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from(0o640), device).unwrap();
    }
    set(&root.join("small"), "user.colour", b"green");
    set(&root.join("a"), "user.of", b"a directory");
    set(&root.join("link"), "trusted.of", b"a link");
    (0..20).for_each(|i| set(&root.join("empty file"), &format!("user.{i}"), &[b'v'; 100]));
    set(&root.join("hole"), "user.large", &[b'v'; 3000]);
}

/// The changes that rsync would make in `copy`. There are none if it equals `source`.
fn differences(source: &Path, copy: &Path) -> String {
    let mut rsync = Command::new("rsync");
    rsync.args(["-aHXcni", "--delete", "--specials", "--devices"]);
    let output = rsync.arg(source.join("")).arg(copy.join("")).output().expect("starts");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The crate `pando-transfer` tests copies that need no root.
#[test]
fn a_directory_and_a_tar_stream_are_copied_whole() {
    let _alone = alone();
    if !can_mount() || !has(&["rsync", "tar"]) {
        return;
    }
    let (temp, sources) = (TempDir::new().unwrap(), TempDir::new_in("/var/tmp").unwrap());
    let from = sources.path().join("from");
    fs::create_dir(&from).unwrap();
    source(&from);
    let mounted = Mounted::again(temp, &["--delay", "read=1us"]);
    let kept = sources.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let through = Mounted::new(&["--source", kept.to_str().unwrap(), "--delay", "read=1us"]);
    for root in [mounted.root(), through.root()] {
        for name in ["tree", "tar"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let output = run(&["import", from.to_str().unwrap(), root.join("tree").to_str().unwrap()]);
        assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(0)));
        assert_eq!(differences(&from, &root.join("tree")), "");

        let mut tar = Command::new("tar")
            .args(["--xattrs", "--xattrs-include=*", "--format=posix", "--exclude=./socket", "-C"])
            .arg(&from)
            .args(["-cf", "-", "."])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut import = pando(&["import", "-", root.join("tar").to_str().unwrap()]);
        let output = import.stdin(tar.stdout.take().expect("a pipe")).output().expect("starts");
        assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(0)));
        assert!(tar.wait().unwrap().success());
        assert_eq!(differences(&from, &root.join("tar")), "cS+++++++++ socket\n");
    }
    for mounted in [&mounted, &through] {
        let requests = Requests::of(mounted);
        assert!(requests.count("create") < 20 && requests.count("setxattr") < 100, "{requests:?}");
    }
    let blocks = rustix::fs::stat(mounted.path("tree/holes")).unwrap().st_blocks;
    assert!(blocks * 512 < 40_000, "{blocks}");
    through.umount();
    mounted.umount();
}

/// The existing file stays as it is, and the message names it.
#[test]
fn an_entry_that_exists_is_an_error() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let (mounted, from) = (Mounted::new(&[]), TempDir::new().unwrap());
    for name in ["a", "b", "c"] {
        fs::write(from.path().join(name), name).unwrap();
    }
    fs::write(mounted.path("b"), "mine").unwrap();
    let output = run(&["import", from.path().to_str().unwrap(), mounted.root().to_str().unwrap()]);
    assert_eq!((said(&output).as_str(), output.status.code()), ("pando: b: File exists (os error 17)\n", Some(1)));
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"mine");
    mounted.umount();
}

/// Names that the kernel has not found lately are made by single calls. Those that are looked up
/// meanwhile show.
#[test]
fn names_that_were_not_found_before_show_after_an_import() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let (mounted, from) = (Mounted::new(&[]), TempDir::new().unwrap());
    let names: Vec<String> = (0..300).map(|number| format!("file {number}")).collect();
    for name in &names {
        fs::write(from.path().join(name), name).unwrap();
        assert!(!mounted.path(name).exists());
    }
    let holes = File::create(from.path().join("file 7")).unwrap();
    holes.set_len(40_000).unwrap();
    set(&from.path().join("file 8"), "user.colour", b"green");
    let output = run(&["import", from.path().to_str().unwrap(), mounted.root().to_str().unwrap()]);
    assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(0)));
    for name in &names {
        assert_eq!(fs::read(mounted.path(name)).unwrap(), fs::read(from.path().join(name)).unwrap());
    }
    assert_eq!(rustix::fs::stat(mounted.path("file 7")).unwrap().st_size, 40_000);
    assert_eq!(rustix::fs::getxattr(mounted.path("file 8"), "user.colour", &mut [0; 9][..]), Ok(5));
    mounted.umount();
}

/// The copy has the entries that came before the error. The error names its entry.
#[test]
fn entries_before_an_error_are_made() {
    let _alone = alone();
    if !can_mount() || !has(&["tar"]) {
        return;
    }
    let (mounted, from) = (Mounted::new(&[]), TempDir::new().unwrap());
    let path = |name: &str| from.path().join(name);
    for name in ["a", "b"] {
        fs::write(path(name), name).unwrap();
    }
    let root = mounted.root();
    let fails = |line: &[&str], message: &str| {
        let output = run(line);
        assert!(said(&output).contains(message) && output.status.code() == Some(1), "{}", said(&output));
    };
    let to = root.to_str().unwrap();
    let sources = ["a", "b", "missing"].map(|name| path(name).to_str().unwrap().to_owned());
    fails(&["cp", "-a", &sources[0], &sources[1], &sources[2], to], "missing: No such file");
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"a");
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"b");
    // A stream in which a file becomes a directory.
    fs::create_dir(path("next")).unwrap();
    fs::create_dir(path("next/x")).unwrap();
    fs::write(path("next/x/y"), "").unwrap();
    fs::write(path("x"), "").unwrap();
    let tar = |options: &[&str]| {
        let done = Command::new("tar").current_dir(from.path()).args(options).status().expect("starts");
        assert!(done.success());
    };
    tar(&["-cf", "both", "x"]);
    tar(&["-rf", "both", "-C", "next", "x/y"]);
    fs::create_dir(mounted.path("sub")).unwrap();
    let sub = mounted.path("sub");
    fails(&["import", path("both").to_str().unwrap(), sub.to_str().unwrap()], "x: Not a directory");
    assert!(sub.join("x").is_file());
    mounted.umount();
}

/// A user copies too, and the files are the user's.
#[test]
fn a_user_copies_without_privileges() {
    let _alone = alone();
    if !can_mount() || !has(&["setpriv"]) {
        return;
    }
    let temp = TempDir::new_in("/var/tmp").unwrap();
    fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
    let from = temp.path().join("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    for name in ["a", "sub/b"] {
        fs::write(from.join(name), name).unwrap();
    }
    rustix::fs::mknodat(CWD, from.join("tty"), FileType::CharacterDevice, Mode::from(0o640), 0x500).unwrap();
    set(&from.join("a"), "trusted.of", b"root");
    let program = common::copy_to(temp.path());
    let mounted = Mounted::again(temp, &["--allow-other", "--mode", "777", "--delay", "read=1us"]);
    for (to, before) in
        [("by user", &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"][..]), ("by root", &["env"])]
    {
        let to = mounted.path(to);
        fs::create_dir(&to).unwrap();
        let user = if before[0] == "env" { 0 } else { 65534 };
        chown(&to, Some(user), None).unwrap();
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(&program).args(["import", "--no-same-owner"]).arg(&from).arg(&to);
        let output = command.output().expect("starts");
        assert_eq!(said(&output), "pando: tty: a device node, left out\n");
        assert_eq!(output.status.code(), Some(1));
        for name in ["a", "sub/b"] {
            let copy = fs::metadata(to.join(name)).unwrap();
            assert_eq!((copy.uid(), fs::read(to.join(name)).unwrap()), (user, name.into()));
        }
        assert!(rustix::fs::getxattr(to.join("a"), "trusted.of", &mut [0; 9][..]).is_err());
    }
    let requests = Requests::of(&mounted);
    assert_eq!(requests.count("create"), 0, "{requests:?}");
    mounted.umount();
}

#[test]
fn files_of_any_kind_are_copied_to_a_directory_or_a_name() {
    let _alone = alone();
    if !can_mount() || !has(&["rsync", "cp"]) {
        return;
    }
    let (mounted, from) = (Mounted::new(&[]), TempDir::new_in("/var/tmp").unwrap());
    source(from.path());
    let by_cp = from.path().join("copies");
    let names = ["a", "small", "link", "fifo", "tty", "empty file", "holes", "empty"];
    let sources = names.map(|name| from.path().join(name));
    let copy = |mut command: Command, to: &Path, sources: &[&Path]| {
        let output = command.arg("-a").args(sources).arg(to).output().expect("starts");
        assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(0)));
    };
    for (several, to) in [(true, "all"), (false, "copy of a")] {
        let (ours, theirs) = (mounted.path(to), by_cp.join(to));
        let sources = sources.each_ref().map(PathBuf::as_path);
        let sources = if several { &sources[..] } else { &sources[..1] };
        fs::create_dir_all(if several { &theirs } else { &by_cp }).unwrap();
        if several {
            fs::create_dir(&ours).unwrap();
        }
        copy(pando(&["cp"]), &ours, sources);
        copy(Command::new("cp"), &theirs, sources);
        rustix::fs::utimensat(CWD, &ours, &mtime_of(&theirs), rustix::fs::AtFlags::empty()).unwrap();
        assert_eq!(differences(&theirs, &ours), "", "{to}");
    }
    // A link to a directory is a directory to copy into, and a source is copied as it is.
    symlink("all", mounted.path("to all")).unwrap();
    fs::write(from.path().join("new"), "new").unwrap();
    copy(pando(&["cp"]), &mounted.path("to all"), &[&from.path().join("new")]);
    assert_eq!(fs::read(mounted.path("all/new")).unwrap(), b"new");
    mounted.umount();
}

fn mtime_of(path: &Path) -> rustix::fs::Timestamps {
    let stat = rustix::fs::stat(path).unwrap();
    let time = rustix::fs::Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let temp = TempDir::new().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("a/b")).unwrap();
    for line in [["import", "a", "a"], ["import", "a", "a/b"], ["cp", "a", "a/b"], ["cp", "a", "a"]] {
        let output = run(&[line[0], &path(line[1]), &path(line[2])]);
        let said = said(&output);
        assert!(said.contains("is inside of the source") && output.status.code() == Some(1), "{line:?}: {said}");
    }
}

#[test]
fn what_cannot_be_copied_is_an_error() {
    let temp = TempDir::new().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("to")).unwrap();
    fs::write(path("file"), "").unwrap();
    fs::write(path("text"), "no tar stream at all").unwrap();
    File::create(path("tar.gz")).unwrap().write_all(b"\x1f\x8b\x08 and so on").unwrap();
    for (from, to, message) in [
        ("missing", "to", "No such file"),
        ("to", "missing", "No such file"),
        ("to", "file", "ot a directory"),
        ("text", "to", "pando: "),
        ("tar.gz", "to", "the tar stream is compressed"),
    ] {
        let output = run(&["import", &path(from), &path(to)]);
        let said = said(&output);
        assert!(said.contains(message) && said.starts_with("pando: ") && output.status.code() == Some(1), "{said}");
    }
    for (from, to, message) in [
        (["missing", "text"], "to", "missing: No such file"),
        (["text", "tar.gz"], "missing", "missing: not a directory"),
        (["text", "/"], "to", "the copy would have no name"),
    ] {
        let output = run(&["cp", "-a", &path(from[0]), &path(from[1]), &path(to)]);
        let said = said(&output);
        assert!(said.contains(message) && said.starts_with("pando: ") && output.status.code() == Some(1), "{said}");
    }
    assert_eq!(fs::read_dir(path("to")).unwrap().count(), 0);
}
