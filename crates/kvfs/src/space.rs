//! The space that contents occupy, and how much they may.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_vfs::{Error, Result};

/// The unit of [`Space`], as in `stat`.
pub(crate) const UNIT: u64 = 512;

/// See the module. In units of 512 bytes.
pub(crate) struct Space {
    limit: u64,
    /// Atomic: a single independent value.
    used: AtomicU64,
}

impl Space {
    pub(crate) const fn new(limit: u64, used: u64) -> Self {
        Self { limit, used: AtomicU64::new(used) }
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Before a write. Only the host knows how much a write will occupy. So writes at the same time
    /// may exceed the limit by their own size.
    ///
    /// # Errors
    /// ENOSPC: there is no room for so many bytes.
    pub(crate) fn expect_room(&self, bytes: u64) -> Result<()> {
        let left = self.limit.saturating_sub(self.used());
        if bytes.div_ceil(UNIT) > left { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Some contents occupied so much before, and so much now.
    pub(crate) fn settle(&self, before: u64, now: u64) {
        if now != before {
            self.used.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}
