//! The link count of an inode (protocol 6).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// The link count of anything but a directory: {count, linkable, linked} in one word (protocol 6).
pub(crate) struct Links(AtomicU64);

impl Links {
    /// No name was ever taken away, and the first may be given (`O_TMPFILE` without `O_EXCL`).
    const LINKABLE: u64 = 1 << 63;
    /// There has been more than one name at a time.
    const LINKED: u64 = 1 << 62;
    /// As many as ext4 allows would be 65000; tmpfs has no limit but the word.
    const MAX: u64 = u32::MAX as u64;

    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU64::new(u64::from(count)))
    }

    /// What the backing says.
    pub(crate) fn set(&self, count: u32) {
        // Relaxed: the flag alone is kept, which nobody takes away.
        self.0.store(u64::from(count) | (self.0.load(Ordering::Relaxed) & Self::LINKED), Ordering::Release);
    }

    /// A nameless file may be linked once it is open.
    pub(crate) fn allow(&self) {
        self.0.fetch_or(Self::LINKABLE, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u32 {
        (self.0.load(Ordering::Acquire) & Self::MAX) as u32
    }

    /// Whether the last name is gone, and there was more than one: those that were removed may still hold the inode, until they
    /// are reclaimed.
    pub(crate) fn are_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) & (Self::LINKED | Self::MAX) == Self::LINKED
    }

    /// One link more, before its name is inserted, if the count is one that will `do`; ENOENT when the last name is gone for
    /// good.
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
            // LINKABLE stays: whether this becomes a name is not known yet.
            let linked = if word & Self::MAX > 0 { Self::LINKED } else { 0 };
            match self.0.compare_exchange_weak(word, (word + 1) | linked, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(true),
                Err(now) => word = now,
            }
        }
    }

    /// Takes back an [`Links::up`] whose name could not be made: a file that may get its first name still may. Says how many
    /// there were.
    pub(crate) fn undo_up(&self) -> u32 {
        let old = self.0.fetch_sub(1, Ordering::AcqRel) & Self::MAX;
        debug_assert!(old > 0, "a link was taken back that was never counted");
        old as u32
    }

    /// One link less, after its name was removed. There has been a name, so the last one is gone for good. Says how many
    /// there were.
    pub(crate) fn down(&self) -> u32 {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            debug_assert!(word & Self::MAX > 0, "a link was taken away that was never there");
            let new = (word & Self::MAX).saturating_sub(1) | (word & Self::LINKED);
            // SeqCst: with `Inode::set_numbered`.
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
    fn there_are_as_many_links_as_can_be_counted() {
        let links = Links::new(u32::MAX - 1);
        assert_eq!((links.up(|_| true), links.up(|_| true)), (Ok(true), Err(Error::TooManyLinks)));
        assert_eq!((links.count(), links.down(), links.up(|_| true)), (u32::MAX, u32::MAX, Ok(true)));
    }
}
