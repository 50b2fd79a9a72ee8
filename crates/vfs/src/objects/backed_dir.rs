//! The additional state of a directory in a tree with a backing: its negative dentries and its
//! counters.

use std::sync::{
    Mutex,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use pando_sync::{Detached, Guard, HashTable, OwnLine, Striped};

use crate::{
    objects::statahead::{Ahead, Statahead},
    types::name::{Name, equal},
};

/// The largest number of negative dentries in a directory. When it is reached, all of them are
/// removed.
const NEGATIVE_MAX: usize = 4096;

/// The additional state of a directory in a tree with a backing.
#[derive(Default)]
pub(crate) struct BackedDir {
    /// The negative dentries. Lock-free; a name is inserted under its name lock.
    negative: HashTable<Name>,
    /// The operations whose change the backing may know while the cache does not.
    changing: OwnLine<Striped<Changing>>,
    /// The number of names that were loaded into the cache, minus the number of names that were
    /// dropped from it. Atomic: a single independent value.
    loaded: AtomicI64,
    /// How often a cached name was dropped from the cache without a change in the backing.
    /// Monotonic. Incremented under the name lock.
    dropped: AtomicU64,
    /// The count of reports at which the cached names were last valid. Atomic, with release and
    /// acquire: a thread that sees the count sees what was read.
    pub checked: AtomicU64,
    /// Whether its names are being looked up after a listing. Guarded by its own mutex, a leaf.
    pub statahead: Mutex<Statahead>,
    /// The same for the extended attributes of the names.
    pub xattr_ahead: Mutex<Statahead>,
    /// The number of threads that read ahead in this directory. Atomic: a hint.
    pub aheads: AtomicI64,
    /// How many inodes read-aheads have loaded, and how many of these were used. Atomic: hints.
    ahead_loaded: AtomicU64,
    ahead_used: AtomicU64,
    /// How many names scans have bound. Relaxed: a thread that compares two of these values has
    /// held the lock of the name in question before it reads the second.
    pub scanned: AtomicU64,
    /// The space that the directory occupies in the backing, in units of 512 bytes. Atomic: a
    /// single independent value.
    blocks: AtomicU64,
}

/// How many operations have begun to change a name, and how many have ended. Monotonic. An
/// operation may end on another stripe than it has begun on.
#[derive(Default)]
struct Changing {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl BackedDir {
    /// A directory of which nothing is cached yet.
    pub(crate) fn new(change_count: u64) -> Self {
        Self { checked: AtomicU64::new(change_count), ..Self::default() }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Relaxed);
    }

    /// A name was cached (`more`), or has left the cache. Relaxed: the number is a hint for the
    /// size of the table.
    pub(crate) fn loaded(&self, more: bool) {
        self.loaded.fetch_add(if more { 1 } else { -1 }, Ordering::Relaxed);
        if !more {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a cached name was dropped without a change. Relaxed: a thread that compares two of
    /// these values has held the lock of the name in question before it reads the second.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many more names are cached than were created here. It may be negative.
    pub(crate) fn loaded_len(&self) -> i64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// An operation begins to change a name. SeqCst: ordered before the commit to the backing.
    pub(crate) fn begin_change(&self) {
        let begun = &self.changing.0.mine().begun;
        let before = begun.load(Ordering::Relaxed);
        if begun.compare_exchange(before, before + 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.changing.0.note_contention();
            begun.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Release: the result of the change is in the cache before the mark is removed.
    pub(crate) fn end_change(&self) {
        self.changing.0.mine().ended.fetch_add(1, Ordering::Release);
    }

    /// Whether the backing may know a change that the cache does not. Acquire: if not, the cache
    /// shows every change that has ended.
    ///
    /// The ends are added up first. If as many operations have begun, all of these had ended at the
    /// instant between the two sums.
    pub(crate) fn is_changing(&self) -> bool {
        let sum = |count: fn(&Changing) -> &AtomicU64| {
            self.changing.0.all().map(|part| count(part).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        let ended = sum(|part| &part.ended);
        sum(|part| &part.begun) != ended
    }

    /// A read-ahead has loaded an inode, or such an inode is used for the first time.
    pub(crate) fn note_ahead(&self, is_used: bool) {
        if is_used { &self.ahead_used } else { &self.ahead_loaded }.fetch_add(1, Ordering::Relaxed);
    }

    /// What read-aheads have done so far.
    pub(crate) fn ahead(&self) -> Ahead {
        let [loaded, used] = [&self.ahead_loaded, &self.ahead_used].map(|count| count.load(Ordering::Relaxed));
        Ahead { loaded, used }
    }

    /// Whether threads read ahead in this directory.
    pub(crate) fn is_read_ahead(&self) -> bool {
        self.aheads.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_negative(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.negative.get(hash, |negative| equal(negative.as_bytes(), name), guard).is_some()
    }

    /// Inserts a negative dentry. The caller holds the name lock.
    pub(crate) fn insert_negative(&self, hash: u64, name: &[u8], guard: &Guard) {
        if self.negative.is_time_to_count() && self.negative.len() >= NEGATIVE_MAX {
            self.clear_negative(guard);
        }
        let node = Detached::new(Name::new(name));
        // An error: it is there already.
        let _ = self.negative.insert(hash, |negative| equal(negative.as_bytes(), name), node, guard);
    }

    /// Removes the negative dentry of a name that exists now. Called under the name lock, after the
    /// name was bound: a reader looks up bound names first.
    pub(crate) fn remove_negative(&self, hash: u64, name: &[u8], guard: &Guard) {
        if let Some(node) = self.negative.get(hash, |negative| equal(negative.as_bytes(), name), guard) {
            self.negative.remove(node, guard);
        }
    }

    pub(crate) fn clear_negative(&self, guard: &Guard) {
        let (all, _) = self.negative.batch(0, usize::MAX, guard);
        for node in all {
            self.negative.remove(node, guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use pando_sync::pin;

    use super::*;

    /// While operations begin and end on all stripes, and one is running throughout, the directory
    /// is changing. Afterwards it is not.
    #[test]
    fn change_that_is_running_is_seen() {
        let backed = BackedDir::default();
        backed.changing.0.inflate();
        backed.begin_change();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                while !done.load(Ordering::Relaxed) {
                    backed.begin_change();
                    backed.end_change();
                }
            };
            let threads = [scope.spawn(busy), scope.spawn(busy)];
            assert!((0..100_000).all(|_| backed.is_changing()));
            done.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        backed.end_change();
        assert!(!backed.is_changing());
    }

    #[test]
    fn negative_dentries_are_bounded() {
        let backed = BackedDir::default();
        let guard = pin();
        let add = |n: u64| backed.insert_negative(n << 20, n.to_string().as_bytes(), &guard);
        (0..NEGATIVE_MAX as u64).for_each(add);
        assert!(backed.is_negative(0, b"0", &guard));
        add(NEGATIVE_MAX as u64);
        assert_eq!((backed.is_negative(0, b"0", &guard), backed.negative.len()), (false, 1));
    }
}
