//! `LockGranularity`: adaptive lock granularity for the names of one directory.
//!
//! A lock for each name lets threads work in one directory in parallel. But names are hashed to the
//! stripes of [`crate::NameLocks`], which all directories share. A thread that is alone in its
//! directory would, for each new name, take a cache line that another core had last. So all names
//! of a directory have *one* lock, on one cache line, until two threads contend for it. Then the
//! lock is split: from then on each name has its own. (Counts and times do the same: they are in
//! one stripe until threads contend for it, see [`Striped`](crate::Striped).)
//!
//! ```text
//!  coarse --(a thread found the lock taken)--> contended --(its holder)--> split
//! ```
//!
//! A thread that changes a name gets its [`key`](LockGranularity::key), takes the lock of that key,
//! and checks that the key [`is_current`](LockGranularity::is_current). Two threads never hold the
//! lock of one name at the same time by current keys: two coarse keys are one lock, and so are two
//! keys of one name after the split. A coarse key is current only until the split, and the split is
//! made with the coarse lock held. So every thread that held the coarse lock before the split has
//! released it, and a coarse key taken after it is not current. A split lock never becomes coarse
//! again.
//!
//! A directory can also have one lock for ever ([`LockGranularity::whole`]), as in Linux.

use crate::{
    facade::{AtomicBool, Ordering},
    locks::name_locks::NameKey,
};

/// No name has this hash. It stands for all names of a directory.
const ALL: u64 = u64::MAX - 1;

impl NameKey {
    /// The key of all names of a directory, while they have one lock.
    #[must_use]
    pub const fn of_directory(dir: u64) -> Self {
        Self { dir, hash: ALL }
    }
}

/// How finely the names of one directory are locked.
#[derive(Debug)]
pub struct LockGranularity {
    /// One lock for ever. Immutable.
    whole: bool,
    /// A thread has found the lock taken. The next thread that holds it splits it.
    contended: AtomicBool,
    /// A lock for each name, for ever.
    split: AtomicBool,
}

impl LockGranularity {
    /// One lock for all names, until threads contend for it.
    #[must_use]
    pub fn coarse() -> Self {
        Self { whole: false, contended: AtomicBool::new(false), split: AtomicBool::new(false) }
    }

    /// One lock for all names, for ever.
    #[must_use]
    pub fn whole() -> Self {
        Self { whole: true, ..Self::coarse() }
    }

    /// A lock for each name, from the start: for locks that are held while a backing is asked.
    #[must_use]
    pub fn split() -> Self {
        Self { whole: false, contended: AtomicBool::new(true), split: AtomicBool::new(true) }
    }

    /// The key to lock for a name, by its hash and the number of its directory. When the lock is
    /// held, check that the key [`is_current`](LockGranularity::is_current).
    #[inline]
    #[must_use]
    pub fn key(&self, dir: u64, hash: u64) -> NameKey {
        // Acquire: sees what threads did under the coarse lock.
        let hash = if self.split.load(Ordering::Acquire) { hash } else { ALL };
        NameKey { dir, hash }
    }

    /// Whether the lock of `key`, which the caller holds, is the one that all threads take for that
    /// name. If not, the caller releases it and gets another key.
    #[inline]
    #[must_use]
    pub fn is_current(&self, key: NameKey) -> bool {
        // Relaxed: the split was made by a thread that held this lock, and `contended` was set
        // before.
        key.hash != ALL || !self.contended.load(Ordering::Relaxed) || self.split_now()
    }

    /// Splits the coarse lock, which the caller holds, if it is not split. Afterwards the coarse
    /// lock is not the name's lock.
    #[cold]
    fn split_now(&self) -> bool {
        // Release: publishes what was done under the coarse lock.
        self.split.store(true, Ordering::Release);
        false
    }

    /// A thread found the lock of some name here taken. The next thread that holds it splits it.
    #[cold]
    pub fn note_contention(&self) {
        // Loaded first, since it is on a cache line that all threads read. Relaxed: a request,
        // which orders nothing.
        if !self.whole && !self.contended.load(Ordering::Relaxed) {
            self.contended.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn contended_lock_is_split() {
        let granularity = LockGranularity::coarse();
        let [a, b] = [1, 2].map(|hash| granularity.key(7, hash));
        assert_eq!(a, b);
        assert_ne!(a, granularity.key(8, 1));
        assert!(granularity.is_current(a), "there was no contention");
        granularity.note_contention();
        let contended = granularity.key(7, 1);
        assert_eq!(contended, a, "other threads may hold the coarse lock");
        assert!(!granularity.is_current(contended));
        let [a, b] = [1, 2].map(|hash| granularity.key(7, hash));
        assert_ne!(a, b);
        assert!(granularity.is_current(a) && !granularity.is_current(contended));
        granularity.note_contention();
        assert_eq!(granularity.key(7, 1), a, "it stays split");
    }

    /// Seen to fail: contention that is noted.
    #[test]
    fn lock_of_a_whole_directory_is_never_split() {
        let granularity = LockGranularity::whole();
        for _ in 0..2 {
            let key = granularity.key(7, 1);
            assert_eq!(key, NameKey::of_directory(7));
            assert_eq!(key, granularity.key(7, 2));
            assert!(granularity.is_current(key));
            granularity.note_contention();
        }
    }

    #[test]
    fn lock_split_from_the_start_stays_split() {
        let granularity = LockGranularity::split();
        granularity.note_contention();
        assert_eq!(granularity.key(7, 1), NameKey { dir: 7, hash: 1 });
        assert!(granularity.is_current(granularity.key(7, 1)));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
