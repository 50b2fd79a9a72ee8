//! Attributes: of an inode, of a superblock, of a directory entry, and changes of them.

use pando_records::{Attr, Fields, Time};
pub use pando_records::{FileKind, S_IFMT};

use crate::types::{InodeFlags, SetTime, Timestamp};

/// The bits of a mode that mknod, mkdir and open take.
pub(crate) const MODE_BITS: u32 = 0o7777;
pub(crate) const S_ISVTX: u32 = 0o1000;
pub(crate) const S_ISGID: u32 = 0o2000;
pub(crate) const S_ISUID: u32 = 0o4000;
pub(crate) const S_IXGRP: u32 = 0o010;
pub(crate) const S_IRWXG: u32 = 0o070;

/// The attributes of an inode, as stat(2) returns them.
///
/// Mode, owner and group are read at one instant of the call. Each other attribute is read at some
/// instant of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The number of the superblock in this namespace.
    pub dev: u64,
    /// The inode number. It is not reused while the superblock exists.
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid, sticky (07777).
    pub mode: u32,
    /// The number of hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device of a device node, in Linux's encoding; otherwise 0.
    pub rdev: u64,
    /// The size in bytes.
    pub size: u64,
    /// The occupied space in units of 512 bytes.
    pub blocks: u64,
    /// The preferred size of reads and writes in bytes.
    pub blksize: u32,
    /// The last access, updated as with the mount option relatime.
    pub atime: Timestamp,
    /// The last change of the contents.
    pub mtime: Timestamp,
    /// The last change of the contents or the attributes.
    pub ctime: Timestamp,
    /// The creation.
    pub btime: Timestamp,
    /// The flags. None if the tree has no flags.
    pub flags: Option<InodeFlags>,
}

impl Stat {
    /// Attributes that are all 0, for a file of this kind. The fields are public.
    #[must_use]
    pub const fn new(kind: FileKind) -> Self {
        const EPOCH: Timestamp = Timestamp(0);
        Self {
            dev: 0,
            ino: 0,
            kind,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            blksize: 0,
            atime: EPOCH,
            mtime: EPOCH,
            ctime: EPOCH,
            btime: EPOCH,
            flags: None,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Whether it is a symbolic link. Calls that follow symbolic links never return one.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

/// The flags that statx(2) shows (`STATX_ATTR_*`), with the same values.
const IN_STATX: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).union(InodeFlags::NODUMP);

/// In the form of a record. The number of the superblock is its device.
impl From<&Stat> for Attr {
    #[inline]
    fn from(stat: &Stat) -> Self {
        let time = |time: Timestamp| Time { secs: time.secs(), nanos: time.nanos() };
        Self {
            have: Fields::BASIC | Fields::BTIME,
            mode: stat.kind.to_mode() | stat.mode,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            blksize: stat.blksize,
            rdev_major: (stat.rdev >> 8 & 0xfff) as u32,
            rdev_minor: (stat.rdev & 0xff | stat.rdev >> 12 & 0xf_ff00) as u32,
            dev_major: (stat.dev >> 32) as u32,
            dev_minor: stat.dev as u32,
            ino: stat.ino,
            size: stat.size,
            blocks: stat.blocks,
            attributes: u64::from(stat.flags.map_or(0, |flags| (flags & IN_STATX).bits())),
            attributes_mask: u64::from(stat.flags.map_or(0, |_| IN_STATX.bits())),
            atime: time(stat.atime),
            mtime: time(stat.mtime),
            ctime: time(stat.ctime),
            btime: time(stat.btime),
        }
    }
}

/// The attributes of a superblock, as statfs(2) returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// The block size in bytes: the unit of the three counts of blocks.
    pub bsize: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for unprivileged users.
    pub bavail: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// The longest name in bytes.
    pub namelen: u32,
}

impl StatFs {
    /// No space and no inodes, in blocks of `bsize` bytes; the longest name has 255 bytes.
    #[must_use]
    pub const fn new(bsize: u32) -> Self {
        Self { bsize, blocks: 0, bfree: 0, bavail: 0, files: 0, ffree: 0, namelen: 255 }
    }

    /// Sets how many blocks there are, and how many are free, for all users.
    #[must_use]
    pub const fn blocks(self, all: u64, free: u64) -> Self {
        Self { blocks: all, bfree: free, bavail: free, ..self }
    }

    /// Sets how many inodes there are, and how many are free.
    #[must_use]
    pub const fn inodes(self, all: u64, free: u64) -> Self {
        Self { files: all, ffree: free, ..self }
    }
}

/// A change of some attributes of one inode, in one call as FUSE's SETATTR makes it.
///
/// ```
/// use pando_vfs::{SetAttr, SetTime};
///
/// let change = SetAttr::new().mode(0o640).mtime(SetTime::Now);
/// assert_eq!((change.mode, change.uid), (Some(0o640), None));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct SetAttr {
    /// The new permission bits (07777).
    pub mode: Option<u32>,
    /// The new owner.
    pub uid: Option<u32>,
    /// The new group.
    pub gid: Option<u32>,
    /// The new size.
    pub size: Option<u64>,
    /// The new atime.
    pub atime: SetTime,
    /// The new mtime.
    pub mtime: SetTime,
    /// The new flags.
    pub flags: Option<InodeFlags>,
    /// Whether a size that changes nothing leaves mtime and ctime as they are: true for truncate(2)
    /// on tmpfs, false for ftruncate(2). A size changes nothing if it is the old size and the file
    /// occupies no space.
    pub if_resized: bool,
}

impl SetAttr {
    /// A change of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the permission bits (07777).
    pub fn mode(mut self, mode: impl Into<Option<u32>>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Sets the owner.
    pub fn uid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.uid = uid.into();
        self
    }

    /// Sets the group.
    pub fn gid(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.gid = gid.into();
        self
    }

    /// Sets the size.
    pub fn size(mut self, size: impl Into<Option<u64>>) -> Self {
        self.size = size.into();
        self
    }

    /// Sets atime.
    pub fn atime(mut self, atime: SetTime) -> Self {
        self.atime = atime;
        self
    }

    /// Sets mtime.
    pub fn mtime(mut self, mtime: SetTime) -> Self {
        self.mtime = mtime;
        self
    }

    /// Sets the flags.
    pub fn flags(mut self, flags: InodeFlags) -> Self {
        self.flags = Some(flags);
        self
    }

    /// Says whether a size that changes nothing leaves the times ([`SetAttr::if_resized`]).
    pub fn if_resized(mut self, if_resized: bool) -> Self {
        self.if_resized = if_resized;
        self
    }
}

/// The target of lseek(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// This offset.
    Set(i64),
    /// This offset from the current position.
    Cur(i64),
    /// This offset from the end of the file.
    End(i64),
    /// The next data at or after this offset.
    Data(i64),
    /// The next hole at or after this offset. The end of the file counts as a hole.
    Hole(i64),
}

/// A directory entry, as readdir returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number.
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The position after this entry, where a later readdir continues. It never becomes invalid.
    pub cookie: u64,
}
