//! Programs that read where links lead.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::{
    AHEAD, FILES, Store, boosted,
    common::{can_mount, has, said},
    count, parted, probe,
    requests::alone,
    same_and_ahead, text,
};

/// Of names alone, and of attributes, nobody wants to know where links lead; and it might leave a
/// time of access.
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

/// A program's output, which is the same without boost, and how many messages it sent.
fn same_posts(args: &[&str]) -> usize {
    let plain = Command::new(probe()).args(args).output().expect("starts");
    assert!(plain.status.success(), "{}", text(&plain.stdout));
    let (with, log) = parted(boosted(probe(), args).output().expect("starts"));
    assert_eq!((with.status.code(), text(&with.stdout)), (Some(0), text(&plain.stdout)), "{}", said(&with));
    count(&log, "posts")
}

/// Where the target of a link has taken the place of its path, nobody knows any more which
/// directory that was in.
#[test]
fn a_target_that_is_put_over_the_path_of_its_link_is_not_taken_for_it() {
    let _alone = alone();
    if !has(&["cc"]) {
        return;
    }
    let (links, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = links.path().to_str().unwrap();
    // A directory that is there, and longer than the path of the link.
    let target = elsewhere.path().join("/.".repeat(path.len())[1..].to_owned() + "/file");
    symlink(target, links.path().join("link")).unwrap();
    assert_eq!(same_posts(&["readlink-in-place", path]), 1, "of the directory with the link");
    for way in ["readlink-before", "readlink-behind"] {
        assert_eq!(same_posts(&[way, path]), 2, "{way}: and of its links");
    }
}

/// To look up a name may allocate, which some allocators must not be asked for while they begin.
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
    // Behind our library, so that what comes next there is the C library's.
    let script = "LD_PRELOAD=$LD_PRELOAD:$0 exec \"$@\"";
    let args = ["-c", script, allocator.to_str().unwrap(), probe().to_str().unwrap(), "scandir", "/etc"];
    let (output, log) = parted(boosted("/bin/sh", &args).output().unwrap());
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
    assert_eq!(count(&log, "posts"), 1, "{log}");
}
