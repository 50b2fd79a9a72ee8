//! The operations on both trees, and their results.
//!
//! # What is not compared, and why
//! - Inode and device numbers: implementations choose them freely. Whether two names are one inode
//!   *is* compared (see `snapshot`).
//! - The blocks of symbolic links: they depend on where the target is stored.
//! - Times that a clock set. Times that utimens set are compared to the nanosecond. For the others,
//!   it is compared whether they changed since the last snapshot.
//! - The order of a directory's entries, and so any part of a listing. Whole listings are compared,
//!   sorted.
//! - The atime of symbolic links: a walk of pandofs writes nothing, so following a link does not
//!   change its atime.
//! - The errno of a seek beyond the maximum position: EINVAL on tmpfs, EOVERFLOW in pandofs, as in
//!   POSIX.
//! - statfs, for space and inodes that are not limited.
//! - In backed trees: the size of directories, which the backing decides, and the blocks of files,
//!   which the backing is not asked for.
//! - On a mount, in the runs in which the kernel answers from its caches: atimes. And the path of
//!   an anonymous file, which the kernel makes up.

use std::{
    collections::HashSet,
    fmt,
    io::{IoSlice, IoSliceMut},
};

use pando_vfs::LockKind;

use crate::{events::Seen, generate::Style};

/// The number of handles that the generator uses.
pub const SLOTS: usize = 3;

/// One more handle, for snapshots.
pub const SNAPSHOT_SLOT: usize = SLOTS;

/// Holes are not compared beyond this position: tmpfs returns 2^63 where the last page of the
/// largest file ends.
pub const LAST_SEEK: i64 = i64::MAX - 3 * 4096;

/// The start of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Cwd,
    Slot(usize),
}

/// The caller. Each user has a group of its own and one in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Root,
    User(u32),
}

/// The group that all users are in.
pub const COMMON_GROUP: u32 = 100;

/// A time for utimens. Times that are set are long before the current time of any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Omit,
    Now,
    At { secs: i64, nanos: u32 },
}

/// The reference point of lseek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    Set,
    Cur,
    End,
    Data,
    Hole,
}

/// A path and its start.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub at: At,
    pub path: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.replace(&"x".repeat(256), "X").replace(&"x".repeat(255), "x");
        match self.at {
            At::Cwd => write!(f, "{path:?}"),
            At::Slot(slot) => write!(f, "#{slot}:{path:?}"),
        }
    }
}

