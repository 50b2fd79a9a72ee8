//! Open files and directories by handle.
//!
//! The slab does not check its keys. A key that it has never returned may name a free slot, and its
//! use would break the slab (a panic, or one slot used twice). So a handle is not a key but a
//! scrambled key. A number that is not a handle gives a key of another thread, slot or generation,
//! which the slab refuses, except for one guess in about 2^40.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use pando_vfs::{Error, File, Result};
use sharded_slab::Slab;

/// The open files. Reading a slot takes no lock.
pub(super) struct Handles {
    /// A request holds the file, and not the slot. Its caller may be killed and close the handle
    /// while the request still waits for a source, and the slab would spin until the slot is free.
    files: Slab<Arc<File>>,
    /// A handle is `(key + salt) * factor`, modulo 2^64.
    salt: u64,
    /// An odd number, so that it has an inverse.
    factor: u64,
    /// The inverse of `factor` modulo 2^64.
    inverse: u64,
}

impl Handles {
    pub(super) fn new() -> Self {
        let secrets = RandomState::new();
        let (salt, factor) = (secrets.hash_one(0), secrets.hash_one(1) | 1);
        Self { files: Slab::new(), salt, factor, inverse: inverse(factor) }
    }

    /// Stores an open file, and returns its handle. Calls `first` before any other thread can reach
    /// the file.
    ///
    /// # Errors
    /// ENOMEM if there are too many, and those of `first`.
    pub(super) fn keep(&self, file: File, first: impl FnOnce(&File) -> Result<()>) -> Result<u64> {
        let slot = self.files.vacant_entry().ok_or(Error::NoMemory)?;
        first(&file)?;
        let key = slot.key() as u64;
        slot.insert(Arc::new(file));
        Ok(key.wrapping_add(self.salt).wrapping_mul(self.factor))
    }

    fn key(&self, handle: u64) -> Result<usize> {
        let key = handle.wrapping_mul(self.inverse).wrapping_sub(self.salt);
        usize::try_from(key).map_err(|_| Error::BadHandle)
    }

    /// Calls `with` with an open file.
    ///
    /// # Errors
    /// EBADF; those of `with`.
    pub(super) fn with<T>(&self, handle: u64, with: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let file = Arc::clone(&*self.files.get(self.key(handle)?).ok_or(Error::BadHandle)?);
        with(&file)
    }

    /// Removes an open file, and returns it. It is closed when no request uses it any more.
    ///
    /// # Errors
    /// EBADF.
    pub(super) fn take(&self, handle: u64) -> Result<Arc<File>> {
        self.files.take(self.key(handle)?).ok_or(Error::BadHandle)
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's method. Each step doubles the number of
/// correct bits, and three are correct at the start.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

#[cfg(test)]
mod tests;
