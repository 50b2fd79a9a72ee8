//! P2 and P5: names in one directory, and names against the removal of their directory.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use pando_vfs::{At, Error, OpenFlags, RenameFlags, Walk};

use crate::{
    harness::{THREADS, Worker, alone, run_workers, scale, seed},
    tree::{FOLLOW, NEW, Tree},
};

/// All threads make, move and remove names of their own in one directory. Each operation succeeds,
/// as it would without other threads.
///
/// Seen to fail: one entry in a thousand not counted.
#[test]
fn p2_own_names_in_one_directory() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(60));
    tree.mkdir("/d");
    run_workers("p2_own_names_in_one_directory", THREADS, seed, |me| {
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            let count = 1 + me.rng.below(40);
            let path = |kind: &str, i: usize| format!("/d/{kind}.{}.{round}.{i}", me.id);
            let inos: Vec<u64> = (0..count).map(|i| tree.touch(&path("a", i))).collect();
            for (i, ino) in inos.iter().enumerate() {
                let (old, new) = (path("a", i), path("b", i));
                tree.vfs.rename(&tree.context, At::Cwd, &old, At::Cwd, &new, RenameFlags::NOREPLACE).expect("moved");
                assert_eq!(tree.ino(&old), Err(Error::NoEntry));
                assert_eq!(tree.ino(&new), Ok(*ino));
            }
            // The names of the last round stay, for the count at the end.
            for i in 0..if round + 1 == rounds { count - 1 } else { count } {
                tree.vfs.unlink(&tree.context, At::Cwd, path("b", i)).expect("removed");
            }
        }
    });
    let left = tree.list(At::Cwd, "/d");
    assert_eq!(left.len(), THREADS);
    let stat = tree.vfs.stat(&tree.context, At::Cwd, "/d", FOLLOW).expect("there");
    assert_eq!((stat.nlink, stat.size), (2, 20 * (2 + THREADS as u64)));
    assert_eq!(tree.used(), (2 + THREADS as u64, 0));
    tree.remove_below("/d");
    assert_eq!(tree.used(), (2, 0));
}

const DIRS: [&str; 2] = ["/d0", "/d1"];

/// The state that the threads of the P5 test share.
struct Ledger {
    tree: Tree,
    /// The current round of each creator.
    attempts: [AtomicU64; THREADS],
    /// Names whose creator got an error.
    refused: Mutex<HashSet<String>>,
    /// Names that another thread has seen.
    seen: Mutex<HashSet<String>>,
}

/// All kinds of creates in directories that are continuously removed and replaced.
#[test]
fn p5_creates_against_removals_of_their_directory() {
    let _alone = alone();
    let (seed, rounds) = (seed(), scale(4000));
    let ledger = Ledger {
        tree: Tree::new(),
        attempts: [const { AtomicU64::new(0) }; THREADS],
        refused: Mutex::default(),
        seen: Mutex::default(),
    };
    for dir in DIRS {
        ledger.tree.mkdir(dir);
    }
    for id in 0..THREADS {
        ledger.tree.mkdir(&format!("/s{id}"));
        ledger.tree.touch(&format!("/s{id}/file"));
    }
    // With few or busy cores, creators, removers and watchers may not run at the same time. Such a
    // run shows nothing, so it is repeated.
    let met = (0..100).find_map(|again| {
        run_workers("p5_creates_against_removals_of_their_directory", THREADS, seed.wrapping_add(again), |me| {
            match me.id % 4 {
                0 => ledger.remove(me, rounds),
                1 => ledger.watch(me, rounds),
                _ => ledger.create(me, rounds),
            }
        });
        let names = [&ledger.refused, &ledger.seen].map(|names| std::mem::take(&mut *names.lock().expect("whole")));
        names.iter().all(|names| !names.is_empty()).then_some(names)
    });
    let [refused, seen] = met.expect("they meet at last");
    let both: Vec<_> = refused.intersection(&seen).collect();
    assert!(both.is_empty(), "seen by others, although their creators were refused: {both:?}");
    let tree = &ledger.tree;
    tree.remove_below("/");
    let stat = tree.vfs.stat(&tree.context, At::Cwd, "/", FOLLOW).expect("there");
    assert_eq!((stat.nlink, stat.size), (2, 40));
    assert_eq!(tree.used(), (1, 0), "nothing is left over");
}

