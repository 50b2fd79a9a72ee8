//! The plain types of the interface: kinds, attributes, times, flags.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;
pub use pando_records::{FileKind, S_IFMT};

/// The permission bits that mknod, mkdir and open take.
pub(crate) const MODE_BITS: u32 = 0o7777;
pub(crate) const S_ISVTX: u32 = 0o1000;
pub(crate) const S_ISGID: u32 = 0o2000;
pub(crate) const S_ISUID: u32 = 0o4000;
pub(crate) const S_IXGRP: u32 = 0o010;

/// A time: nanoseconds since the epoch, as one word (from the year 1677 to 2262).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The wall clock now.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// From whole seconds and nanoseconds (less than 10^9) after them; times beyond the range are clamped.
    #[must_use]
    pub const fn from_parts(secs: i64, nanos: u32) -> Self {
        const MIN: i128 = i64::MIN as i128;
        const MAX: i128 = i64::MAX as i128;
        // Exact, and clamped in the end: the range begins and ends in the middle of a second.
        match secs as i128 * 1_000_000_000 + nanos as i128 {
            ..=MIN => Self(i64::MIN),
            MAX.. => Self(i64::MAX),
            exact => Self(exact as i64),
        }
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds after [`Timestamp::secs`].
    #[must_use]
    pub const fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

/// Times beyond the range are clamped.
impl From<SystemTime> for Timestamp {
    #[inline]
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::from_parts(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            Err(before) => Self(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n)),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let away = Duration::from_nanos(time.0.unsigned_abs());
        // What 64 bits of nanoseconds can say, a SystemTime can hold.
        if time.0 >= 0 { UNIX_EPOCH + away } else { UNIX_EPOCH - away }
    }
}

/// A time to be set by utimens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it (`UTIME_OMIT`).
    #[default]
    Omit,
    /// The clock's time (`UTIME_NOW`).
    Now,
    /// This time.
    At(Timestamp),
}

/// Everything stat says of an inode. Mode, owner and group are of one instant; each of the others is of some instant of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Which superblock of this name space.
    pub dev: u64,
    /// The inode's number: never reused while the superblock lives.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid, sticky (07777).
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The device a device node stands for (Linux's encoding), otherwise 0.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Occupied, in units of 512 bytes.
    pub blocks: u64,
    /// The unit in which reading and writing goes best.
    pub blksize: u32,
    /// Last access (relatime).
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
}

impl Stat {
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

    /// Whether it is a symbolic link (as only [`crate::fs::Fs::symlink_metadata`] and `NOFOLLOW` show one).
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

/// Everything statfs says of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes; the counts below are in these.
    pub bsize: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for the unprivileged.
    pub bavail: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name in bytes.
    pub namelen: u32,
}

bitflags! {
    /// How a path is walked. Empty: symbolic links are followed, the last one too, and an empty path is ENOENT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Walk: u32 {
        /// A symbolic link as the last component is not followed.
        const NOFOLLOW = 0x100;
        /// An empty path means the starting point itself (`AT_EMPTY_PATH`), which need not be a directory: what other calls do
        /// with a descriptor, every call that takes these flags does with a [`crate::DentryRef`].
        const EMPTY_PATH = 0x1000;
    }

    /// What the paths of a [`crate::Context`] must not do (openat2's `RESOLVE_*`): in every call, with one path or two.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Resolve: u64 {
        /// Lead across a mount, up or down: EXDEV.
        const NO_XDEV = 0x01;
        /// Follow a symbolic link, last or not: ELOOP. (Calls that do not follow the last one may name it.)
        const NO_SYMLINKS = 0x04;
        /// Leave the directory that the walk starts from: `..` out of it, an absolute path and an absolute link are EXDEV.
        const BENEATH = 0x08;
    }

    /// What access asks for; empty asks whether it is there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// To execute, or to search a directory.
        const EXEC = 1;
        /// To write.
        const WRITE = 2;
        /// To read.
        const READ = 4;
    }

    /// The flags of renameat2.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with EEXIST if the new name is taken.
        const NOREPLACE = 1;
        /// The two names change places.
        const EXCHANGE = 2;
    }

    /// The flags of setxattr.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail with EEXIST if it is there.
        const CREATE = 1;
        /// Fail with ENODATA if it is not there.
        const REPLACE = 2;
    }

    /// The `O_*` flags of open, with Linux's values (x86-64). Empty: for reading.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Write only.
        const WRONLY = 0o1;
        /// Read and write.
        const RDWR = 0o2;
        /// Create it if it is not there.
        const CREAT = 0o100;
        /// With CREAT: fail if it is there.
        const EXCL = 0o200;
        /// Not a controlling terminal: no effect here.
        const NOCTTY = 0o400;
        /// Cut a regular file to nothing.
        const TRUNC = 0o1000;
        /// Each write goes to the end.
        const APPEND = 0o2000;
        /// Do not wait.
        const NONBLOCK = 0o4000;
        /// Data is synchronised at each write.
        const DSYNC = 0o10000;
        /// Signal-driven: no effect here.
        const ASYNC = 0o20000;
        /// Uncached: no effect here, but that directories refuse it.
        const DIRECT = 0o40000;
        /// Large offsets: always.
        const LARGEFILE = 0o100_000;
        /// It must be a directory.
        const DIRECTORY = 0o200_000;
        /// A symbolic link as the last component is an error.
        const NOFOLLOW = 0o400_000;
        /// Reading leaves atime alone.
        const NOATIME = 0o1_000_000;
        /// Close on exec: the caller's business.
        const CLOEXEC = 0o2_000_000;
        /// Everything is synchronised at each write (with DSYNC).
        const SYNC = 0o4_000_000;
        /// A reference to the place only.
        const PATH = 0o10_000_000;
        /// A file without a name, in the directory given (always with DIRECTORY).
        const TMPFILE = 0o20_000_000;
    }
}

