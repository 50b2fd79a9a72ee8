//! The space that an inode occupies in a backing.

use std::sync::atomic::{AtomicU32, Ordering};

/// The space that an inode occupies in a backing, in units of 512 bytes. 0 in memory. In four
/// bytes, which every kind of body has to spare: a file of more than 2 TiB has its
/// [`FileState`](super::file_state::FileState) for this. Atomic: a single independent value.
#[derive(Default)]
pub(crate) struct StoredBlocks(AtomicU32);

impl StoredBlocks {
    /// Stores the value. False if it is too large.
    pub(crate) fn set(&self, blocks: u64) -> bool {
        let fits = u32::try_from(blocks);
        self.0.store(fits.unwrap_or(u32::MAX), Ordering::Relaxed);
        fits.is_ok()
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed).into()
    }
}
