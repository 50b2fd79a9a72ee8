//! The structures and numbers of the FUSE protocol, as `linux/fuse.h` has them: each says which one it is.
//!
//! All are plain integers in the machine's own byte order, laid out without gaps (which their derives check).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version, the same since 2006.
pub(crate) const VERSION: u32 = 7;
/// The newest minor version of which something is used here: FUSE over io_uring (Linux 6.14).
pub(crate) const MINOR_VERSION: u32 = 42;
/// The oldest one that is served (Linux 3.15): all structures have their present size, but for [`InitIn`].
pub(crate) const OLDEST_MINOR_VERSION: u32 = 23;

/// The least that a server's buffer must hold (`FUSE_MIN_READ_BUFFER`).
pub(crate) const MIN_BUFFER_BYTES: usize = 8192;

macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// What is asked (`enum fuse_opcode`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// The one with this number; none for those that are not served.
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
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    Tmpfile = 51,
    Statx = 52,
}

bitflags::bitflags! {
    /// What kernel and server can do: flags of INIT, the second word above the first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const PARALLEL_DIROPS = 1 << 18;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There is a second word of flags.
        const INIT_EXT = 1 << 30;
        const OVER_IO_URING = 1 << 41;
    }
}

/// `FATTR_*`: which fields of a [`SetattrIn`] are meant.
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
}

/// `FOPEN_*`: how an opened file behaves.
pub(crate) mod fopen {
    /// What is cached of its contents stays.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// What is cached of a directory's entries may be used.
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    /// No FLUSH at close.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// `FUSE_WRITE_CACHE`: pages that are written back, by nobody in particular.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`: the writer may not keep setuid and setgid bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// `fuse_in_header`: what each request begins with.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InHeader {
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) extensions_len: u16,
    pub(crate) padding: u16,
}

/// `fuse_out_header`: what each answer begins with.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OutHeader {
    /// Bytes, with this header. (Not read where the answer comes through a ring.)
    pub(crate) len: u32,
    /// 0, or a negative errno, and then nothing follows.
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// `fuse_init_in`, without the words that nobody uses yet. Before minor version 36 it ends with `flags`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InitIn {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
    pub(crate) flags2: u32,
}

/// `fuse_init_out`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InitOut {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
    pub(crate) max_background: u16,
    pub(crate) congestion_threshold: u16,
    pub(crate) max_write: u32,
    pub(crate) time_gran: u32,
    pub(crate) max_pages: u16,
    pub(crate) map_alignment: u16,
    pub(crate) flags2: u32,
    pub(crate) max_stack_depth: u32,
    pub(crate) unused: [u32; 6],
}

/// `fuse_attr`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct AttrBytes {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) atime_nsec: u32,
    pub(crate) mtime_nsec: u32,
    pub(crate) ctime_nsec: u32,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) blksize: u32,
    pub(crate) flags: u32,
}

/// `fuse_entry_out`: a node that is handed out, and counted.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EntryOut {
    /// 0: there is no such name.
    pub(crate) node: u64,
    pub(crate) generation: u64,
    pub(crate) entry_valid: u64,
    pub(crate) attr_valid: u64,
    pub(crate) entry_valid_nsec: u32,
    pub(crate) attr_valid_nsec: u32,
    pub(crate) attr: AttrBytes,
}

/// `fuse_attr_out`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct AttrOut {
    pub(crate) attr_valid: u64,
    pub(crate) attr_valid_nsec: u32,
    pub(crate) dummy: u32,
    pub(crate) attr: AttrBytes,
}

/// `fuse_forget_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ForgetIn {
    pub(crate) lookups: u64,
}

/// `fuse_batch_forget_in`; so many [`ForgetOne`] follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BatchForgetIn {
    pub(crate) count: u32,
    pub(crate) dummy: u32,
}

/// `fuse_forget_one`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ForgetOne {
    pub(crate) node: u64,
    pub(crate) lookups: u64,
}

/// `fuse_setattr_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SetattrIn {
    /// Of [`fattr`].
    pub(crate) valid: u32,
    pub(crate) padding: u32,
    pub(crate) handle: u64,
    pub(crate) size: u64,
    pub(crate) lock_owner: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) atime_nsec: u32,
    pub(crate) mtime_nsec: u32,
    pub(crate) ctime_nsec: u32,
    pub(crate) mode: u32,
    pub(crate) unused4: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) unused5: u32,
}

/// `fuse_statx_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StatxIn {
    pub(crate) getattr_flags: u32,
    pub(crate) reserved: u32,
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) mask: u32,
}

/// `fuse_sx_time`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StatxTime {
    pub(crate) secs: i64,
    pub(crate) nanos: u32,
    pub(crate) reserved: i32,
}

