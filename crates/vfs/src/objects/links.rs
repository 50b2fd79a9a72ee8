//! The link count of an inode (protocol 6).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// The link count of anything but a directory: count, `LINKABLE` and `LINKED` in one atomic word
/// (protocol 6). Analogous to `i_nlink` with `I_LINKABLE`.
pub(crate) struct Links(AtomicU64);

impl Links {
    /// No name was ever removed, and the first one may be created (`O_TMPFILE` without `O_EXCL`).
    const LINKABLE: u64 = 1 << 63;
    /// The file has had more than one name at a time, or was anonymous: it has had an alias.
    const LINKED: u64 = 1 << 62;
    /// The maximum is that of the word. tmpfs has no other limit either; ext4 allows 65000.
    const MAX: u64 = u32::MAX as u64;

    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU64::new(u64::from(count)))
    }

    /// Stores the count that the backing reports. The caller holds the lock of the inode, as do
    /// those who change the count of an inode that has a backing.
    pub(crate) fn set(&self, count: u32) {
        let word = self.0.load(Ordering::Relaxed);
        // If others have removed the last name, that is final.
        let lost_all = word & Self::MAX > 0 && count == 0;
        let kept = if lost_all { Self::LINKED } else { Self::LINKED | Self::LINKABLE };
        self.0.store(u64::from(count) | (word & kept), Ordering::Release);
    }

    /// Allows the first name of an anonymous file (O_TMPFILE).
    pub(crate) fn allow_first_link(&self) {
        self.0.fetch_or(Self::LINKABLE, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u32 {
        (self.0.load(Ordering::Acquire) & Self::MAX) as u32
    }

    /// Whether it has a name, or is an anonymous file that may get its first one.
    pub(crate) fn has_or_may_get_name(&self) -> bool {
        self.0.load(Ordering::Acquire) & (Self::MAX | Self::LINKABLE) != 0
    }

    /// Whether the last name was removed and the file has had aliases. Then removed aliases
    /// may still hold the inode, until they are reclaimed.
    pub(crate) fn all_removed(&self) -> bool {
        self.0.load(Ordering::Acquire) & (Self::LINKED | Self::MAX) == Self::LINKED
    }

    /// Adds one before the name is inserted, if `will_do` accepts the present count. Returns
    /// whether it did.
    ///
    /// # Errors
    /// ENOENT if the last name has been removed for good. EMLINK.
    pub(crate) fn up(&self, will_do: impl Fn(u64) -> bool) -> Result<bool> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if word & Self::MAX == 0 && word & Self::LINKABLE == 0 {
                return Err(Error::NoEntry);
            }
            if word & Self::MAX == Self::MAX {
                return Err(Error::TooManyLinks);
            }
            if !will_do(word & Self::MAX) {
                return Ok(false);
            }
            // LINKABLE stays, because the creation of the name may still fail.
            match self.0.compare_exchange_weak(word, (word + 1) | Self::LINKED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(true),
                Err(now) => word = now,
            }
        }
    }

    /// Undoes an [`Links::up`] after the name could not be created, and returns the count before.
    /// An anonymous file may still get its first name.
    pub(crate) fn undo_up(&self) -> u32 {
        let old = self.0.fetch_sub(1, Ordering::AcqRel) & Self::MAX;
        debug_assert!(old > 0, "a link was taken back that was never counted");
        old as u32
    }

    /// Subtracts one after a name was removed, and returns the count before. It clears LINKABLE:
    /// there has been a name, so the removal of the last one is final.
    pub(crate) fn down(&self) -> u32 {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            debug_assert!(word & Self::MAX > 0, "a link was taken away that was never there");
            let new = (word & Self::MAX).saturating_sub(1) | (word & Self::LINKED);
            // SeqCst: pairs with `Inode::set_numbered`.
            match self.0.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(old) => return (old & Self::MAX) as u32,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_count_is_limited_to_u32_max() {
        let links = Links::new(u32::MAX - 1);
        assert_eq!((links.up(|_| true), links.up(|_| true)), (Ok(true), Err(Error::TooManyLinks)));
        assert_eq!((links.count(), links.down(), links.up(|_| true)), (u32::MAX, u32::MAX, Ok(true)));
    }
}
