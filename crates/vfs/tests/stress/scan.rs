//! P10: a scan returns each name that stays bound exactly once, whatever else happens.

use std::collections::HashMap;

use pando_vfs::{At, Error, OpenFlags, RenameFlags};

use crate::{
    harness::{THREADS, Worker, alone, run_workers, scale, seed},
    tree::Tree,
};

/// The number of names that stay bound throughout.
const STABLE: usize = 300;
/// The number of names that each churning thread makes and removes.
const PASSING: usize = 200;

fn stable(i: usize) -> String {
    format!("/d/stable{i}")
}

/// One whole scan with buffers of random size. Returns how often each name was returned.
fn scan(tree: &Tree, me: &mut Worker<'_>) -> HashMap<String, usize> {
    let mut count = HashMap::new();
    let mut cookie = 0;
    loop {
        // A new handle each time: a cookie belongs to the directory, not to the handle.
        let dir = tree.vfs.open(&tree.context, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).expect("opens");
        let (mut room, mut read) = (1 + me.rng.below(90), 0);
        dir.readdir(cookie, |entry| {
            if room == 0 {
                return false;
            }
            room -= 1;
            read += 1;
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            *count.entry(String::from_utf8_lossy(entry.name).into_owned()).or_insert(0) += 1;
            true
        })
        .expect("reads");
        if read == 0 {
            return count;
        }
    }
}

/// Makes and removes names, so that the table grows and shrinks during the scans.
fn churn(tree: &Tree, me: &mut Worker<'_>, rounds: usize) {
    let path = |id: usize, i: usize| format!("/d/passing{id}.{i}");
    for _ in 0..rounds {
        let count = me.rng.below(PASSING);
        for i in 0..count {
            if !me.go_on() {
                return;
            }
            tree.touch(&path(me.id, i));
        }
        for i in 0..count {
            if !me.go_on() {
                return;
            }
            tree.vfs.unlink(&tree.context, At::Cwd, path(me.id, i)).expect("removed");
        }
    }
}

/// Changes the dentries that stable names show, in place.
fn replace(tree: &Tree, me: &mut Worker<'_>, rounds: usize) {
    for round in 0..rounds * 40 {
        if !me.go_on() {
            return;
        }
        let target = stable(me.rng.below(STABLE));
        if me.rng.one_in(2) {
            let temp = format!("/d/temp{}.{round}", me.id);
            tree.touch(&temp);
            let moved = tree.vfs.rename(&tree.context, At::Cwd, &temp, At::Cwd, &target, RenameFlags::empty());
            assert_eq!(moved, Ok(()));
        } else {
            let other = stable(me.rng.below(STABLE));
            let swapped = tree.vfs.rename(&tree.context, At::Cwd, &other, At::Cwd, &target, RenameFlags::EXCHANGE);
            assert_eq!(swapped, Ok(()));
        }
    }
}

/// Seen to fail: a scan that resumes one entry too late after a full buffer.
#[test]
fn p10_stable_names_are_returned_exactly_once() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(30));
    tree.mkdir("/d");
    for i in 0..STABLE {
        tree.touch(&stable(i));
    }
    run_workers("p10_stable_names_are_returned_exactly_once", THREADS, seed, |me| match me.id % 4 {
        0 | 1 => churn(&tree, me, rounds),
        2 => replace(&tree, me, rounds),
        _ => {
            for _ in 0..rounds * 3 {
                if !me.go_on() {
                    return;
                }
                let count = scan(&tree, me);
                for name in (0..STABLE).map(|i| stable(i)[3..].to_owned()).chain([".".into(), "..".into()]) {
                    assert_eq!(count.get(&name), Some(&1), "{name}");
                }
            }
        }
    });
    let mut left: Vec<String> = tree.list(At::Cwd, "/d").into_iter().map(|entry| entry.0).collect();
    left.sort();
    let mut expected: Vec<String> = (0..STABLE).map(|i| stable(i)[3..].to_owned()).collect();
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(tree.used(), (STABLE as u64 + 2, 0));
}

/// Attributes are returned with the names, and belong to them.
///
/// Seen to fail: the attributes of the entry before.
#[test]
fn p11_bulk_records_are_of_one_inode() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(60));
    tree.mkdir("/d");
    run_workers("p11_bulk_records_are_of_one_inode", THREADS, seed, |me| {
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            if me.id % 2 == 0 {
                for i in 0..10 {
                    let path = format!("/d/{}.{i}", me.id);
                    let made = tree.vfs.mkdir(&tree.context, At::Cwd, &path, 0o777);
                    assert!(made.is_ok() == (round % 2 == 0), "{made:?}");
                    if round % 2 == 1 {
                        assert_eq!(made.err(), Some(Error::Exists));
                        tree.vfs.rmdir(&tree.context, At::Cwd, &path).expect("removed");
                    }
                }
                continue;
            }
            let dir = tree.vfs.open(&tree.context, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).expect("opens");
            dir.readdir_plus(&tree.context, 0, |entry, plus| {
                if let Some((stat, dentry)) = plus {
                    assert_eq!((stat.ino, stat.kind, dentry.ino()), (entry.ino, entry.kind, entry.ino));
                    assert!(matches!(stat.nlink, 0 | 2), "{}", stat.nlink);
                }
                true
            })
            .expect("reads");
        }
    });
}