/// `fuse_statx_out`, with the `fuse_statx` at its end.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StatxOut {
    pub(crate) attr_valid: u64,
    pub(crate) attr_valid_nsec: u32,
    pub(crate) flags: u32,
    pub(crate) spare: [u64; 2],
    /// Which of the following are meant: `STATX_*`.
    pub(crate) mask: u32,
    pub(crate) blksize: u32,
    pub(crate) attributes: u64,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u16,
    pub(crate) spare0: u16,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) attributes_mask: u64,
    pub(crate) atime: StatxTime,
    pub(crate) btime: StatxTime,
    pub(crate) ctime: StatxTime,
    pub(crate) mtime: StatxTime,
    pub(crate) rdev_major: u32,
    pub(crate) rdev_minor: u32,
    pub(crate) dev_major: u32,
    pub(crate) dev_minor: u32,
    pub(crate) spare2: [u64; 14],
}

/// `fuse_mknod_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MknodIn {
    pub(crate) mode: u32,
    pub(crate) rdev: u32,
    pub(crate) umask: u32,
    pub(crate) padding: u32,
}

/// `fuse_mkdir_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MkdirIn {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

/// `fuse_rename_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RenameIn {
    pub(crate) new_dir: u64,
}

/// `fuse_rename2_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rename2In {
    pub(crate) new_dir: u64,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

/// `fuse_link_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LinkIn {
    pub(crate) old_node: u64,
}

/// `fuse_open_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OpenIn {
    pub(crate) flags: u32,
    pub(crate) open_flags: u32,
}

/// `fuse_create_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateIn {
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) open_flags: u32,
}

/// `fuse_open_out`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub(crate) handle: u64,
    /// Of [`fopen`].
    pub(crate) flags: u32,
    pub(crate) backing_id: u32,
}

/// `fuse_release_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ReleaseIn {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) release_flags: u32,
    pub(crate) lock_owner: u64,
}

/// `fuse_read_in` and `fuse_write_in`, which are alike.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ReadWriteIn {
    pub(crate) handle: u64,
    /// For a directory, the cookie.
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) read_write_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

/// `fuse_write_out` and `fuse_getxattr_out`, which are alike.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SizeOut {
    pub(crate) size: u32,
    pub(crate) padding: u32,
}

/// `fuse_fsync_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FsyncIn {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

/// `fuse_setxattr_in` of those who have not asked for `FUSE_SETXATTR_EXT`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SetxattrIn {
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

/// `fuse_getxattr_in`, also for LISTXATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GetxattrIn {
    /// The room for the answer; 0 asks how much it needs.
    pub(crate) size: u32,
    pub(crate) padding: u32,
}

/// `fuse_fallocate_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) mode: u32,
    pub(crate) padding: u32,
}

/// `fuse_lseek_in`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LseekIn {
    pub(crate) handle: u64,
    pub(crate) offset: i64,
    pub(crate) whence: i32,
    pub(crate) padding: u32,
}

/// `fuse_lseek_out`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LseekOut {
    pub(crate) offset: u64,
}

/// `fuse_kstatfs`, which is all of `fuse_statfs_out`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub(crate) blocks: u64,
    pub(crate) bfree: u64,
    pub(crate) bavail: u64,
    pub(crate) files: u64,
    pub(crate) ffree: u64,
    pub(crate) bsize: u32,
    pub(crate) namelen: u32,
    pub(crate) frsize: u32,
    pub(crate) padding: u32,
    pub(crate) spare: [u32; 6],
}

/// `fuse_dirent`; the name follows, up to the next multiple of 8 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Dirent {
    pub(crate) ino: u64,
    /// Where to go on after it.
    pub(crate) cookie: u64,
    pub(crate) name_len: u32,
    /// `DT_*`: the four upper bits of the mode.
    pub(crate) kind: u32,
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitIn>() == 20 && size_of::<InitOut>() == 64);
    assert!(size_of::<AttrBytes>() == 88 && size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<StatxIn>() == 24 && size_of::<StatxOut>() == 288);
    assert!(size_of::<SetattrIn>() == 88 && size_of::<ReadWriteIn>() == 40 && size_of::<StatfsOut>() == 80);
};

#[cfg(test)]
mod tests {
    use super::Opcode;

    #[test]
    fn opcodes_are_found_by_their_numbers() {
        for number in 0..100 {
            assert!(Opcode::from_number(number).is_none_or(|opcode| opcode as u32 == number));
        }
        assert_eq!((Opcode::from_number(1), Opcode::from_number(36)), (Some(Opcode::Lookup), None));
    }
}
