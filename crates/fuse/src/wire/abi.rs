//! The structures and numbers of the FUSE protocol. Each one names its counterpart in
//! `linux/fuse.h`.
//!
//! All fields are plain integers in native byte order, without padding (which the derives check).

use pando_vfs::records::XGETDENTS_HEAD_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version, the same since 2006.
pub(crate) const VERSION: u32 = 7;
/// The newest minor version of which a feature is used here: `FUSE_NOTIFY_PRUNE` (Linux 6.18).
pub(crate) const MINOR_VERSION: u32 = 45;
/// The oldest minor version that is served (Linux 3.15). From it on all structures have their
/// present size, except for [`InitIn`].
pub(crate) const OLDEST_MINOR_VERSION: u32 = 23;

/// The smallest buffer for requests that the kernel accepts (`FUSE_MIN_READ_BUFFER`).
pub(crate) const MIN_BUFFER_BYTES: usize = 8192;

macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// The kind of a request (`enum fuse_opcode`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// The opcode with this number; none if it is not served.
            pub(crate) const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Create = 35,
    Interrupt = 36,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Tmpfile = 51,
    Statx = 52,
}

impl Opcode {
    /// Whether a request of this kind may change the tree. False for an ioctl.
    pub(crate) const fn changes_tree(self) -> bool {
        use Opcode as O;
        matches!(self, O::Setattr | O::Symlink | O::Mknod | O::Mkdir | O::Unlink | O::Rmdir | O::Rename | O::Rename2)
            || matches!(self, O::Link | O::Write | O::Setxattr | O::Removexattr | O::Create | O::Tmpfile)
            || matches!(self, O::Fallocate | O::CopyFileRange)
    }
}

bitflags::bitflags! {
    /// The features of kernel or server: the flags of INIT, with the second word above the first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        /// The server answers look-ups of `.` and `..` by node.
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel reads the ACLs and checks them.
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        /// The kernel can list a directory without asking the server to open it.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There is a second word of flags.
        const INIT_EXT = 1 << 30;
        /// The kernel can read and write backing files by itself.
        const PASSTHROUGH = 1 << 37;
        const OVER_IO_URING = 1 << 41;
    }
}

/// `FS_IOC_SHUTDOWN`: the tree stops.
pub(crate) const SHUTDOWN: u32 = 0x8004_587d;
/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`. The kernel exchanges 4 bytes, whatever the numbers say.
pub(crate) const GETFLAGS: u32 = 0x8008_6601;
pub(crate) const SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
pub(crate) const FSGETXATTR: u32 = 0x801c_581f;
pub(crate) const FSSETXATTR: u32 = 0x401c_5820;

/// `FATTR_*`: the fields of a [`SetattrIn`] that are valid.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    /// The change of size clears setuid and setgid.
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FOPEN_*`: how an opened file behaves.
pub(crate) mod fopen {
    /// Cached contents stay valid.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Cached entries of a directory may be used.
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    /// No FLUSH at close.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    /// The kernel reads and writes the backing file by itself.
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// The kind of a message to the kernel that answers no request (`enum fuse_notify_code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notification {
    /// The attributes of an inode, and a range of its contents, have changed.
    InvalInode = 2,
    /// A name leads to another inode, or does not exist any more.
    InvalEntry = 3,
    /// All names are to be looked up again.
    IncEpoch = 8,
    /// Inodes that no program uses are to be forgotten.
    Prune = 9,
}

/// `FUSE_WRITE_CACHE`: the kernel writes back pages, on behalf of no particular process.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`: the write clears setuid and setgid.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

macro_rules! structures {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$about])* pub(crate) $field: $type,)* })*
    };
}

