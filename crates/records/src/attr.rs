//! The attributes of an entry, as in statx.

use bitflags::bitflags;

use crate::{FileKind, S_IFMT};

bitflags! {
    /// Which attributes are asked for, and which the file system returned: the `STATX_*` bits of
    /// Linux.
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
        /// The attributes of stat(2).
        const BASIC = 0x7ff;
        /// Creation.
        const BTIME = 0x800;
    }
}

impl Default for Fields {
    /// All of them.
    fn default() -> Self {
        Self::all()
    }
}

/// A time as the kernel returns it. It is never clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since the epoch, rounded down.
    pub secs: i64,
    /// Nanoseconds after them, less than 10^9.
    pub nanos: u32,
}

/// The attributes of an entry: all the fields of statx. A field that [`Attr::have`] does not name
/// has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// Which of the fields the file system returned.
    pub have: Fields,
    /// Kind and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The preferred size of a read or write.
    pub blksize: u32,
    /// For a device node: the major number of its device. Otherwise 0.
    pub rdev_major: u32,
    /// For a device node: the minor number of its device. Otherwise 0.
    pub rdev_minor: u32,
    /// The major number of the file system's device.
    pub dev_major: u32,
    /// The minor number of the file system's device.
    pub dev_minor: u32,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Occupied blocks, in units of 512 bytes.
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
    /// Creation.
    pub btime: Time,
}

impl Attr {
    /// The kind of the file. None if Linux does not know it, or without [`Fields::TYPE`].
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        // Only mknod takes no kind at all for a regular file.
        if self.have.contains(Fields::TYPE) && self.mode & S_IFMT != 0 { FileKind::from_mode(self.mode) } else { None }
    }

    /// The file system's device, as (major, minor).
    #[must_use]
    pub const fn dev(&self) -> (u32, u32) {
        (self.dev_major, self.dev_minor)
    }
}
