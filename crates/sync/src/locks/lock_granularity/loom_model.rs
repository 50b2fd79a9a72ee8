//! Model of [`LockGranularity`]. It has been seen to fail on the bugs that its comment names.

use super::*;
use crate::{facade::AtomicU64, locks::name_locks::NameLocks};
use loom::{cell::UnsafeCell, sync::Arc, thread};

struct World {
    locks: NameLocks,
    granularity: LockGranularity,
    hashes: [u64; 2],
    /// Guarded by the locks of the two names.
    made: [UnsafeCell<u32>; 2],
    /// Written before a lock is tried and while it is held. loom switches threads only where their
    /// accesses conflict, and the release of a lock is no such place. Without this, no thread would
    /// find a lock taken. It orders nothing.
    meeting: AtomicU64,
}

// SAFETY: `made` is accessed with the lock of its name held, which is what the model checks.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    /// Changes names as the tree does: tries the locks, and waits for them before it tries again.
    fn change(&self, names: &[usize]) {
        let mut waited = None;
        loop {
            self.meeting.fetch_add(1, Ordering::Relaxed);
            let keys: Vec<NameKey> = names.iter().map(|&name| self.granularity.key(1, self.hashes[name])).collect();
            // The lock that it waited for is released before others are taken, if it is not the one
            // wanted now.
            let held = waited.take().filter(|(locked, _)| *locked == keys).map(|(_, guard)| guard);
            let Some(guard) = held.or_else(|| self.locks.try_lock(&keys)) else {
                self.granularity.note_contention();
                waited = Some((keys.clone(), self.locks.lock(&keys)));
                continue;
            };
            if keys.iter().all(|&key| self.granularity.is_current(key)) {
                self.meeting.fetch_add(1, Ordering::Relaxed);
                // SAFETY: loom checks that no other thread is here.
                names.iter().for_each(|&name| self.made[name].with_mut(|made| unsafe { *made += 1 }));
                return drop(guard);
            }
        }
    }
}

/// The hashes of two names with locks of their own, which differ from the coarse lock.
fn names_apart(locks: &NameLocks, granularity: &LockGranularity) -> [u64; 2] {
    let apart = |a: NameKey, b: NameKey| {
        let _a = locks.lock(&[a]);
        locks.try_lock(&[b]).is_some()
    };
    let own = |hash| NameKey { dir: 1, hash };
    let all = granularity.key(1, 0);
    let first = (0..).find(|&hash| apart(own(hash), all)).expect("names have other stripes");
    let second =
        (0..).find(|&hash| apart(own(hash), all) && apart(own(hash), own(first))).expect("names have a third stripe");
    [first, second]
}

/// Each thread changes its names, some of which are the same. No two threads are at one name at the
/// same time, and no change is lost.
fn each_changes(names: [&'static [usize]; 3], contended: bool) {
    loom::model(move || {
        let (locks, granularity) = (NameLocks::new(4), LockGranularity::coarse());
        let world = Arc::new(World {
            hashes: names_apart(&locks, &granularity),
            locks,
            granularity,
            made: [0, 0].map(UnsafeCell::new),
            meeting: AtomicU64::new(0),
        });
        if contended {
            world.granularity.note_contention();
        }
        let others = [names[0], names[1]].map(|names| {
            let world = world.clone();
            thread::spawn(move || world.change(names))
        });
        world.change(names[2]);
        others.into_iter().for_each(|other| other.join().expect("ends"));
        for (name, made) in world.made.iter().enumerate() {
            let changes = names.iter().filter(|names| names.contains(&name)).count();
            // SAFETY: the other threads have ended.
            assert_eq!(made.with(|made| unsafe { *made }), changes as u32);
        }
    });
}

/// Seen to fail: a key taken for current although another thread has split the lock; a split by the
/// thread that found the lock taken, without the lock; a split that does not release what was done
/// before, or a key that is loaded without acquiring that.
#[test]
fn locked_name_excludes_other_threads() {
    each_changes([&[0], &[0], &[0]], false);
    each_changes([&[0], &[1], &[0]], false);
    each_changes([&[0], &[0], &[1]], true);
}

/// The same with two names at once, which have one lock and later two.
#[test]
fn two_locked_names_exclude_other_threads() {
    each_changes([&[0, 1], &[0], &[]], true);
    each_changes([&[0, 1], &[1, 0], &[]], true);
    each_changes([&[0, 1], &[1], &[0]], false);
}
