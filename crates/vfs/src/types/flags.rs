//! The flags of calls.

use bitflags::bitflags;

bitflags! {
    /// How a path is walked. With no flag, symbolic links are followed, the last one too, and an
    /// empty path is ENOENT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Walk: u32 {
        /// The last component is not followed if it is a symbolic link (`AT_SYMLINK_NOFOLLOW`).
        const NOFOLLOW = 0x100;
        /// An empty path names the starting point itself, which need not be a directory
        /// (`AT_EMPTY_PATH`). So every call that takes these flags also works on a
        /// [`crate::DentryRef`], as fstat(2) works on a descriptor.
        const EMPTY_PATH = 0x1000;
    }

    /// Restrictions on all path walks of a [`crate::Context`], as `RESOLVE_*` of openat2(2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Resolve: u64 {
        /// A walk that crosses a mount point, up or down, fails with EXDEV.
        const NO_XDEV = 0x01;
        /// A walk that would follow a symbolic link fails with ELOOP. Calls that do not follow the
        /// last component may still name a symbolic link.
        const NO_SYMLINKS = 0x04;
        /// A walk must not leave the directory that it starts from. A `..` that leads out of it, an
        /// absolute path and an absolute symbolic link fail with EXDEV.
        const BENEATH = 0x08;
    }

    /// The permissions that access(2) asks for. With no flag it asks whether the file exists.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Execute permission; for a directory, search permission.
        const EXEC = 1;
        /// Write permission.
        const WRITE = 2;
        /// Read permission.
        const READ = 4;
    }

    /// The flags of renameat2(2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with EEXIST if the new name exists.
        const NOREPLACE = 1;
        /// The two names are exchanged.
        const EXCHANGE = 2;
        /// A whiteout takes the old name: a character device 0/0, with which an overlay hides the
        /// name in the layers below. No thread finds the name free meanwhile.
        const WHITEOUT = 4;
    }

    /// The flags of an inode (`FS_*_FL`), as lsattr shows them and chattr changes them
    /// ([`Vfs::set_inode_flags`](crate::Vfs::set_inode_flags)). A call that a flag forbids fails
    /// with EPERM, for root too.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// The file cannot be changed, removed, renamed or linked, not even by root (EPERM). In a
        /// directory, no name can be made or removed. A file that is open for writing stays so.
        const IMMUTABLE = 0x10;
        /// The file can be opened for writing only with O_APPEND, and cannot be truncated, removed,
        /// renamed or linked. In a directory, names can be made and not removed.
        const APPEND = 0x20;
        /// dump(8) leaves the file out. Files that are made in such a directory inherit it.
        const NODUMP = 0x40;
        /// Reading does not change atime. Files that are made in such a directory inherit it.
        const NOATIME = 0x80;
    }

    /// The flags of setxattr(2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail with EEXIST if the attribute exists.
        const CREATE = 1;
        /// Fail with ENODATA if the attribute does not exist.
        const REPLACE = 2;
    }

    /// The `O_*` flags of open(2), with the values of Linux on x86-64. No flag means read only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Write only.
        const WRONLY = 0o1;
        /// Read and write.
        const RDWR = 0o2;
        /// Create the file if it does not exist.
        const CREAT = 0o100;
        /// With CREAT: fail with EEXIST if the file exists.
        const EXCL = 0o200;
        /// No effect here: there are no terminals.
        const NOCTTY = 0o400;
        /// Truncate a regular file to 0 bytes.
        const TRUNC = 0o1000;
        /// Each write appends to the file.
        const APPEND = 0o2000;
        /// No effect here: fifos and devices cannot be opened.
        const NONBLOCK = 0o4000;
        /// Each write waits until the data is durable.
        const DSYNC = 0o10000;
        /// No effect here: there are no signals.
        const ASYNC = 0o20000;
        /// No effect on files here, since there is no page cache. Directories refuse it.
        const DIRECT = 0o40000;
        /// No effect: offsets have always 64 bits.
        const LARGEFILE = 0o100_000;
        /// Fail with ENOTDIR if the file is not a directory.
        const DIRECTORY = 0o200_000;
        /// Fail with ELOOP if the last component is a symbolic link.
        const NOFOLLOW = 0o400_000;
        /// Reading does not change atime.
        const NOATIME = 0o1_000_000;
        /// No effect here: descriptors are the caller's.
        const CLOEXEC = 0o2_000_000;
        /// Each write waits until data and metadata are durable. Always set together with DSYNC.
        const SYNC = 0o4_000_000;
        /// Open a reference to the dentry only, without access to the contents.
        const PATH = 0o10_000_000;
        /// Create an anonymous file in the given directory. Always set together with DIRECTORY.
        const TMPFILE = 0o20_000_000;
    }
}

impl OpenFlags {
    /// Read only: the value of no flag.
    pub const RDONLY: Self = Self::empty();
    const ACCMODE: u32 = 0o3;

    /// Whether the access mode includes reading.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self.bits() & Self::ACCMODE, 0 | 2)
    }

    /// Whether the access mode includes writing.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self.bits() & Self::ACCMODE, 1 | 2)
    }

    /// The permissions that open(2) checks for these flags.
    #[must_use]
    pub fn access(self) -> Access {
        let mut access = Access::empty();
        access.set(Access::READ, self.reads() || self.bits() & Self::ACCMODE == Self::ACCMODE);
        access.set(Access::WRITE, self.writes() || self.contains(Self::TRUNC) || self.bits() & Self::ACCMODE == 3);
        access
    }
}

impl Walk {
    /// The walk is for the attributes of the inode. Not public: each operation knows it.
    pub(crate) const ATTRIBUTES: Self = Self::from_bits_retain(1 << 31);
}

impl InodeFlags {
    /// Those that protect a file from changes: immutable and append-only.
    pub const PROTECTING: Self = Self::IMMUTABLE.union(Self::APPEND);
    /// Those that a new inode gets from its directory.
    pub(crate) const INHERITED: Self = Self::NODUMP.union(Self::NOATIME);
}
