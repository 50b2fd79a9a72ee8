//! The additional state of a directory in a tree with a backing: its negative dentries and its
//! counters.

use std::sync::{
    Mutex,
    atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::{Detached, Guard, Node, Shared, SplitTable};

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
    negative: SplitTable<Name>,
    /// The number of negative dentries. Atomic: a single independent value.
    negative_count: AtomicUsize,
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
    /// The number of running operations whose change the backing may know while the cache does not.
    /// Atomic.
    pub changing: AtomicUsize,
    /// The space that the directory occupies in the backing, in units of 512 bytes. Atomic: a
    /// single independent value.
    blocks: AtomicU64,
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

    /// Whether the backing may know a change that the cache does not. Acquire: if not, the cache
    /// shows every change that has ended.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
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
        if self.negative_count.load(Ordering::Relaxed) >= NEGATIVE_MAX {
            self.clear_negative(guard);
        }
        let node = Detached::new(Name::new(name));
        // Counted before the insertion, so that a thread that removes it cannot decrement the count
        // first.
        let len = self.negative_count.fetch_add(1, Ordering::Relaxed) + 1;
        match self.negative.insert(hash, |negative| equal(negative.as_bytes(), name), node, guard) {
            Ok(_) => self.negative.adapt(len, false, guard),
            Err(_) => {
                self.negative_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes the negative dentry of a name that exists now. Called under the name lock, after the
    /// name was bound: a reader looks up bound names first.
    pub(crate) fn remove_negative(&self, hash: u64, name: &[u8], guard: &Guard) {
        if let Some(node) = self.negative.get(hash, |negative| equal(negative.as_bytes(), name), guard) {
            self.unlink_negative(node, guard);
        }
    }

    fn unlink_negative(&self, node: Shared<'_, Node<Name>>, guard: &Guard) {
        if self.negative.remove(node, guard).removed {
            let len = self.negative_count.fetch_sub(1, Ordering::Relaxed) - 1;
            self.negative.adapt(len, false, guard);
        }
    }

    pub(crate) fn clear_negative(&self, guard: &Guard) {
        for node in self.negative.iter_after(0, guard) {
            self.unlink_negative(node, guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::pin;

    use super::*;

    /// A thread that removes a negative dentry as soon as it is inserted finds it counted. Seen to
    /// fail: counted after the insertion.
    #[test]
    fn negative_dentry_is_counted_before_insertion() {
        const NOTERS: usize = 4;
        let backed = BackedDir::default();
        let note = || (0..200_000).for_each(|_| backed.insert_negative(0, b"negative", &pin()));
        std::thread::scope(|scope| {
            let noters: Vec<_> = (0..NOTERS).map(|_| scope.spawn(note)).collect();
            while noters.iter().any(|noter| !noter.is_finished()) {
                backed.clear_negative(&pin());
                // One that is inserted, and one for each thread whose insertion is refused.
                assert!(backed.negative_count.load(Ordering::Relaxed) <= 1 + NOTERS);
            }
        });
        backed.clear_negative(&pin());
        assert_eq!(backed.negative_count.load(Ordering::Relaxed), 0);
    }
}