/// Calls `call` with a buffer of this length, and returns the bytes that it read.
pub fn read<E>(len: usize, call: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Answer, E> {
    readv(&[len], |into| call(&mut into[0]))
}

/// Calls `call` with buffers of these lengths, and returns the bytes that it read.
pub fn readv<E>(lens: &[usize], call: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>) -> Result<Answer, E> {
    let mut buffers: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
    let mut slices: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
    let count = call(&mut slices)?;
    let mut bytes = buffers.concat();
    bytes.truncate(count);
    Ok(Answer::Bytes(bytes))
}

/// Calls `call` with buffers of these lengths, and returns how much it wrote. Each buffer is filled
/// with another byte, counted from `fill`.
pub fn writev<E>(lens: &[usize], fill: u8, call: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>) -> Result<Answer, E> {
    let own = |(at, &len): (usize, &usize)| vec![fill.wrapping_add(at as u8); len];
    let buffers: Vec<Vec<u8>> = lens.iter().enumerate().map(own).collect();
    let slices: Vec<IoSlice<'_>> = buffers.iter().map(|buf| IoSlice::new(buf)).collect();
    Ok(Answer::Number(call(&slices)? as u64))
}

/// One operation. Flags and modes are Linux's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Open {
        slot: usize,
        place: Place,
        flags: Flags,
        mode: Mode,
    },
    Close {
        slot: usize,
    },
    Read {
        slot: usize,
        len: usize,
    },
    Write {
        slot: usize,
        len: usize,
        fill: u8,
    },
    Pread {
        slot: usize,
        len: usize,
        offset: u64,
    },
    Pwrite {
        slot: usize,
        len: usize,
        fill: u8,
        offset: u64,
    },
    /// At the position or at an offset, into buffers of these lengths.
    Readv {
        slot: usize,
        lens: Vec<usize>,
        offset: Option<u64>,
    },
    /// Each buffer is filled with another byte, counted from `fill`.
    Writev {
        slot: usize,
        lens: Vec<usize>,
        fill: u8,
        offset: Option<u64>,
    },
    Lseek {
        slot: usize,
        whence: Whence,
        offset: i64,
    },
    Ftruncate {
        slot: usize,
        size: u64,
    },
    Fallocate {
        slot: usize,
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// From an offset in one open file to an offset in another.
    CopyRange {
        from: usize,
        from_offset: u64,
        slot: usize,
        offset: u64,
        len: usize,
    },
    Fsync {
        slot: usize,
    },
    Fstat {
        slot: usize,
    },
    Fchmod {
        slot: usize,
        mode: Mode,
    },
    /// chattr and lsattr.
    SetInodeFlags {
        slot: usize,
        flags: u32,
    },
    InodeFlags {
        slot: usize,
    },
    /// Locks a range for the open file, or unlocks it.
    LockRange {
        slot: usize,
        lock: Option<LockKind>,
        start: u64,
        len: u64,
    },
    /// Whether another open file has a lock that excludes this one.
    IsExcluded {
        slot: usize,
        lock: LockKind,
        start: u64,
        len: u64,
    },
    Flock {
        slot: usize,
        lock: Option<LockKind>,
    },
    PathOf {
        slot: usize,
    },
    Readdir {
        slot: usize,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Mkdir {
        place: Place,
        mode: Mode,
    },
    Mknod {
        place: Place,
        mode: Mode,
        rdev: u64,
    },
    Symlink {
        target: String,
        place: Place,
    },
    Readlink {
        place: Place,
    },
    Link {
        old: Place,
        new: Place,
        follow: bool,
    },
    LinkHandle {
        slot: usize,
        new: Place,
    },
    Unlink {
        place: Place,
    },
    Rmdir {
        place: Place,
    },
    Rename {
        old: Place,
        new: Place,
        flags: u32,
    },
    Stat {
        place: Place,
        follow: bool,
    },
    Access {
        place: Place,
        mask: u32,
    },
    Chmod {
        place: Place,
        mode: Mode,
    },
    Chown {
        place: Place,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    Utimens {
        place: Place,
        atime: When,
        mtime: When,
        follow: bool,
    },
    Setxattr {
        path: String,
        name: String,
        value: Vec<u8>,
        flags: u32,
        follow: bool,
    },
    Getxattr {
        path: String,
        name: String,
        follow: bool,
    },
    Listxattr {
        path: String,
        follow: bool,
    },
    Removexattr {
        path: String,
        name: String,
        follow: bool,
    },
    Statfs {
        path: String,
    },
    Chdir {
        path: String,
    },
    Fchdir {
        slot: usize,
    },
    Getcwd,
    Umask {
        mask: Mode,
    },
    Become {
        caller: Caller,
    },
}

/// A mode, shown in octal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0o{:o}", self.0)
    }
}

/// The flags of open, shown by name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    pub const CREAT: u32 = 0o100;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    pub const NONBLOCK: u32 = 0o4000;
    pub const DIRECT: u32 = 0o40_000;
    pub const DIRECTORY: u32 = 0o200_000;
    pub const NOFOLLOW: u32 = 0o400_000;
    pub const NOATIME: u32 = 0o1_000_000;
    pub const PATH: u32 = 0o10_000_000;
    pub const TMPFILE: u32 = 0o20_000_000 | Self::DIRECTORY;
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["RDONLY", "WRONLY", "RDWR", "ACCMODE"][self.0 as usize & 3])?;
        let mut left = self.0 & !3;
        for (name, bits) in [
            ("TMPFILE", Self::TMPFILE),
            ("CREAT", Self::CREAT),
            ("EXCL", Self::EXCL),
            ("TRUNC", Self::TRUNC),
            ("APPEND", Self::APPEND),
            ("NONBLOCK", Self::NONBLOCK),
            ("DIRECT", Self::DIRECT),
            ("DIRECTORY", Self::DIRECTORY),
            ("NOFOLLOW", Self::NOFOLLOW),
            ("NOATIME", Self::NOATIME),
            ("PATH", Self::PATH),
        ] {
            if left & bits == bits {
                left &= !bits;
                write!(f, "|{name}")?;
            }
        }
        if left == 0 { Ok(()) } else { write!(f, "|0o{left:o}") }
    }
}

/// A value that is stored with a result and not compared.
#[derive(Clone, Copy)]
pub struct NotCompared<T>(pub T);

impl<T> PartialEq for NotCompared<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> fmt::Debug for NotCompared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// The result of stat, without values that may differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Kind and permissions.
    pub mode: Mode,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    /// 0 for directories of backed trees.
    pub size: u64,
    /// 0 for symbolic links, and in backed trees.
    pub blocks: u64,
    /// Nanoseconds since the epoch, if utimens set it.
    pub atime: Option<i64>,
    pub mtime: Option<i64>,
    pub ino: NotCompared<u64>,
    /// atime, mtime, ctime.
    pub times: NotCompared<[i64; 3]>,
}

