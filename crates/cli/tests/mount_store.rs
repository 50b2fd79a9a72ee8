//! `pando mount --store`: a tree that stays, through the real command and the real kernel.

mod common;

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use common::{KernelMount, Mounted, can_mount, has, is_root, names, pando, run, said, set};
use rustix::{
    fs::{IFlags, getxattr, ioctl_getflags, ioctl_setflags, statvfs},
    mount::{UnmountFlags, unmount},
    process::{Signal, kill_process},
};
use tempfile::TempDir;

/// A directory for a store. None if this machine allows no mounts.
fn store() -> Option<TempDir> {
    can_mount().then(|| tempfile::tempdir().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mounted(store: &TempDir, options: &[&str]) -> Mounted {
    Mounted::new(&[&["--store", text(store.path())], options].concat())
}

/// Kills the server. Returns what it had said.
fn kill(mut mounted: Mounted) -> String {
    kill_process(mounted.pid(), Signal::KILL).unwrap();
    mounted.ended().1
}

/// Checks the store, which is not mounted.
fn check(store: &TempDir) {
    let output = run(&["store", "check", text(store.path())]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.ends_with(": no problem\n"), "{printed}{}", said(&output));
}

/// Returns the flags before.
fn change_flags(path: &Path, flags: IFlags) -> IFlags {
    let file = fs::File::open(path).unwrap();
    let before = ioctl_getflags(&file).unwrap();
    ioctl_setflags(&file, flags).unwrap();
    before
}

#[test]
fn tree_is_there_again_with_all_that_it_had() {
    let Some(store) = store() else { return };
    for options in [&["--io-uring", "never"][..], &[]] {
        let tree = mounted(&store, options);
        let path = |name: &str| tree.path(name);
        fs::create_dir_all(path("dir/below")).unwrap();
        fs::write(path("dir/small"), "few bytes").unwrap();
        fs::hard_link(path("dir/small"), path("link")).unwrap();
        symlink("dir/small", path("symlink")).unwrap();
        let large = fs::File::create(path("large")).unwrap();
        large.write_all_at(&[7; 100_000], 1 << 20).unwrap();
        set(&path("large"), "user.name", b"value");
        drop(large);
        // Only root may protect a file.
        let flags = if is_root() { IFlags::APPEND | IFlags::NODUMP } else { IFlags::NODUMP };
        change_flags(&path("dir/small"), flags);
        tree.umount();
        check(&store);
        let again = mounted(&store, options);
        let path = |name: &str| again.path(name);
        assert_eq!(names(&again.root()), ["dir", "large", "link", "symlink"]);
        assert_eq!(names(&path("dir")), ["below", "small"]);
        assert_eq!(fs::read(path("symlink")).unwrap(), b"few bytes");
        assert_eq!(fs::metadata(path("link")).unwrap().ino(), fs::metadata(path("dir/small")).unwrap().ino());
        let large = fs::metadata(path("large")).unwrap();
        assert_eq!(large.len(), (1 << 20) + 100_000);
        assert!(large.blocks() < 2 * 300, "it has a hole: {} blocks", large.blocks());
        let mut value = [0; 16];
        assert_eq!(getxattr(path("large"), "user.name", &mut value), Ok(5));
        if is_root() {
            assert_eq!(fs::remove_file(path("dir/small")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        assert_eq!(change_flags(&path("link"), IFlags::empty()), flags);
        for name in ["dir/small", "large", "link", "symlink"] {
            fs::remove_file(path(name)).unwrap();
        }
        fs::remove_dir_all(path("dir")).unwrap();
        again.umount();
    }
    assert_eq!(fs::read_dir(store.path().join("pandofs-contents")).unwrap().count(), 0, "space is given back");
}

#[test]
fn killed_server_loses_nothing_that_was_synced() {
    let Some(store) = store() else { return };
    let tree = mounted(&store, &["--commit", "fsync-only"]);
    fs::write(tree.path("synced"), [1; 50_000]).unwrap();
    fs::File::open(tree.path("synced")).unwrap().sync_all().unwrap();
    let open = fs::File::create(tree.path("later")).unwrap();
    assert_eq!(kill(tree), "");
    drop(open);
    let info = run(&["store", "info", text(store.path())]);
    assert!(String::from_utf8_lossy(&info.stdout).contains("no: its server was killed"), "{info:?}");
    let again = mounted(&store, &[]);
    assert_eq!(names(&again.root()), ["synced"]);
    assert_eq!(fs::read(again.path("synced")).unwrap(), [1; 50_000]);
    let message = kill(again);
    assert!(message.contains("the server was killed or the machine crashed; the tree is as it was committed"));
    check(&store);
}

#[test]
fn copy_of_a_large_file_is_an_access() {
    let Some(store) = store() else { return };
    let tree = mounted(&store, &[]);
    let (large, copy) = (tree.path("large"), tree.path("copy"));
    fs::write(&large, vec![7; 1 << 20]).unwrap();
    let atime = || fs::metadata(&large).map(|found| (found.atime(), found.atime_nsec())).unwrap();
    let before = atime();
    // By copy_file_range.
    assert_eq!(fs::copy(&large, &copy).unwrap(), 1 << 20);
    assert!(atime() > before);
    assert!(fs::read(&copy).unwrap() == vec![7; 1 << 20]);
    tree.umount();
    check(&store);
}

/// With `--commit sync`, changes that have returned survive. So do those that are older than the
/// time of `--commit`.
#[test]
fn changes_are_committed_when_the_option_says() {
    let Some(store) = store() else { return };
    let tree = mounted(&store, &["--commit", "sync"]);
    fs::create_dir(tree.path("dir")).unwrap();
    fs::write(tree.path("dir/file"), "written").unwrap();
    set(&tree.path("dir"), "user.name", b"value");
    fs::rename(tree.path("dir"), tree.path("renamed")).unwrap();
    change_flags(&tree.path("renamed"), IFlags::NODUMP);
    kill(tree);
    let tree = mounted(&store, &["--commit", "20ms"]);
    assert_eq!(change_flags(&tree.path("renamed"), IFlags::empty()), IFlags::NODUMP);
    assert_eq!(fs::read(tree.path("renamed/file")).unwrap(), b"written");
    assert!(getxattr(tree.path("renamed"), "user.name", &mut [0; 16]).is_ok());
    fs::remove_dir_all(tree.path("renamed")).unwrap();
    kill(tree);
    // It was killed before that was committed, or after. With more time it is committed at last.
    let is_committed = (0..12).any(|round| {
        let tree = mounted(&store, &["--commit", "20ms"]);
        let is_committed = names(&tree.root()).is_empty();
        if !is_committed {
            fs::remove_dir_all(tree.path("renamed")).unwrap();
            thread::sleep(Duration::from_millis(20 << round));
        }
        kill(tree);
        is_committed
    });
    assert!(is_committed);
}

/// With `--commit sync`, a change that cannot be committed is an error, and the tree stops.
#[test]
fn change_that_cannot_be_committed_stops_the_tree() {
    if !can_mount() {
        return;
    }
    let disk = KernelMount::tmpfs(c"size=3M");
    let store = disk.path().join("store");
    for io_uring in ["never", "auto"] {
        let tree = Mounted::new(&["--store", text(&store), "--commit", "sync", "--io-uring", io_uring]);
        fs::write(tree.path("first"), "contents").unwrap();
        let failed = (0..1000).find_map(|number| {
            let written = fs::create_dir(tree.path(number.to_string()))
                .and_then(|()| fs::write(tree.path(format!("{number}/file")), [1; 16_000]));
            written.err()
        });
        let failed = failed.expect("the disk is full");
        assert!(failed.kind() == std::io::ErrorKind::StorageFull || failed.raw_os_error() == Some(5), "{failed}");
        assert_eq!(fs::write(tree.path("later"), "").unwrap_err().raw_os_error(), Some(5));
        kill(tree);
        let tree = Mounted::new(&["--store", text(&store)]);
        let names = names(&tree.root());
        assert!(names.contains(&"first".into()), "{names:?}");
        assert!(names.iter().all(|name| name == "first" || name.parse::<u32>().is_ok()), "{names:?}");
        names.iter().filter(|name| *name != "first").for_each(|name| {
            let _ = fs::remove_dir_all(tree.path(name));
        });
        kill(tree);
        fs::remove_dir_all(&store).unwrap();
    }
}

/// The last commit fails. The command that unmounts the tree says so.
#[test]
fn umount_fails_if_the_last_changes_are_lost() {
    if !can_mount() {
        return;
    }
    let disk = KernelMount::tmpfs(c"size=8M");
    let store = disk.path().join("store");
    let options = ["--store", text(&store), "--commit", "fsync-only"];
    let in_background = tempfile::tempdir().unwrap();
    for daemon in [false, true] {
        let mut tree = (!daemon).then(|| Mounted::new(&options));
        let root = tree.as_ref().map_or_else(|| in_background.path().to_owned(), Mounted::root);
        if daemon {
            let begun = run(&[&["mount", "--daemon"], &options[..], &[text(&root)]].concat());
            assert!(begun.status.success(), "{}", said(&begun));
        }
        fs::write(root.join("kept"), "contents").unwrap();
        fs::File::open(&root).unwrap().sync_all().unwrap();
        let filler = disk.path().join("filler");
        let filled = fs::write(&filler, vec![1; 8 << 20]).unwrap_err();
        assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
        (0..20).for_each(|number| fs::write(root.join(format!("lost{number}")), [2; 2000]).unwrap());
        let unmounted = run(&["umount", text(&root)]);
        assert_eq!(unmounted.status.code(), Some(1));
        assert!(said(&unmounted).contains("its server failed at the end: exit status: 1"), "{}", said(&unmounted));
        if let Some(tree) = &mut tree {
            assert!(tree.ended().1.contains("the last changes may be lost"));
        }
        fs::remove_file(filler).unwrap();
        let again = Mounted::new(&options);
        assert_eq!(names(&again.root()), ["kept"]);
        kill(again);
    }
}

/// FS_IOC_SHUTDOWN, as programs that test crashes use it.
#[test]
fn shut_down_tree_is_as_after_a_crash() {
    let Some(store) = store().filter(|_| has(&["python3", "setpriv"])) else { return };
    let shut_down = |mounted: &Mounted, how: u32, by: &[&str]| {
        let script = "import fcntl, os, struct, sys\n\
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', int(sys.argv[2])))";
        let (root, how) = (mounted.root(), how.to_string());
        let command = [by, &["python3", "-c", script, text(&root), &how]].concat();
        let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
        (output.status.success(), said(&output))
    };
    for (how, kept) in [(2, &["synced"][..]), (0, &["later", "synced"])] {
        let mut tree = mounted(&store, &["--commit", "fsync-only"]);
        fs::write(tree.path("synced"), "contents").unwrap();
        fs::File::open(tree.path("synced")).unwrap().sync_all().unwrap();
        fs::write(tree.path("later"), "contents").unwrap();
        let (_, other) = shut_down(&tree, how, &["setpriv", "--bounding-set", "-sys_admin"]);
        assert!(other.contains("Operation not permitted"), "{other}");
        let (_, nonsense) = shut_down(&tree, 77, &[]);
        assert!(nonsense.contains("Invalid argument"), "{nonsense}");
        assert_eq!(shut_down(&tree, how, &[]), (true, String::new()));
        assert!(fs::write(tree.path("after"), "contents").is_err());
        assert!(fs::read(tree.path("after")).is_err());
        let unmounted = run(&["umount", text(&tree.root())]);
        assert!(unmounted.status.success(), "{}", said(&unmounted));
        tree.ended();
        let again = mounted(&store, &[]);
        assert_eq!(names(&again.root()), kept);
        kept.iter().for_each(|name| fs::remove_file(again.path(name)).unwrap());
        kill_after_sync(again);
        check(&store);
    }
}

fn kill_after_sync(tree: Mounted) {
    fs::File::open(tree.root()).unwrap().sync_all().unwrap();
    kill(tree);
}

#[test]
fn store_is_not_copied_into_itself() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    fs::create_dir_all(source.join("empty")).unwrap();
    for store in ["empty", "missing", "missing/too"] {
        let imported = run(&["store", "import", text(&source), text(&source.join(store))]);
        assert!(said(&imported).contains("would be copied into itself"), "{store}: {}", said(&imported));
        assert_eq!(names(&source), ["empty"], "{store}");
    }
    let inside = pando(&["store", "import", ".", "missing"]).current_dir(&source).output().unwrap();
    assert!(said(&inside).contains("would be copied into itself"), "{}", said(&inside));
    let beside = run(&["store", "import", text(&source), text(&temp.path().join("missing/too"))]);
    assert!(beside.status.success(), "{}", said(&beside));
}

/// The server goes on for a moment after umount(8): it commits what is left.
#[test]
fn next_mount_waits_for_the_server_before() {
    let Some(store) = store() else { return };
    for round in 0..5 {
        let mut tree = mounted(&store, &[]);
        assert_eq!(names(&tree.root()).len(), round * 100);
        for number in 0..100 {
            fs::write(tree.path(format!("{round}-{number}")), [0; 10_000]).unwrap();
        }
        unmount(tree.root(), UnmountFlags::empty()).unwrap();
        let again = mounted(&store, &["-o", "ro"]);
        assert_eq!(names(&again.root()).len(), (round + 1) * 100);
        assert!(tree.ended().0.success());
        again.umount();
    }
}

#[test]
fn store_has_one_server() {
    let Some(store) = store() else { return };
    let tree = mounted(&store, &[]);
    let other = tempfile::tempdir().unwrap();
    for command in [
        &["mount", "--store", text(store.path()), text(other.path())][..],
        &["store", "check", text(store.path())],
        &["store", "info", text(store.path())],
        &["store", "compact", text(store.path())],
    ] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(said(&output).contains("another process uses the store\n  unmount its tree"), "{}", said(&output));
    }
    tree.umount();
}

/// The limits count what is stored, also by an earlier server.
#[test]
fn size_and_inodes_are_limits_of_the_store() {
    let Some(store) = store() else { return };
    let tree = mounted(&store, &["--size", "1M", "--inodes", "10"]);
    fs::write(tree.path("first"), vec![1; 600 << 10]).unwrap();
    tree.umount();
    let tree = mounted(&store, &["--size", "1M", "--inodes", "10"]);
    let stat = statvfs(tree.root()).unwrap();
    assert_eq!((stat.f_blocks * stat.f_frsize, stat.f_files), (1 << 20, 10));
    let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
    assert!((600 << 10..700 << 10).contains(&used), "{used}");
    let full = fs::write(tree.path("second"), vec![1; 600 << 10]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    fs::remove_file(tree.path("second")).unwrap();
    let many: Vec<_> = (0..10).map(|n| fs::write(tree.path(format!("file {n}")), "").is_ok()).collect();
    assert_eq!(many.iter().filter(|made| **made).count(), 8, "the root and `first` are the others");
    tree.umount();
}

/// Each refusal names what is wrong and what helps, and changes nothing.
#[test]
fn what_is_no_store_is_refused() {
    let Some(temp) = store() else { return };
    let (dir, grove) = (temp.path().join("store"), temp.path().join("grove"));
    let refused = |says: &str| {
        for command in [&["mount", "--store", text(&dir), text(&grove)][..], &["store", "check", text(&dir)]] {
            let before = contents(temp.path());
            let output = run(command);
            assert_eq!(output.status.code(), Some(1), "{command:?}");
            assert!(said(&output).contains(says), "{command:?}: {}", said(&output));
            assert!(before == contents(temp.path()), "{command:?} changes nothing");
        }
    };
    fs::write(&dir, "a file").unwrap();
    refused("Not a directory");
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("mine"), "mine").unwrap();
    refused("not a store of pandofs, and not empty\n  choose an empty directory");
    fs::remove_file(dir.join("mine")).unwrap();
    for missing in [&dir, &temp.path().join("nothing")] {
        let missing = run(&["store", "check", text(missing)]);
        assert!(said(&missing).contains("there is no store\n  pando mount --store"), "{}", said(&missing));
    }
    Mounted::new(&["--store", text(&dir)]).umount();
    let records = dir.join("pandofs-records");
    let whole = fs::read(&records).unwrap();
    for damage in [&whole[..whole.len() / 2], b"another program's", b""] {
        fs::write(&records, damage).unwrap();
        refused("pandofs-records is the damaged file");
    }
    fs::write(&records, &whole).unwrap();
    Mounted::new(&["--store", text(&dir)]).umount();
}

/// The paths and bytes of all files below a directory.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            all.push((entry.path(), Vec::new()));
            all.extend(contents(&entry.path()));
        } else {
            all.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn tree_of_a_store_is_exported_and_imported() {
    if !has(&["tar", "sh", "diff"]) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    fs::create_dir_all(path("tree/dir")).unwrap();
    fs::write(path("tree/dir/small"), "few bytes").unwrap();
    fs::write(path("tree/large"), vec![3; 100_000]).unwrap();
    symlink("dir/small", path("tree/link")).unwrap();
    let imported = run(&["store", "import", text(&path("tree")), text(&path("store"))]);
    assert!(imported.status.success(), "{}", said(&imported));
    let twice = run(&["store", "import", text(&path("tree")), text(&path("store"))]);
    assert!(said(&twice).contains("File exists"), "{}", said(&twice));
    let tar = fs::File::create(path("tar")).unwrap();
    let exported = pando(&["store", "export", text(&path("store"))]).stdout(tar).output().unwrap();
    assert!(exported.status.success(), "{}", said(&exported));
    let script = r#"mkdir out && tar -xf tar -C out && diff -r --no-dereference tree out && tar -cf - -C out . >again"#;
    let done = Command::new("sh").args(["-ec", script]).current_dir(temp.path()).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let mut copy = pando(&["store", "import", "-", text(&path("copy"))]);
    let copied = copy.stdin(fs::File::open(path("again")).unwrap()).output().unwrap();
    assert!(copied.status.success(), "{}", said(&copied));
    for store in ["store", "copy"] {
        let output = run(&["store", "check", "--json", text(&path(store))]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report, serde_json::json!({ "inodes": 5, "names": 4, "problems": [] }), "{store}");
        let output = run(&["store", "repair", "--yes", text(&path(store))]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "no problem: nothing is to be repaired\n");
        let output = run(&["store", "info", "--json", text(&path(store))]);
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&info["inodes"], &info["large_files"], &info["closed"]), (&5.into(), &1.into(), &true.into()));
        assert!(info["bytes"].as_u64() >= Some(100_000), "{info}");
    }
    let ids: Vec<_> =
        ["store", "copy"].map(|store| run(&["store", "info", "--json", text(&path(store))]).stdout).into();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn compact_makes_the_records_smaller_and_keeps_them() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    fs::create_dir(temp.path().join("tree")).unwrap();
    for number in 0..2000 {
        fs::write(temp.path().join("tree").join(number.to_string()), [5; 3000]).unwrap();
    }
    let imported = run(&["store", "import", text(&temp.path().join("tree")), text(&store)]);
    assert!(imported.status.success(), "{}", said(&imported));
    let size = || fs::metadata(store.join("pandofs-records")).unwrap().len();
    let before = size();
    let compacted = run(&["store", "compact", text(&store)]);
    assert!(compacted.status.success() && size() < before, "{before} and {}: {}", size(), said(&compacted));
    let exported = pando(&["store", "export", text(&store)]).output().unwrap().stdout;
    assert!(exported.len() > 2000 * 3000);
    let checked = run(&["store", "check", text(&store)]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "2,001 inodes, 2,000 names: no problem\n");
}