structures! {
    /// `fuse_in_header`: the header of each request.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        extensions_len: u16,
        padding: u16,
    }

    /// `fuse_out_header`: the header of each reply.
    struct OutHeader {
        /// In bytes, with this header. The kernel ignores it in a reply through a ring.
        len: u32,
        /// 0, or a negative errno. After an errno no body follows.
        error: i32,
        unique: u64,
    }

    /// `fuse_init_in`, without the unused words at its end. Before minor version 36 it ends with
    /// `flags`.
    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
    }

    /// `fuse_init_out`.
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        unused: [u32; 6],
    }

    /// `fuse_attr`.
    struct AttrBytes {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nsec: u32,
        mtime_nsec: u32,
        ctime_nsec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    /// `fuse_entry_out`: a node that the kernel gets, with one look-up count.
    struct EntryOut {
        /// 0: a negative dentry.
        node: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: AttrBytes,
    }

    /// `fuse_attr_out`.
    struct AttrOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: AttrBytes,
    }

    /// `fuse_forget_in`.
    struct ForgetIn {
        lookups: u64,
    }

    /// `fuse_interrupt_in`.
    struct InterruptIn {
        /// The request whose caller has got a signal.
        unique: u64,
    }

    /// `fuse_batch_forget_in`; `count` times [`ForgetOne`] follows.
    struct BatchForgetIn {
        count: u32,
        dummy: u32,
    }

    /// `fuse_forget_one`.
    struct ForgetOne {
        node: u64,
        lookups: u64,
    }

    /// `fuse_setattr_in`.
    struct SetattrIn {
        /// Flags of [`fattr`].
        valid: u32,
        padding: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nsec: u32,
        mtime_nsec: u32,
        ctime_nsec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    /// `fuse_statx_in`.
    struct StatxIn {
        getattr_flags: u32,
        reserved: u32,
        handle: u64,
        flags: u32,
        mask: u32,
    }

    /// `fuse_sx_time`.
    struct StatxTime {
        secs: i64,
        nanos: u32,
        reserved: i32,
    }

    /// `fuse_statx_out`, with the `fuse_statx` at its end.
    struct StatxOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        /// `STATX_*`: which of the fields below are valid.
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    /// `fuse_mknod_in`.
    struct MknodIn {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }

    /// `fuse_mkdir_in`.
    struct MkdirIn {
        mode: u32,
        umask: u32,
    }

    /// `fuse_rename_in`.
    struct RenameIn {
        new_dir: u64,
    }

    /// `fuse_rename2_in`.
    struct Rename2In {
        new_dir: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_link_in`.
    struct LinkIn {
        old_node: u64,
    }

    /// `fuse_open_in`.
    struct OpenIn {
        flags: u32,
        open_flags: u32,
    }

    /// `fuse_create_in`.
    struct CreateIn {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }

    /// `fuse_open_out`.
    struct OpenOut {
        handle: u64,
        /// Flags of [`fopen`].
        flags: u32,
        backing_id: u32,
    }

    /// `fuse_release_in`.
    struct ReleaseIn {
        handle: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }

    /// `fuse_read_in` and `fuse_write_in`, which are alike.
    struct ReadWriteIn {
        handle: u64,
        /// For a directory, the cookie.
        offset: u64,
        size: u32,
        read_write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_write_out` and `fuse_getxattr_out`, which are alike.
    struct SizeOut {
        size: u32,
        padding: u32,
    }

    /// `fuse_fsync_in`.
    struct FsyncIn {
        handle: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_setxattr_in`, without `FUSE_SETXATTR_EXT`.
    struct SetxattrIn {
        size: u32,
        flags: u32,
    }

    /// `fuse_getxattr_in`, also for LISTXATTR.
    struct GetxattrIn {
        /// The size of the caller's buffer; 0 asks for the size of the value.
        size: u32,
        padding: u32,
    }

    /// `fuse_fallocate_in`.
    struct FallocateIn {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
        padding: u32,
    }

    /// `fuse_copy_file_range_in`. From the file of the request to another one.
    struct CopyFileRangeIn {
        from: u64,
        from_offset: u64,
        node: u64,
        to: u64,
        offset: u64,
        len: u64,
        flags: u64,
    }

    /// `fuse_ioctl_in`.
    struct IoctlIn {
        handle: u64,
        flags: u32,
        command: u32,
        argument: u64,
        in_size: u32,
        out_size: u32,
    }

    /// `fuse_ioctl_out`.
    struct IoctlOut {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }

    /// `fsxattr`.
    struct FsXattr {
        xflags: u32,
        extent_size: u32,
        extents: u32,
        project: u32,
        cow_extent_size: u32,
        padding: [u8; 8],
    }

    /// The head of `struct pandofs_xgetdents` (include/pandofs.h). Records follow.
    struct XgetdentsHead {
        cookie: u64,
        mask: u32,
        next: u32,
        bytes: u32,
        entries: u32,
    }

    /// `fuse_lseek_in`.
    struct LseekIn {
        handle: u64,
        offset: i64,
        whence: i32,
        padding: u32,
    }

    /// `fuse_lseek_out`.
    struct LseekOut {
        offset: u64,
    }

    /// `fuse_notify_inval_inode_out`. A negative offset means the attributes alone, and a length of
    /// 0 everything from the offset on.
    struct NotifyInodeOut {
        node: u64,
        offset: i64,
        len: i64,
    }

    /// `fuse_notify_prune_out`; the node numbers follow.
    struct NotifyPruneOut {
        count: u32,
        padding: u32,
        spare: u64,
    }

    /// `fuse_notify_inval_entry_out`; the name and a NUL follow.
    struct NotifyEntryOut {
        parent: u64,
        name_len: u32,
        flags: u32,
    }

    /// `fuse_kstatfs`, which is all of `fuse_statfs_out`.
    struct StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    /// `fuse_dirent`; the name follows, padded to a multiple of 8 bytes.
    struct Dirent {
        ino: u64,
        /// The position after this entry.
        cookie: u64,
        name_len: u32,
        /// `DT_*`: the four upper bits of the mode.
        kind: u32,
    }
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitIn>() == 20 && size_of::<InitOut>() == 64);
    assert!(size_of::<AttrBytes>() == 88 && size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<StatxIn>() == 24 && size_of::<StatxOut>() == 288);
    assert!(size_of::<SetattrIn>() == 88 && size_of::<ReadWriteIn>() == 40 && size_of::<StatfsOut>() == 80);
    assert!(size_of::<CreateIn>() == 16 && size_of::<OpenOut>() == 16 && size_of::<MknodIn>() == 16);
    assert!(size_of::<ReleaseIn>() == 24 && size_of::<FallocateIn>() == 32 && size_of::<LseekIn>() == 24);
    assert!(size_of::<CopyFileRangeIn>() == 56);
    assert!(size_of::<IoctlIn>() == 32 && size_of::<IoctlOut>() == 16);
    assert!(size_of::<XgetdentsHead>() == XGETDENTS_HEAD_BYTES);
    assert!(size_of::<NotifyInodeOut>() == 24 && size_of::<NotifyEntryOut>() == 16);
    assert!(size_of::<NotifyPruneOut>() == 16);
    assert!(size_of::<ForgetOne>() == 16 && size_of::<Rename2In>() == 16 && size_of::<Dirent>() == 24);
};

#[cfg(test)]
mod tests;
