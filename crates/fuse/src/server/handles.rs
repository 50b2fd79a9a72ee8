//! Open files and directories by handle.
//!
//! The slab below takes keys at their word: one that was never handed out may name a free slot, and to ask for that, or to give it
//! back, breaks the slab (a panic, or one slot lent to two). So handles are not keys but keys made unrecognisable: a number that
//! nobody was given leads to a key of another thread, slot or generation, which the slab refuses, but for one guess in 2^40 or so.

use std::hash::{BuildHasher, RandomState};

use pando_vfs::{Error, File, Result};
use sharded_slab::Slab;

/// Reading a slot takes no lock.
pub(super) struct Handles {
    files: Slab<File>,
    /// A handle is the sum of its key and this,
    salt: u64,
    /// times this, which is odd, and so has
    factor: u64,
    /// an inverse modulo 2^64.
    inverse: u64,
}

impl Handles {
    pub(super) fn new() -> Self {
        let secrets = RandomState::new();
        let (salt, factor) = (secrets.hash_one(0), secrets.hash_one(1) | 1);
        Self { files: Slab::new(), salt, factor, inverse: inverse(factor) }
    }

    /// Keeps an open file, and tells its handle. It is shown to `first` before anybody else can come to it.
    ///
    /// # Errors
    /// ENOMEM when there are too many.
    pub(super) fn keep(&self, file: File, first: impl FnOnce(&File)) -> Result<u64> {
        let slot = self.files.vacant_entry().ok_or(Error::NoMemory)?;
        first(&file);
        let key = slot.key() as u64;
        slot.insert(file);
        Ok(key.wrapping_add(self.salt).wrapping_mul(self.factor))
    }

    fn key(&self, handle: u64) -> Result<usize> {
        let key = handle.wrapping_mul(self.inverse).wrapping_sub(self.salt);
        usize::try_from(key).map_err(|_| Error::BadHandle)
    }

    /// Runs `with` with an open file.
    ///
    /// # Errors
    /// EBADF; those of `with`.
    pub(super) fn with<T>(&self, handle: u64, with: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let file = self.files.get(self.key(handle)?).ok_or(Error::BadHandle)?;
        with(&file)
    }

    /// Gives an open file up.
    ///
    /// # Errors
    /// EBADF.
    pub(super) fn take(&self, handle: u64) -> Result<File> {
        self.files.take(self.key(handle)?).ok_or(Error::BadHandle)
    }
}

/// What an odd number is to be multiplied by to give 1: Newton's method; each step makes twice as many bits right, and three are right
/// from the start.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

#[cfg(test)]
mod tests;
