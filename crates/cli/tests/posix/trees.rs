//! Trees to compare: a kernel tmpfs, a mount of pandofs, and the library in this process.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, DentryRef, OpenFlags, RenameFlags, SetTime, Timestamp, Vfs, VfsOptions, Walk, XattrFlags,
};
use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid},
    io::Errno,
    thread::{
        CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::common::{KernelMount, Mounted};

/// One of the trees, with a directory for each case.
pub enum Tree {
    Tmpfs(KernelMount),
    Mount(Mounted),
    Library(Vfs),
}

/// The caller of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
    /// Root, with or without CAP_FSETID.
    pub fsetid: bool,
}

pub const ROOT: Who = Who { uid: 0, gid: 0, groups: &[], fsetid: true };

/// The umask of this process with all its threads, and of the library.
const UMASK: u32 = 0o022;

/// An operation on an open file.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Nothing,
    Read(usize),
    Pread(usize, u64),
    Write(usize),
    Pwrite(usize, u64),
    Ftruncate(u64),
    /// Mode, offset and length.
    Fallocate(u32, u64, u64),
    Fsync,
    Readdir,
    /// `copy_file_range` of this many bytes from another file to this one.
    CopyFrom(&'static str, usize),
}

/// An operation on paths relative to the directory of a case.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    Open(&'static str, OpenFlags, Act),
    Truncate(&'static str, u64),
    Chmod(&'static str, u32),
    /// The last component itself, if it is a symbolic link.
    Chown(&'static str, Option<u32>, Option<u32>),
    /// The same value for atime and mtime.
    Utimens(&'static str, SetTime, SetTime),
    Rename(&'static str, &'static str, RenameFlags),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Symlink(&'static str, &'static str),
    Readlink(&'static str),
    Mkdir(&'static str),
    Rmdir(&'static str),
    Mknod(&'static str, u32),
    Setxattr(&'static str, &'static str, &'static str),
    Removexattr(&'static str, &'static str),
    Stat(&'static str),
}

/// The compared attributes: mode, atime, mtime and ctime.
pub type Facts = (u32, [i128; 3]);

/// An object that is looked at, even after its name is removed.
pub enum Object {
    Kernel(OwnedFd),
    Library(DentryRef),
}

impl Object {
    pub fn facts(&self) -> Facts {
        match self {
            Self::Kernel(fd) => {
                let stat = rustix::fs::fstat(fd).unwrap();
                let time = |secs: i64, nanos: u64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
                let times = [
                    time(stat.st_atime, stat.st_atime_nsec),
                    time(stat.st_mtime, stat.st_mtime_nsec),
                    time(stat.st_ctime, stat.st_ctime_nsec),
                ];
                (stat.st_mode & 0o7777, times)
            }
            Self::Library(dentry) => {
                let stat = dentry.stat();
                (stat.mode, [stat.atime, stat.mtime, stat.ctime].map(|time| time.0.into()))
            }
        }
    }
}

impl Tree {
    pub fn tmpfs() -> Self {
        rustix::process::umask(Mode::from_raw_mode(UMASK));
        Self::Tmpfs(KernelMount::tmpfs(c"mode=1777"))
    }

    pub fn library() -> Self {
        Self::Library(Vfs::with_options(MemFs::new(MemOptions::default()), VfsOptions::new().mode(0o1777)).unwrap())
    }

    /// A directory for a case, open to all; with its path if the kernel sees it.
    pub fn case(&self, number: usize) -> Case<'_> {
        let name = format!("case-{number}");
        let root = match self {
            Self::Tmpfs(tmpfs) => tmpfs.path().to_owned(),
            Self::Mount(mounted) => mounted.root(),
            Self::Library(vfs) => {
                let context = context(vfs, ROOT);
                let dir = vfs.mkdir(&context, At::Cwd, &name, 0o777).unwrap();
                return Case::Library(vfs, dir);
            }
        };
        let path = root.join(name);
        fs::create_dir(&path).unwrap();
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o777)).unwrap();
        Case::Kernel(path)
    }

    /// Unmounts a mount. Its server must end successfully.
    pub fn end(self) {
        if let Self::Mount(mounted) = self {
            mounted.umount();
        }
    }
}

fn context(vfs: &Vfs, who: Who) -> Context {
    let cred = match who.uid {
        0 => Credentials { gid: who.gid, ..Credentials::root() },
        uid => Credentials::user(uid, who.gid, who.groups),
    };
    Context::new(vfs, cred).with_umask(UMASK)
}

/// The directory of a case.
pub enum Case<'t> {
    Kernel(PathBuf),
    Library(&'t Vfs, DentryRef),
}

impl Case<'_> {
    /// Performs an operation. Returns an errno if it fails.
    pub fn apply(&self, who: Who, op: Op) -> Result<(), i32> {
        match self {
            Self::Library(vfs, dir) => {
                on_library(vfs, &context(vfs, who), At::Dir(dir), op).map_err(|error| error.errno())
            }
            Self::Kernel(dir) if who == ROOT => on_kernel(dir, op).map_err(Errno::raw_os_error),
            // In a thread of its own, because the credentials are those of the thread.
            Self::Kernel(dir) => thread::scope(|scope| {
                let done = scope.spawn(|| {
                    become_who(who);
                    on_kernel(dir, op).map_err(Errno::raw_os_error)
                });
                done.join().unwrap()
            }),
        }
    }

    /// Performs an operation as root, which must succeed.
    pub fn prepare(&self, op: Op) {
        assert_eq!(self.apply(ROOT, op), Ok(()), "{op:?}");
    }

    /// An object by its path. Symbolic links are not followed.
    pub fn object(&self, path: &str) -> Object {
        match self {
            Self::Kernel(dir) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW;
                Object::Kernel(rustix::fs::open(dir.join(path), flags, Mode::empty()).unwrap())
            }
            Self::Library(vfs, dir) => {
                Object::Library(vfs.lookup(&context(vfs, ROOT), At::Dir(dir), path, Walk::NOFOLLOW).unwrap())
            }
        }
    }
}

/// Changes the credentials of the calling thread. Other threads keep theirs. (The umask is that of
/// the process.)
fn become_who(who: Who) {
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    let groups: Vec<Gid> = who.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    set_thread_groups(&groups).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
    if who.uid == 0 && !who.fsetid {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::FSETID);
        set_capabilities(None, sets).unwrap();
    }
}

fn on_kernel(dir: &Path, op: Op) -> rustix::io::Result<()> {
    let at = |path: &str| dir.join(path);
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    match op {
        Op::Open(path, flags, act) => {
            let flags = OFlags::from_bits_retain(flags.bits()) | OFlags::CLOEXEC;
            let file = rustix::fs::open(at(path), flags, Mode::from_raw_mode(0o666))?;
            act_on_kernel(dir, &file, act)
        }
        Op::Truncate(path, size) => {
            nix::unistd::truncate(&at(path), size as i64).map_err(|error| Errno::from_raw_os_error(error as i32))
        }
        Op::Chmod(path, mode) => rustix::fs::chmod(at(path), Mode::from_raw_mode(mode)),
        Op::Chown(path, uid, gid) => {
            rustix::fs::chownat(CWD, at(path), uid.map(Uid::from_raw), gid.map(Gid::from_raw), nofollow)
        }
        Op::Utimens(path, atime, mtime) => {
            let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
            rustix::fs::utimensat(CWD, at(path), &times, nofollow)
        }
        Op::Rename(old, new, flags) => {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(CWD, at(old), CWD, at(new), flags)
        }
        Op::Link(old, new) => rustix::fs::link(at(old), at(new)),
        Op::Unlink(path) => rustix::fs::unlink(at(path)),
        Op::Symlink(target, path) => rustix::fs::symlink(target, at(path)),
        Op::Readlink(path) => rustix::fs::readlink(at(path), Vec::new()).map(drop),
        Op::Mkdir(path) => rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o777)),
        Op::Rmdir(path) => rustix::fs::rmdir(at(path)),
        Op::Mknod(path, mode) => {
            rustix::fs::mknodat(CWD, at(path), FileType::from_raw_mode(mode), Mode::from_raw_mode(mode), 0)
        }
        Op::Setxattr(path, name, value) => {
            rustix::fs::setxattr(at(path), name, value.as_bytes(), rustix::fs::XattrFlags::empty())
        }
        Op::Removexattr(path, name) => rustix::fs::removexattr(at(path), name),
        Op::Stat(path) => rustix::fs::statat(CWD, at(path), nofollow).map(drop),
    }
}

fn act_on_kernel(dir: &Path, file: &OwnedFd, act: Act) -> rustix::io::Result<()> {
    match act {
        Act::Nothing => Ok(()),
        Act::Read(len) => rustix::io::read(file, &mut vec![0; len][..]).map(drop),
        Act::Pread(len, offset) => rustix::io::pread(file, &mut vec![0; len][..], offset).map(drop),
        Act::Write(len) => rustix::io::write(file, &vec![1; len]).map(drop),
        Act::Pwrite(len, offset) => rustix::io::pwrite(file, &vec![1; len], offset).map(drop),
        Act::Ftruncate(size) => rustix::fs::ftruncate(file, size),
        Act::Fallocate(mode, offset, len) => {
            rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), offset, len)
        }
        Act::Fsync => rustix::fs::fsync(file),
        Act::Readdir => {
            let mut buffer = Vec::with_capacity(8192);
            let mut entries = rustix::fs::RawDir::new(file, buffer.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                entry?;
            }
            Ok(())
        }
        Act::CopyFrom(path, len) => {
            let from = rustix::fs::open(dir.join(path), OFlags::RDONLY, Mode::empty())?;
            rustix::fs::copy_file_range(from, None, file, None, len).map(drop)
        }
    }
}

