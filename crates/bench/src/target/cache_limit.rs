//! The limit of a backed tree's cache, which each thread enforces in turn.

use std::io;

use pando_mapfs::MapHandle;
use pando_vfs::Vfs;

/// Number of operations between two checks of the cache size by a thread.
pub(super) const EVERY: u32 = 128;

/// One thread's part in limiting the cache.
pub(super) struct CacheLimit<'a> {
    store: &'a MapHandle,
    /// Number of inodes that may stay.
    cache: u64,
    operations: u32,
}

impl<'a> CacheLimit<'a> {
    /// A limit of `cache` inodes for the cache over `store`.
    pub(super) fn new(store: &'a MapHandle, cache: u64) -> Self {
        Self { store, cache, operations: 0 }
    }

    /// Counts an operation, and evicts the excess every [`EVERY`] operations. Inodes in use stay.
    pub(super) fn enforce(&mut self, vfs: &Vfs) -> io::Result<()> {
        self.operations += 1;
        if self.operations.is_multiple_of(EVERY) {
            let excess = self.store.cached_inodes().saturating_sub(self.cache);
            if excess > 0 {
                vfs.evict(usize::try_from(excess).unwrap_or(usize::MAX))?;
            }
        }
        Ok(())
    }
}
