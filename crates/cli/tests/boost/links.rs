//! Programs that read the targets of links.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::{
    AHEAD, FILES, Store, boosted,
    common::{can_mount, has, said},
    count, parted, probe,
    requests::alone,
    same_and_ahead, text,
};

/// Programs that read only names or attributes do not need the targets, and reading them might
/// leave a new atime.
#[test]
fn links_are_read_ahead_for_programs_that_read_them() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&["--delay", "readlink=500us"]);
    let tree = store.tree();
    let links = tree.join("links");
    fs::create_dir(&links).unwrap();
    (0..FILES).for_each(|i| symlink("nowhere", links.join(format!("l{i}"))).unwrap());
    let links = links.to_str().unwrap();
    for (program, args) in [("du", &["-a", links][..]), ("find", &[links, "-printf", "%P %s\\n"])] {
        if !has(&[program]) {
            continue;
        }
        let before = store.count("readlink");
        same_and_ahead(&store, program, args, |log| count(log, "links") == 0);
        assert_eq!(store.count("readlink"), before, "{program}");
    }
    let listed: [(&str, &[&str]); 4] = [
        ("ls", &["-l", links]),
        ("find", &[links, "-printf", "%P %l\\n"]),
        ("tar", &["cf", "-", "-C", links, "."]),
        ("rsync", &["-aln", "--out-format=%n %L", &format!("{links}/"), "/nowhere/"]),
    ];
    for (program, args) in listed {
        if has(&[program]) {
            same_and_ahead(&store, program, args, |log| count(log, "links") > AHEAD);
        }
    }
    store.mounted.umount();
}

/// Reading a target invalidates the atime, so asking for the attributes again waits. That does not
/// mean that the kernel keeps no attributes.
#[test]
fn a_target_that_was_read_does_not_count_against_the_kernel() {
    let _alone = alone();
    if !can_mount() || !has(&["ls"]) {
        return;
    }
    let store = Store::new(&["--delay", "readlink=500us,getattr=2ms"]);
    let (first, links) = (store.tree().join("first"), store.tree().join("links"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&links).unwrap();
    symlink("nowhere", first.join("link")).unwrap();
    (0..FILES).for_each(|i| symlink("nowhere", links.join(format!("l{i}"))).unwrap());
    // After the first directory it is known that the program reads targets.
    let args = ["-l", first.to_str().unwrap(), links.to_str().unwrap()];
    same_and_ahead(&store, "ls", &args, |log| {
        assert_eq!(count(log, "forgotten"), 0, "{log}");
        count(log, "links") > AHEAD
    });
    store.mounted.umount();
}

/// Runs a program, whose output must be the same without boost. Returns the number of its messages
/// to the helper.
fn same_posts(args: &[&str]) -> usize {
    let plain = Command::new(probe()).args(args).output().expect("starts");
    assert!(plain.status.success(), "{}", text(&plain.stdout));
    let (with, log) = parted(boosted(probe(), args).output().expect("starts"));
    assert_eq!((with.status.code(), text(&with.stdout)), (Some(0), text(&plain.stdout)), "{}", said(&with));
    count(&log, "posts")
}

/// If the target of a link overwrites its path, the directory of that path is not known any more.
#[test]
fn a_target_that_overwrites_the_path_of_its_link_is_not_taken_for_it() {
    let _alone = alone();
    if !has(&["cc"]) {
        return;
    }
    let (links, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = links.path().to_str().unwrap();
    // An existing directory whose path is longer than that of the link.
    let target = elsewhere.path().join("/.".repeat(path.len())[1..].to_owned() + "/file");
    symlink(target, links.path().join("link")).unwrap();
    assert_eq!(same_posts(&["readlink-in-place", path]), 1, "of the directory with the link");
    for way in ["readlink-before", "readlink-behind"] {
        assert_eq!(same_posts(&[way, path]), 2, "{way}: and of its links");
    }
}

/// Looking up a symbol may allocate. Some allocators cannot serve that while they start.
#[test]
fn an_allocator_may_read_a_link_under_its_lock() {
    let _alone = alone();
    if !has(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let allocator = directory.path().join("allocator.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boost/allocator.c");
    let status =
        Command::new("cc").args(["-O1", "-shared", "-fPIC", source, "-o"]).arg(&allocator).status().expect("cc");
    assert!(status.success());
    // After our library, so that the next definition there is that of the C library.
    let script = "LD_PRELOAD=$LD_PRELOAD:$0 exec \"$@\"";
    let args = ["-c", script, allocator.to_str().unwrap(), probe().to_str().unwrap(), "scandir", "/etc"];
    let (output, log) = parted(boosted("/bin/sh", &args).output().unwrap());
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
    assert_eq!(count(&log, "posts"), 1, "{log}");
}