fn timespec(time: SetTime) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        SetTime::Omit => (0, rustix::fs::UTIME_OMIT),
        SetTime::Now => (0, rustix::fs::UTIME_NOW),
        SetTime::At(time) => (time.secs(), time.nanos().into()),
    };
    Timespec { tv_sec, tv_nsec }
}

fn on_library(vfs: &Vfs, context: &Context, at: At<'_>, op: Op) -> pando_vfs::Result<()> {
    match op {
        Op::Open(path, flags, act) => {
            let file = vfs.open(context, at, path, flags, 0o666)?;
            match act {
                Act::Nothing => Ok(()),
                Act::Read(len) => file.read(&mut vec![0; len]).map(drop),
                Act::Pread(len, offset) => file.pread(&mut vec![0; len], offset).map(drop),
                Act::Write(len) => file.write(&vec![1; len]).map(drop),
                Act::Pwrite(len, offset) => file.pwrite(&vec![1; len], offset).map(drop),
                Act::Ftruncate(size) => file.truncate(size),
                Act::Fallocate(mode, offset, len) => file.fallocate(mode, offset, len),
                Act::Fsync => file.fsync(),
                Act::Readdir => file.readdir(0, |_| true).map(drop),
                Act::CopyFrom(path, len) => {
                    let mut bytes = vec![0; len];
                    let count = vfs.open(context, at, path, OpenFlags::RDONLY, 0)?.read(&mut bytes)?;
                    file.write(&bytes[..count]).map(drop)
                }
            }
        }
        Op::Truncate(path, size) => vfs.truncate(context, at, path, size),
        Op::Chmod(path, mode) => vfs.chmod(context, at, path, mode, Walk::empty()),
        Op::Chown(path, uid, gid) => vfs.chown(context, at, path, uid, gid, Walk::NOFOLLOW),
        Op::Utimens(path, atime, mtime) => vfs.utimens(context, at, path, atime, mtime, Walk::NOFOLLOW),
        Op::Rename(old, new, flags) => vfs.rename(context, at, old, at, new, flags),
        Op::Link(old, new) => vfs.link(context, at, old, at, new, Walk::NOFOLLOW).map(drop),
        Op::Unlink(path) => vfs.unlink(context, at, path),
        Op::Symlink(target, path) => vfs.symlink(context, target, at, path).map(drop),
        Op::Readlink(path) => vfs.readlink(context, at, path, Walk::NOFOLLOW).map(drop),
        Op::Mkdir(path) => vfs.mkdir(context, at, path, 0o777).map(drop),
        Op::Rmdir(path) => vfs.rmdir(context, at, path),
        Op::Mknod(path, mode) => vfs.mknod(context, at, path, mode, 0).map(drop),
        Op::Setxattr(path, name, value) => {
            vfs.setxattr(context, at, path, name, value.as_bytes(), XattrFlags::empty(), Walk::empty())
        }
        Op::Removexattr(path, name) => vfs.removexattr(context, at, path, name, Walk::empty()),
        Op::Stat(path) => vfs.stat(context, at, path, Walk::NOFOLLOW).map(drop),
    }
}

/// Long before any current time.
pub const LONG_AGO: SetTime = SetTime::At(Timestamp(1_000_000_000));
