//! The attributes of an entry, as statx has them.

use bitflags::bitflags;

use crate::{FileKind, S_IFMT};

bitflags! {
    /// Which attributes are asked for, and which were had: the `STATX_*` bits of Linux.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Fields: u32 {
        /// The kind in the mode.
        const TYPE = 0x1;
        /// The permission bits in the mode.
        const MODE = 0x2;
        /// Number of names.
        const NLINK = 0x4;
        /// Owner.
        const UID = 0x8;
        /// Group.
        const GID = 0x10;
        /// Last access.
        const ATIME = 0x20;
        /// Last change of contents.
        const MTIME = 0x40;
        /// Last change of contents or attributes.
        const CTIME = 0x80;
        /// Inode number.
        const INO = 0x100;
        /// Bytes.
        const SIZE = 0x200;
        /// Occupied blocks.
        const BLOCKS = 0x400;
        /// What stat has always said.
        const BASIC = 0x7ff;
        /// Birth.
        const BTIME = 0x800;
    }
}

impl Default for Fields {
    /// All of them.
    fn default() -> Self {
        Self::all()
    }
}

/// A time as the kernel gives it; it is never clamped. Ordered as time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since the epoch, rounded down.
    pub secs: i64,
    /// Nanoseconds after them, less than 10^9.
    pub nanos: u32,
}

/// The attributes of an entry: everything statx says. A field that [`Attr::have`] does not name means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Which of the fields the file system gave.
    pub have: Fields,
    /// Kind and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The unit in which reading and writing goes best.
    pub blksize: u32,
    /// The device that a device node stands for: its major number, otherwise 0.
    pub rdev_major: u32,
    /// The same: its minor number.
    pub rdev_minor: u32,
    /// The device that the file system is on: its major number.
    pub dev_major: u32,
    /// The same: its minor number.
    pub dev_minor: u32,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Occupied, in units of 512 bytes.
    pub blocks: u64,
    /// `STATX_ATTR_*` bits that are set (immutable, compressed, mount root and others).
    pub attributes: u64,
    /// The `STATX_ATTR_*` bits that the file system knows.
    pub attributes_mask: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

impl Attr {
    /// What it is; none for a kind that Linux does not know, or if [`Fields::TYPE`] was not had.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        // No kind at all means a regular file to mknod only.
        if self.have.contains(Fields::TYPE) && self.mode & S_IFMT != 0 { FileKind::from_mode(self.mode) } else { None }
    }

    /// The device that the file system is on, as (major, minor).
    #[must_use]
    pub const fn dev(&self) -> (u32, u32) {
        (self.dev_major, self.dev_minor)
    }
}
