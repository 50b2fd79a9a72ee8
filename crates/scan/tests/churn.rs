//! Directories that change while they are read.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use pando_scan::{Cause, Event, Mask, Options, Scan, Walk, WalkOptions, Workers};
use rustix::{
    fs::{CWD, RenameFlags, XattrFlags},
    io::Errno,
};

mod common;

use common::temp;

/// Runs `change` repeatedly while `look` runs.
fn meanwhile(mut change: impl FnMut(u64) + Send, look: impl FnOnce(&Changes)) {
    let changes = Changes { count: AtomicU64::new(0), ended: AtomicBool::new(false) };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ender = Ender(&changes.ended);
            while !changes.ended.load(Ordering::Relaxed) {
                change(changes.count.load(Ordering::Relaxed));
                changes.count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _ender = Ender(&changes.ended);
        look(&changes);
    });
}

/// Changes in progress.
struct Changes {
    count: AtomicU64,
    ended: AtomicBool,
}

impl Changes {
    /// How many so far. Panics if there will be no more, so that no caller waits for them for ever.
    fn so_far(&self) -> u64 {
        assert!(!self.ended.load(Ordering::Relaxed), "a change has failed");
        self.count.load(Ordering::Relaxed)
    }
}

/// Ends the changes when it is dropped, after a panic too. Each thread then notices the other's
/// end.
struct Ender<'a>(&'a AtomicBool);

impl Drop for Ender<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn workers() -> [Workers; 3] {
    [Workers::Auto, Workers::Fixed(1), Workers::Fixed(4)]
}

#[test]
fn entries_that_stay_are_seen_once() {
    let dir = temp();
    for number in 0..2500 {
        fs::write(dir.path().join(format!("stays{number:05}")), b"").unwrap();
    }
    let change = |turn: u64| {
        let path = dir.path().join(format!("goes{:04}", turn * 7919 % 3000));
        if fs::write(&path, b"x").is_ok() && !turn.is_multiple_of(3) {
            fs::remove_file(dir.path().join(format!("goes{:04}", turn * 31 % 3000))).ok();
        }
    };
    meanwhile(change, |changes| {
        for workers in workers() {
            for level in 0..4 {
                let begun = changes.so_far();
                let options = Options::new().mask(Mask::level(level).unwrap()).workers(workers);
                while changes.so_far() < begun + 20 {
                    let mut scan = Scan::open(dir.path(), &options).unwrap();
                    let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
                    while let Some(batch) = scan.next_batch().unwrap() {
                        for record in batch.iter() {
                            if record.name().starts_with(b"stays") {
                                *seen.entry(record.name().to_vec()).or_default() += 1;
                                assert_eq!(record.errno(), None);
                                assert_eq!(record.attr().is_some(), level > 0);
                            } else if let Some(errno) = record.errno() {
                                assert_eq!(errno, Errno::NOENT.raw_os_error());
                            }
                        }
                    }
                    assert_eq!(seen.len(), 2500, "{options:?}");
                    assert!(seen.values().all(|&times| times == 1), "{options:?}");
                }
            }
        }
    });
}

