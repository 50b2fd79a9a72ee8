//! The in-memory driver of pandofs: trees that live as long as their superblock.
//!
//! Names and attributes are the name space's business, and its cache *is* the tree. What is left for this driver is
//! what memory is for: the bytes of regular files ([`MemFs`] makes them, sparse, in pages of 4096 bytes), and two
//! limits, on pages and on inodes. A page is paid for before it is allocated and given back when it is freed, so the
//! pages of all files together never exceed the limit, and a full file system is one where not one more page fits.
//!
//! ```
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_vfs::{Driver, Error};
//!
//! let memfs = MemFs::new(MemOptions { size_bytes: Some(8192), ..MemOptions::default() });
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

/// How large a [`MemFs`] may grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemOptions {
    /// What all files hold, in whole pages ([`PAGE_BYTES`]; a part of one counts as one), and targets of symbolic links that
    /// have 128 bytes or more, a page each. No limit of its own by default: then memory is the limit, and statfs shows the
    /// machine's.
    pub size_bytes: Option<u64>,
    /// Inodes, the root directory included, and what is accounted as such, with tmpfs's prices: a further hard link is an
    /// inode, and an inode's worth of extended attributes is 1024 bytes of their names and values, and 40 for each. No limit
    /// by default.
    pub inodes: Option<u64>,
}

/// A tree in memory: the driver to give to `pando_vfs::Vfs::new`.
#[derive(Debug)]
pub struct MemFs {
    space: Arc<Space>,
}

impl MemFs {
    /// An empty one. Costs nothing until something is in it.
    #[must_use]
    pub fn new(options: MemOptions) -> Self {
        Self { space: Arc::new(Space::new(options)) }
    }

    /// Spreads the limits over the cores now, which contention does in any case: for instruments with one thread.
    #[doc(hidden)]
    #[must_use]
    pub fn as_if_contended(self) -> Self {
        self.space.spread();
        self
    }

    /// Bytes that the pages of all files occupy now: exact when nothing changes meanwhile.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.space.used_pages() * PAGE_BYTES as u64
    }
}

impl Driver for MemFs {
    fn statfs(&self) -> StatFs {
        self.space.statfs()
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
        let memfs = MemFs::new(MemOptions { inodes: Some(3), ..MemOptions::default() });
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
    fn attributes_are_counted_to_the_byte() {
        let memfs = MemFs::new(MemOptions { inodes: Some(1), ..MemOptions::default() });
        assert_eq!(memfs.charge(Charge::Xattr(1024 - 39)), Err(Error::NoSpace));
        memfs.charge(Charge::Xattr(1024 - 40)).unwrap();
        assert_eq!((memfs.statfs().ffree, memfs.charge(Charge::Xattr(0))), (0, Err(Error::NoSpace)));
        memfs.release(Charge::Xattr(1024 - 40));
        memfs.charge(Charge::Xattr(1)).unwrap();
        assert_eq!((memfs.statfs().ffree, memfs.charge(Charge::Inode)), (0, Err(Error::NoSpace)));
    }

    #[test]
    fn a_long_target_is_a_page() {
        let memfs = MemFs::new(MemOptions { size_bytes: Some(1), ..MemOptions::default() });
        memfs.charge(Charge::Target(127)).unwrap();
        memfs.charge(Charge::Target(128)).unwrap();
        assert_eq!((memfs.statfs().bfree, memfs.charge(Charge::Target(128))), (0, Err(Error::NoSpace)));
        memfs.release(Charge::Target(128));
        memfs.release(Charge::Target(127));
        assert_eq!(memfs.statfs().bfree, 1);
    }

    #[test]
    fn without_limits_statfs_shows_the_machine() {
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
    fn a_part_of_a_page_counts_as_one() {
        let memfs = MemFs::new(MemOptions { size_bytes: Some(4097), ..MemOptions::default() });
        assert_eq!(memfs.statfs().blocks, 2);
    }
}