/// Earlier times were set by utimens: see [`When`].
const CLOCKS_BEGIN_NS: i64 = 1_000_000_000_000_000_000;

/// The unfiltered result of stat.
pub struct RawStat {
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub ino: u64,
    pub times: [i64; 3],
}

pub const S_IFMT: u32 = 0o170_000;
pub const S_IFLNK: u32 = 0o120_000;
pub const S_IFREG: u32 = 0o100_000;
pub const S_IFBLK: u32 = 0o060_000;
pub const S_IFDIR: u32 = 0o040_000;
pub const S_IFCHR: u32 = 0o020_000;
pub const S_IFIFO: u32 = 0o010_000;

impl Facts {
    /// The attributes of an inode that are compared.
    pub fn new(raw: RawStat, style: &Style) -> Self {
        let backed = style.backed;
        let kind = raw.mode & S_IFMT;
        let explicit = |time: i64| (time < CLOCKS_BEGIN_NS).then_some(time);
        Self {
            mode: Mode(raw.mode),
            nlink: raw.nlink,
            uid: raw.uid,
            gid: raw.gid,
            rdev: raw.rdev,
            size: if kind == S_IFDIR && backed { 0 } else { raw.size },
            blocks: if kind != S_IFLNK && !backed { raw.blocks } else { 0 },
            atime: if kind == S_IFLNK || style.keeps_caches() { None } else { explicit(raw.times[0]) },
            mtime: explicit(raw.times[1]),
            ino: NotCompared(raw.ino),
            times: NotCompared(raw.times),
        }
    }
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub name: Vec<u8>,
    /// The `d_type`, as the kind's bits of a mode.
    pub kind: Mode,
    pub ino: NotCompared<u64>,
}

/// The result of a successful operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Entries(Vec<Entry>),
    Facts(Facts),
    /// Blocks, free blocks, inodes and free inodes, if they are limited.
    Space(Option<[u64; 4]>),
}

/// A result, or an errno.
pub type Outcome = Result<Answer, i32>;

/// A tree that operations are made on.
pub trait Tree {
    /// Makes one operation.
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// A tree under test.
pub trait Tested: Tree {
    /// Makes one operation, the one with this number, and disturbs the tree before it.
    fn apply_disturbed(&mut self, index: u64, op: &Op) -> Outcome;

    /// Watches a directory. False if this tree has no watches.
    fn watch(&mut self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// The events since the last call, and the watched directories that are removed by now.
    fn take_events(&mut self) -> Option<(Vec<Seen>, &HashSet<usize>)> {
        None
    }

    /// The number of operations that returned an injected error, and of those that met one and did
    /// not return it. `None` if nothing is injected.
    fn injected_errors(&self) -> Option<[u64; 2]> {
        None
    }
}

/// Whether two outcomes agree, apart from the deliberate differences above.
pub fn agree(op: &Op, tmpfs: &Outcome, pando: &Outcome) -> bool {
    const EINVAL: i32 = 22;
    const EOVERFLOW: i32 = 75;
    match (op, tmpfs, pando) {
        (Op::Lseek { whence: Whence::Cur | Whence::End, .. }, Err(EINVAL), Err(EOVERFLOW)) => true,
        _ => tmpfs == pando,
    }
}

/// Shows an outcome on one line of limited length.
pub fn show(outcome: &Outcome) -> String {
    let text = match outcome {
        Ok(Answer::Bytes(bytes)) => {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).escape_debug().to_string();
            format!("Ok({} bytes, hash {:x}: \"{shown}\")", bytes.len(), hash(bytes))
        }
        Ok(answer) => format!("Ok({answer:?})"),
        Err(errno) => format!("Err({errno}: {})", std::io::Error::from_raw_os_error(*errno)),
    };
    if text.len() > 1500 { text.chars().take(1500).chain("...".chars()).collect() } else { text }
}

/// A short hash of some bytes (FNV-1a; Fowler, Noll & Vo, 1991).
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Masks a path whose last component is `#` and an inode number, as that of a file that never had a
/// name. The number may differ, and so may the directory in the path.
pub fn mask_number(path: Vec<u8>) -> Vec<u8> {
    match path.windows(2).rposition(|pair| pair == b"/#") {
        Some(at) => {
            let rest = path[at + 2..].iter().skip_while(|byte| byte.is_ascii_digit());
            b"/#N".iter().chain(rest).copied().collect()
        }
        None => path,
    }
}