/// A directory and a symbolic link to the outside exchange their names repeatedly.
#[test]
fn walk_never_leads_outside() {
    let outside = temp();
    fs::create_dir(outside.path().join("inner")).unwrap();
    fs::write(outside.path().join("secret"), b"").unwrap();
    fs::write(outside.path().join("inner/secret"), b"").unwrap();
    let dir = temp();
    for number in 0..8 {
        let branch = dir.path().join(format!("branch{number}"));
        fs::create_dir_all(branch.join("inner")).unwrap();
        fs::write(branch.join("leaf"), b"").unwrap();
        fs::write(branch.join("inner/leaf"), b"").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join(format!("link{number}"))).unwrap();
    }
    let exchange = |turn: u64| {
        let (branch, link) = (format!("branch{}", turn % 8), format!("link{}", turn % 8));
        rustix::fs::renameat_with(CWD, dir.path().join(branch), CWD, dir.path().join(link), RenameFlags::EXCHANGE)
    };
    if let Err(errno @ (Errno::INVAL | Errno::NOSYS)) = exchange(0) {
        common::mount::skipped(&format!("names cannot be exchanged in {}: {errno}", dir.path().display()));
        return;
    }
    let change = |turn| exchange(turn).unwrap();
    let (mut leaves, mut refused) = (0, 0);
    meanwhile(change, |changes| {
        for workers in workers() {
            for level in 0..4 {
                let begun = changes.so_far();
                let mut walks = 0;
                while walks < 8 || changes.so_far() < begun + 60 {
                    let scan = Options::new().mask(Mask::level(level).unwrap()).workers(workers);
                    let mut walk = Walk::open(dir.path(), WalkOptions::new().scan(scan)).unwrap();
                    walks += 1;
                    while let Some(event) = walk.next_event() {
                        match event {
                            Event::Batch(directory, batch) => {
                                for record in batch.iter() {
                                    assert_ne!(record.name(), b"secret", "{:?}", directory.path);
                                    leaves += u32::from(record.name() == b"leaf");
                                }
                            }
                            Event::Failed(failure) => {
                                let expected = [Errno::NOTDIR, Errno::LOOP, Errno::STALE, Errno::NOENT];
                                assert!(
                                    expected.iter().any(|errno| errno.raw_os_error() == failure.errno),
                                    "{failure:?}"
                                );
                                refused += 1;
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
    });
    assert!(leaves > 0 && refused > 0, "{leaves} leaves, {refused} refused: the race was not run");
}

#[test]
fn tree_may_vanish_during_a_walk() {
    for workers in workers() {
        let dir = temp();
        let tree = dir.path().join("tree");
        for branch in 0..40 {
            for twig in 0..5 {
                fs::create_dir_all(tree.join(format!("b{branch}/t{twig}"))).unwrap();
                for leaf in 0..5 {
                    fs::write(tree.join(format!("b{branch}/t{twig}/l{leaf}")), b"").unwrap();
                }
            }
        }
        let scan = Options::new().mask(Mask::all()).workers(workers);
        let mut walk = Walk::open(&tree, WalkOptions::new().scan(scan)).unwrap();
        let (mut directories, mut failures) = (0, 0);
        while let Some(event) = walk.next_event() {
            match event {
                Event::Enter(_) => {
                    directories += 1;
                    if directories == 20 {
                        fs::remove_dir_all(&tree).unwrap();
                    }
                }
                Event::Batch(..) | Event::Leave(..) => {}
                Event::Failed(failure) => {
                    assert_eq!(failure.errno, Errno::NOENT.raw_os_error(), "{failure:?}");
                    failures += 1;
                }
            }
        }
        assert!(directories >= 20 && failures > 0, "{directories} directories, {failures} failures");
    }
}

#[test]
fn scan_of_a_removed_directory_ends() {
    let dir = temp();
    let path = dir.path().join("gone");
    fs::create_dir(&path).unwrap();
    let mut scan = Scan::open(&path, &Options::default()).unwrap();
    fs::remove_dir(&path).unwrap();
    assert_eq!(scan.next_batch().unwrap_err().errno(), Errno::NOENT.raw_os_error());
    assert!(scan.next_batch().unwrap().is_none());
}

/// A record says so if the entry changed again at each try while it was read. It does not if the
/// changes have ended.
#[test]
fn change_between_the_calls_is_noticed() {
    let dir = temp();
    let path = dir.path().join("restless");
    fs::write(&path, b"").unwrap();
    let set = |turn: u64| rustix::fs::setxattr(&path, "user.turn", &turn.to_ne_bytes(), XattrFlags::empty());
    if let Err(errno) = set(0) {
        common::mount::skipped(&format!("no extended attributes in {}: {errno}", dir.path().display()));
        return;
    }
    let change = |turn| set(turn).unwrap();
    let unseen = |turn| {
        let before = rustix::fs::stat(&path).unwrap();
        change(turn);
        let after = rustix::fs::stat(&path).unwrap();
        (before.st_ctime, before.st_ctime_nsec) == (after.st_ctime, after.st_ctime_nsec)
    };
    if (1..100).any(unseen) {
        common::mount::skipped(&format!("two changes at once have one time in {}", dir.path().display()));
        return;
    }
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        common::mount::skipped("nothing changes beside this thread on one CPU");
        return;
    }
    let changed = |dir: &Path| {
        let mut scan = Scan::open(dir, &Options::new().mask(Mask::all())).unwrap();
        let batch = scan.next_batch().unwrap().unwrap();
        let record = batch.get(0).unwrap();
        assert_eq!(record.xattrs().count(), 1);
        record.changed()
    };
    // Two of them: at least one must run while this thread does.
    meanwhile(change, |some| {
        meanwhile(change, |others| {
            while !changed(dir.path()) {
                some.so_far();
                others.so_far();
            }
        })
    });
    assert!(!changed(dir.path()));
}

/// A name stands for one link and then for another. A target belongs to the attributes and to the
/// kind in its record.
#[test]
fn target_belongs_to_the_attributes_of_its_record() {
    let dir = temp();
    let name = dir.path().join("restless");
    let change = |turn: u64| {
        let other = dir.path().join(".other");
        if turn.is_multiple_of(3) {
            fs::write(&other, b"").unwrap();
        } else {
            // No length is repeated within a tick of the file system's clock. A reused inode number
            // with the same times and size would be the same link to any reader.
            std::os::unix::fs::symlink("x".repeat(turn as usize % 1000 + 1), &other).unwrap();
        }
        fs::rename(&other, &name).unwrap();
    };
    change(0);
    let mut links = 0;
    meanwhile(change, |changes| {
        while links < 2000 {
            changes.so_far();
            let mut scan = Scan::open(dir.path(), &Options::new().mask(Mask::all())).unwrap();
            while let Some(batch) = scan.next_batch().unwrap() {
                for record in batch.iter().filter(|record| !record.changed()) {
                    let Some(attr) = record.attr() else { continue };
                    let len = record.link_target().map(|target| target.unwrap().len() as u64);
                    assert_eq!(len.is_some(), attr.kind() == Some(pando_records::FileKind::Symlink), "{record:?}");
                    assert!(len.is_none_or(|len| len == attr.size), "{record:?}");
                    links += u32::from(len.is_some());
                }
            }
        }
    });
}

#[test]
fn replaced_directory_is_not_entered() {
    let dir = temp();
    for name in ["a", "b", "c/inner"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let options = Options::new().workers(Workers::Fixed(1));
    let mut walk = Walk::open(dir.path(), WalkOptions::new().scan(options)).unwrap();
    let mut failures = Vec::new();
    while let Some(event) = walk.next_event() {
        match event {
            Event::Leave(directory, children) if directory.depth == 0 => {
                children.sort_by(|a, b| a.name.cmp(b.name));
                fs::rename(dir.path().join("c"), dir.path().join("b")).unwrap();
            }
            Event::Failed(failure) => failures.push((failure.path.to_owned(), failure.cause, failure.errno)),
            Event::Enter(directory) => assert!(!directory.path.ends_with("inner")),
            _ => {}
        }
    }
    let expected = [
        (dir.path().join("b"), Cause::Swapped, Errno::STALE.raw_os_error()),
        (dir.path().join("c"), Cause::Open, Errno::NOENT.raw_os_error()),
    ];
    assert_eq!(failures, expected);
}
