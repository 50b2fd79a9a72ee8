//! Where trees come from: the interface between the name space and a driver.

use crate::{Result, types::StatFs};

/// How a driver wants to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Calls may wait (for a disk, a network): they are then made without a reclamation guard.
    pub may_wait: bool,
}

/// A driver: what stands behind a superblock.
///
/// A driver knows nothing of paths, open files or other drivers. The name space calls it with numbers and names, and
/// never twice at the same time for the same name.
pub trait Driver: Send + Sync + 'static {
    /// How it wants to be used; asked once.
    fn caps(&self) -> Caps;

    /// Space and inodes, all and free.
    fn statfs(&self) -> StatFs;

    /// Pays for one inode. Called before the inode is made.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if the limit is reached at an instant of the call.
    fn charge_inode(&self) -> Result<()>;

    /// Gives back what [`Driver::charge_inode`] took: the inode is gone, or was never made.
    fn release_inode(&self);

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the store answers.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// The contents of a new regular file, made when they are first needed.
    fn data(&self, ino: u64) -> Box<dyn FileData>;
}

/// One file's bytes.
///
/// Called with the inode's data lock held: shared for `&self`, exclusive for `&mut self`. Offsets and sizes were
/// checked before: nothing here goes beyond `i64::MAX`. Dropping it gives the space back.
pub trait FileData: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset` of a file of `size` bytes: zeros in holes, fewer bytes only at the end.
    ///
    /// # Errors
    /// What the store answers.
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize>;

    /// Writes at `offset`; returns how many bytes were written.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when not one byte could be written.
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize>;

    /// Changes the size: frees what lies beyond, and what is grown into later reads as zeros.
    ///
    /// # Errors
    /// What the store answers.
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()>;

    /// Makes sure that writing to the range will not run out of space.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]; what was allocated before stays allocated.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Makes a hole: the range reads as zeros and whole pages of it are freed.
    ///
    /// # Errors
    /// What the store answers.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// The first offset at or after `offset` with data, in a file of `size` bytes; none if only a hole follows.
    fn seek_data(&self, offset: u64, size: u64) -> Option<u64>;

    /// The first offset at or after `offset` in a hole; the end of the file counts as one.
    fn seek_hole(&self, offset: u64, size: u64) -> u64;

    /// Occupied space in units of 512 bytes.
    fn blocks(&self) -> u64;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the store answers.
    fn sync(&mut self) -> Result<()>;
}
