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
mod tests {
    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs};

    use super::*;

    #[test]
    fn odd_numbers_have_inverses() {
        for odd in [1, 3, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            assert_eq!(odd.wrapping_mul(inverse(odd)), 1);
        }
    }

    #[test]
    fn what_nobody_was_given_is_refused_and_breaks_nothing() {
        let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
        let context = Context::new(&vfs, Credentials::root());
        let open = |name: &str| {
            let flags = OpenFlags::CREAT | OpenFlags::WRONLY;
            vfs.open(&context, At::Cwd, name, flags, 0o600).unwrap()
        };
        let handles = Handles::new();
        let gone = handles.keep(open("gone"), |_| ()).unwrap();
        handles.take(gone).unwrap();
        let refused = |handle| {
            assert_eq!(handles.with(handle, |_| Ok(())), Err(Error::BadHandle));
            assert_eq!(handles.take(handle).err(), Some(Error::BadHandle));
        };
        refused(gone);
        (0..10_000).for_each(refused);
        (0..64).for_each(|bit| refused(gone ^ 1 << bit));
        let kept: Vec<u64> =
            ["a", "b", "c"].into_iter().map(|name| handles.keep(open(name), |_| ()).unwrap()).collect();
        let inodes: Vec<u64> =
            kept.iter().map(|&handle| handles.with(handle, |file| Ok(file.stat().ino)).unwrap()).collect();
        assert!(inodes[0] != inodes[1] && inodes[1] != inodes[2], "{inodes:?}");
    }
}