impl OpenFlags {
    /// Read only: no bit.
    pub const RDONLY: Self = Self::empty();
    const ACCMODE: u32 = 0o3;

    /// Whether reading is asked for.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self.bits() & Self::ACCMODE, 0 | 2)
    }

    /// Whether writing is asked for.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self.bits() & Self::ACCMODE, 1 | 2)
    }

    /// What the access mode needs from the permission bits.
    #[must_use]
    pub fn access(self) -> Access {
        let mut access = Access::empty();
        access.set(Access::READ, self.reads() || self.bits() & Self::ACCMODE == Self::ACCMODE);
        access.set(Access::WRITE, self.writes() || self.contains(Self::TRUNC) || self.bits() & Self::ACCMODE == 3);
        access
    }
}

/// A change of attributes, several at once as FUSE asks for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (07777).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size.
    pub size: Option<u64>,
    /// New access time.
    pub atime: SetTime,
    /// New modification time.
    pub mtime: SetTime,
    /// Whether a size is a modification only if it is another than before or the file takes space, as truncate(2) has it on
    /// tmpfs; for ftruncate(2) it always is.
    pub if_resized: bool,
}

/// Where lseek goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// To this offset.
    Set(i64),
    /// Relative to the position.
    Cur(i64),
    /// Relative to the end.
    End(i64),
    /// To the next data at or after this offset.
    Data(i64),
    /// To the next hole at or after this offset (the end counts as one).
    Hole(i64),
}

/// One entry of a directory, as readdir sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode's number.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Where to go on after this entry: valid for ever.
    pub cookie: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_clock() {
        for nanos in [0, 1, -1, 1_700_000_000_999_999_999, -1_200_000_000, i64::MAX, i64::MIN] {
            let time = SystemTime::from(Timestamp(nanos));
            let exact = match time.duration_since(UNIX_EPOCH) {
                Ok(since) => i128::try_from(since.as_nanos()),
                Err(before) => i128::try_from(before.duration().as_nanos()).map(|nanos| -nanos),
            };
            let whole = Timestamp(nanos);
            assert_eq!((exact, Timestamp::from(time)), (Ok(nanos.into()), whole));
            assert_eq!(Timestamp::from_parts(whole.secs(), whole.nanos()), whole);
        }
        for (secs, nanos, clamped) in [
            (Timestamp(i64::MIN).secs(), 0, i64::MIN),
            (i64::MIN, 999_999_999, i64::MIN),
            (i64::MAX, 0, i64::MAX),
            (Timestamp(i64::MAX).secs(), 999_999_999, i64::MAX),
        ] {
            assert_eq!(Timestamp::from_parts(secs, nanos), Timestamp(clamped));
        }
        let far = Duration::from_secs(1 << 40);
        assert_eq!(Timestamp::from(UNIX_EPOCH + far), Timestamp(i64::MAX));
        assert_eq!(Timestamp::from(UNIX_EPOCH - far), Timestamp(i64::MIN));
    }
}
