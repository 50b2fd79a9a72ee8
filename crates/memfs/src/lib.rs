//! The in-memory driver of pandofs: trees that live as long as their superblock.
//!
//! The namespace keeps names and attributes, and its cache *is* the tree. This driver adds the
//! contents of regular files ([`MemFs`] makes them, sparse, in pages of 4096 bytes), and two
//! limits, on pages and on inodes. A page is charged before it is allocated, and its charge is
//! released when it is freed. So the pages of all files together never exceed the limit, and a file
//! system is full when not one more page fits.
//!
//! ```
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_vfs::{Driver, Error};
//!
//! let memfs = MemFs::new(MemOptions::new().size_bytes(8192));
//! let mut data = memfs.data(2);
//! assert_eq!(data.write_at(b"far away", 1 << 60), Ok(8)); // a hole costs nothing
//! assert_eq!(data.write_at(&[1; 8192], 0), Ok(4096)); // only one more page fits
//! assert_eq!(data.write_at(&[1; 8192], 4096), Err(Error::NoSpace));
//! assert_eq!((memfs.statfs().blocks, memfs.statfs().bfree), (2, 0));
//! drop(data);
//! assert_eq!(memfs.statfs().bfree, 2);
//! ```
#![forbid(unsafe_code)]

mod data;
mod page;
mod space;

use std::sync::Arc;

pub use page::PAGE_BYTES;
use pando_vfs::{Charge, Driver, FileData, Result, StatFs};
pub use space::INODE_BYTES;

use crate::{data::MemData, space::Space};

/// How large a [`MemFs`] may grow. Without a limit, the machine's memory is the limit, and statfs
/// shows it.
///
/// ```
/// use pando_memfs::MemOptions;
///
/// let options = MemOptions::new().size_bytes(64 << 20).inodes(10_000);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct MemOptions {
    /// The size of all files in whole pages ([`PAGE_BYTES`]), where a partial page counts as one.
    /// The target of a symbolic link of 128 bytes or more costs a page too.
    pub size_bytes: Option<u64>,
    /// The number of inodes, the root directory included. As on tmpfs, a hard link costs an inode.
    /// Extended attributes cost an inode for each 1024 bytes of their names and values, and each
    /// attribute costs 40 bytes besides.
    pub inodes: Option<u64>,
}

impl MemOptions {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`MemOptions::size_bytes`].
    pub fn size_bytes(mut self, size_bytes: impl Into<Option<u64>>) -> Self {
        self.size_bytes = size_bytes.into();
        self
    }

    /// Sets [`MemOptions::inodes`].
    pub fn inodes(mut self, inodes: impl Into<Option<u64>>) -> Self {
        self.inodes = inodes.into();
        self
    }
}

/// A tree in memory: the driver to pass to `pando_vfs::Vfs::new`.
#[derive(Debug)]
pub struct MemFs {
    space: Arc<Space>,
}

impl MemFs {
    /// An empty tree. It costs nothing until it has an entry.
    #[must_use]
    pub fn new(options: MemOptions) -> Self {
        Self { space: Arc::new(Space::new(options)) }
    }

    /// Spreads the limits over the cores now, as contention would. For measurements with one
    /// thread.
    #[cfg(feature = "introspection")]
    #[doc(hidden)]
    #[must_use]
    pub fn force_contended(self) -> Self {
        self.space.spread();
        self
    }

    /// The bytes that the pages of all files occupy now. The number is exact if nothing changes
    /// meanwhile.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.space.used_pages() * PAGE_BYTES as u64
    }

    /// The total and the free space and inodes.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        self.space.statfs()
    }
}

impl Driver for MemFs {
    fn statfs(&self) -> Result<StatFs> {
        Ok(self.statfs())
    }

    fn charge(&self, what: Charge) -> Result<()> {
        self.space.charge(what)
    }

    fn release(&self, what: Charge) {
        self.space.release(what);
    }

    fn data(&self, _ino: u64) -> Box<dyn FileData> {
        Box::new(MemData::new(Arc::clone(&self.space)))
    }
}

#[cfg(test)]
mod tests {
    use pando_vfs::Error;

    use super::*;

    #[test]
    fn inodes_are_counted_exactly() {
        let memfs = MemFs::new(MemOptions::new().inodes(3));
        for _ in 0..3 {
            memfs.charge(Charge::Inode).unwrap();
        }
        assert_eq!(memfs.charge(Charge::Inode), Err(Error::NoSpace));
        assert_eq!(memfs.charge(Charge::Xattr(0)), Err(Error::NoSpace));
        assert_eq!((memfs.statfs().files, memfs.statfs().ffree), (3, 0));
        memfs.release(Charge::Inode);
        assert_eq!(memfs.statfs().ffree, 1);
        memfs.charge(Charge::Link).unwrap();
        assert_eq!(memfs.charge(Charge::Inode), Err(Error::NoSpace));
    }

    #[test]
    fn xattrs_are_charged_to_the_byte() {
        let memfs = MemFs::new(MemOptions::new().inodes(1));
        assert_eq!(memfs.charge(Charge::Xattr(1024 - 39)), Err(Error::NoSpace));
        memfs.charge(Charge::Xattr(1024 - 40)).unwrap();
        assert_eq!((memfs.statfs().ffree, memfs.charge(Charge::Xattr(0))), (0, Err(Error::NoSpace)));
        memfs.release(Charge::Xattr(1024 - 40));
        memfs.charge(Charge::Xattr(1)).unwrap();
        assert_eq!((memfs.statfs().ffree, memfs.charge(Charge::Inode)), (0, Err(Error::NoSpace)));
    }

    #[test]
    fn long_target_costs_a_page() {
        let memfs = MemFs::new(MemOptions::new().size_bytes(1));
        memfs.charge(Charge::Target(127)).unwrap();
        memfs.charge(Charge::Target(128)).unwrap();
        assert_eq!((memfs.statfs().bfree, memfs.charge(Charge::Target(128))), (0, Err(Error::NoSpace)));
        memfs.release(Charge::Target(128));
        memfs.release(Charge::Target(127));
        assert_eq!(memfs.statfs().bfree, 1);
    }

    #[test]
    fn statfs_without_limits_shows_the_machine() {
        let memfs = MemFs::new(MemOptions::default());
        let before = memfs.statfs();
        assert!(before.blocks >= before.bfree && before.bfree >= before.bavail);
        let mut data = memfs.data(2);
        assert_eq!(data.write_at(&[1; 3 * PAGE_BYTES], 0), Ok(3 * PAGE_BYTES));
        memfs.charge(Charge::Inode).unwrap();
        let after = memfs.statfs();
        assert!(after.blocks - after.bfree >= 3);
        assert!(after.files > after.ffree);
        assert_eq!(memfs.used_bytes(), 3 * PAGE_BYTES as u64);
    }

    #[test]
    fn partial_page_counts_as_one() {
        let memfs = MemFs::new(MemOptions::new().size_bytes(4097));
        assert_eq!(memfs.statfs().blocks, 2);
    }
}