impl Ledger {
    /// Makes a name in one of four ways. The name stays until this thread removes it.
    fn create(&self, me: &mut Worker<'_>, rounds: usize) {
        let (tree, context) = (&self.tree, &self.tree.context);
        let (file, moved) = (format!("/s{}/file", me.id), format!("/s{}/moved", me.id));
        let mut refused = Vec::new();
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            self.attempts[me.id].store(round as u64, Ordering::Relaxed);
            let name = format!("{}.{round}", me.id);
            let path = format!("{}/{name}", me.rng.pick(&DIRS));
            let made = match round % 4 {
                0 => tree.vfs.open(context, At::Cwd, &path, NEW, 0o644).map(|file| file.dentry().ino()),
                1 => tree.vfs.mkdir(context, At::Cwd, &path, 0o777).map(|dentry| dentry.ino()),
                2 => tree.vfs.link(context, At::Cwd, &file, At::Cwd, &path, FOLLOW).map(|dentry| dentry.ino()),
                _ => {
                    let ino = tree.ino(&moved).unwrap_or_else(|_| tree.touch(&moved));
                    let flags = if me.rng.one_in(2) { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
                    let result = tree.vfs.rename(context, At::Cwd, &moved, At::Cwd, &path, flags);
                    let there = tree.ino(&moved);
                    assert_eq!(there, if result.is_ok() { Err(Error::NoEntry) } else { Ok(ino) }, "the old name");
                    result.map(|()| ino)
                }
            };
            match made {
                Ok(ino) => {
                    assert_eq!(tree.ino(&path), Ok(ino), "{path} vanished");
                    let gone = if round % 4 == 1 {
                        tree.vfs.rmdir(context, At::Cwd, &path)
                    } else {
                        tree.vfs.unlink(context, At::Cwd, &path)
                    };
                    assert_eq!(gone, Ok(()), "{path} vanished");
                }
                Err(error) => {
                    assert_eq!(error, Error::NoEntry, "{path}");
                    refused.push(name);
                }
            }
        }
        self.refused.lock().expect("whole").extend(refused);
    }

    /// Removes directories, by rmdir and by a rename of an empty one over them. Nothing can be made
    /// in the removed one.
    fn remove(&self, me: &mut Worker<'_>, rounds: usize) {
        let (tree, context) = (&self.tree, &self.tree.context);
        let spare = format!("/spare{}", me.id);
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            let path = me.rng.pick(&DIRS);
            let Ok(handle) = tree.vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0) else {
                let made = tree.vfs.mkdir(context, At::Cwd, path, 0o777);
                assert!(matches!(made, Ok(_) | Err(Error::Exists)), "{made:?}");
                continue;
            };
            let removed = if me.rng.one_in(3) {
                if tree.ino(&spare).is_err() {
                    tree.mkdir(&spare);
                }
                tree.vfs.rename(context, At::Cwd, &spare, At::Cwd, path, RenameFlags::empty())
            } else {
                tree.vfs.rmdir(context, At::Cwd, path)
            };
            assert!(matches!(removed, Ok(()) | Err(Error::NotEmpty | Error::NoEntry)), "{removed:?}");
            // Another directory may have had this name meanwhile. But a removed directory stays
            // removed.
            if handle.stat().nlink == 0 {
                let at = At::Dir(handle.dentry());
                let name = format!("late.{}.{round}", me.id);
                let old = format!("/s{}/file", me.id);
                let made = [
                    tree.vfs.mkdir(context, at, &name, 0o777).map(drop),
                    tree.vfs.open(context, at, &name, NEW, 0o644).map(drop),
                    tree.vfs.link(context, At::Cwd, &old, at, &name, FOLLOW).map(drop),
                    tree.vfs.rename(context, At::Cwd, &old, at, &name, RenameFlags::empty()),
                ];
                assert_eq!(made, [Err(Error::NoEntry); 4], "made in a removed directory");
                assert_eq!(handle.readdir(0, |_| true), Err(Error::NoEntry));
                assert_eq!(handle.stat().nlink, 0, "risen from the dead");
            }
        }
    }

    /// Looks for names that are being made, and lists directories.
    fn watch(&self, me: &mut Worker<'_>, rounds: usize) {
        let (tree, context) = (&self.tree, &self.tree.context);
        let mut seen = HashSet::new();
        for _ in 0..rounds * 4 {
            if !me.go_on() {
                return;
            }
            let (creator, dir) = (me.rng.below(THREADS), me.rng.pick(&DIRS));
            if me.rng.one_in(8) {
                let Ok(handle) = tree.vfs.open(context, At::Cwd, dir, OpenFlags::DIRECTORY, 0) else { continue };
                // ENOENT if the directory was removed meanwhile.
                let _ = handle.readdir(2, |entry| {
                    seen.insert(String::from_utf8_lossy(entry.name).into_owned());
                    true
                });
            } else {
                let ahead = me.rng.below(2) as u64;
                let name = format!("{creator}.{}", self.attempts[creator].load(Ordering::Relaxed) + ahead);
                if tree.vfs.stat(context, At::Cwd, format!("{dir}/{name}"), Walk::NOFOLLOW).is_ok() {
                    seen.insert(name);
                }
            }
        }
        self.seen.lock().expect("whole").extend(seen);
    }
}
