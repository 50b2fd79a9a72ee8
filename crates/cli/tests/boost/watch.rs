//! `pando boost --watch`: programs at a mount that is watched.

use std::{
    fs::{self},
    path::Path,
    process::{Child, Command, Stdio},
};

use pando_boost::Options;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};

use crate::{
    AHEAD, FILES, Store,
    common::{can_mount, is_root, pando, said, skipped},
    count, one_of, parted,
    requests::alone,
};

#[test]
fn every_program_at_a_watched_mount_is_boosted() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&[]);
    let tree = store.tree();
    let watched = || {
        let watch = watching(&tree);
        store.forget();
        assert!(Command::new("ls").arg("-lR").arg(&tree).output().unwrap().status.success());
        kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
        let (output, log) = parted(watch.wait_with_output().unwrap());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        log
    };
    let wanted = |log: &str| count(log, "asked") > AHEAD && count(log, "most_at_once") > 4 && store.most_at_once() > 4;
    one_of(5, watched, wanted);
    store.mounted.umount();
}

#[test]
fn a_watch_opens_only_directories() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if release.split('.').next().and_then(|major| major.parse().ok()).is_none_or(|major: u32| major < 6) {
        return skipped("Linux before 6.0 tells of all that is opened");
    }
    let store = Store::new(&[]);
    let before = store.count("open");
    let mut watch = watching(&store.tree());
    (0..FILES).for_each(|i| drop(fs::File::open(store.tree().join(format!("f{i}"))).unwrap()));
    // Events come in order. Once this directory is read ahead, the watch has seen all of them.
    let read = store.count("readdir");
    drop(fs::File::open(store.tree()).unwrap());
    until(&mut watch, || store.count("readdir") > read);
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert_eq!(watch.wait_with_output().unwrap().status.code(), Some(0));
    let opened = store.count("open") - before;
    assert!(opened < FILES as u64 + 10, "{opened}");
    store.mounted.umount();
}

/// Starts a watch.
fn watching(path: &Path) -> Child {
    let mut watch = pando(&["-v", "boost", "--watch"]);
    let mut watch = watch.arg(path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(watch.stdout.take().unwrap()), &mut line).unwrap();
    assert!(line.contains("Ctrl-C"), "{line}");
    watch
}

/// Waits for an effect of the watch, which must not end meanwhile.
fn until(watch: &mut Child, is_done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_done() {
            return;
        }
        assert_eq!(watch.try_wait().unwrap(), None, "the watch has ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("the watch does not come to it");
}

#[test]
fn a_watch_goes_on_after_a_directory_that_cannot_be_opened() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    // The first open is that of the test itself.
    let store = Store::new(&["--fault", "open=EIO@2"]);
    assert_eq!(store.count("open"), 0);
    let mut watch = watching(&store.tree());
    drop(fs::File::open(store.tree()).unwrap());
    until(&mut watch, || store.count("open") == 2);
    let read = store.count("readdir");
    drop(fs::File::open(store.tree()).unwrap());
    until(&mut watch, || store.count("readdir") > read);
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert_eq!(watch.wait_with_output().unwrap().status.code(), Some(0));
    store.mounted.umount();
}

#[test]
fn a_watch_reads_events_in_parts() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let watch = match pando_boost::Watch::start(directory.path(), Options::new().max_in_flight(1)) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return skipped("not root"),
        watch => watch.unwrap(),
    };
    // More events than one read returns, each of another directory: repeated ones would be
    // merged.
    for i in 0..300 {
        let path = directory.path().join(i.to_string());
        fs::create_dir(&path).unwrap();
        drop(fs::File::open(path).unwrap());
    }
    watch.take().unwrap();
    let mut ready = [PollFd::new(&watch, PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&Timespec::default())), Ok(1), "the caller may check signals in between");
}

#[test]
fn a_watch_ends_with_its_mount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&[]);
    let watch = watching(&store.tree());
    store.mounted.umount();
    let (output, _) = parted(watch.wait_with_output().unwrap());
    assert_eq!(output.status.code(), Some(0));
    assert!(said(&output).contains("not mounted any more"), "{}", said(&output));
}

#[test]
fn a_mount_that_cannot_be_watched_is_an_error_with_a_remedy() {
    let _alone = alone();
    if !is_root() {
        return;
    }
    let output = pando(&["boost", "--watch", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/nowhere/at/all: No such file"), "{}", said(&output));
}
