//! How often look-ups missed the cache, and what became of the inodes that were read ahead.

use pando_sync::{Counter, Striped};

/// Counts of the cache of a tree with a backing, since it was mounted ([`Vfs::cache_counts`]). A
/// tree in memory counts nothing.
///
/// [`Vfs::cache_counts`]: crate::Vfs::cache_counts
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Inodes that are cached now.
    pub inodes: usize,
    /// Names that operations wanted and the cache did not have.
    pub misses: u64,
    /// Inodes that read-ahead has loaded.
    pub read_ahead: u64,
    /// Of these, inodes that operations have found in the cache: the hits of read-ahead.
    pub read_ahead_used: u64,
    /// Of these, inodes that read-ahead has loaded in vain: they were evicted before an operation
    /// wanted them, or were dropped because the directory had changed.
    pub read_ahead_wasted: u64,
}

impl CacheCounts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            inodes: self.inodes + other.inodes,
            misses: self.misses + other.misses,
            read_ahead: self.read_ahead + other.read_ahead,
            read_ahead_used: self.read_ahead_used + other.read_ahead_used,
            read_ahead_wasted: self.read_ahead_wasted + other.read_ahead_wasted,
        }
    }
}

/// The counts of a tree.
#[derive(Default)]
pub(crate) struct Counts {
    pub misses: Count,
    pub ahead: Count,
    pub ahead_used: Count,
    pub ahead_wasted: Count,
}

impl Counts {
    /// The counts so far, beside the number of inodes that are cached now.
    pub(crate) fn get(&self, inodes: usize) -> CacheCounts {
        CacheCounts {
            inodes,
            misses: self.misses.get(),
            read_ahead: self.ahead.get(),
            read_ahead_used: self.ahead_used.get(),
            read_ahead_wasted: self.ahead_wasted.get(),
        }
    }
}

/// A count for statistics, which many threads add to.
pub(crate) struct Count(Striped<Counter>);

impl Default for Count {
    fn default() -> Self {
        Self(Striped::new(Counter::default()))
    }
}

impl Count {
    pub(crate) fn add(&self, n: u64) {
        if self.0.mine().add(n) {
            self.0.note_contention();
        }
    }

    fn get(&self) -> u64 {
        Counter::estimate(self.0.all())
    }
}
