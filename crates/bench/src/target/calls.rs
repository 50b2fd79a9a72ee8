//! A directory of the kernel: the system calls.

use std::{
    ffi::CStr,
    hint::black_box,
    io::{self, SeekFrom},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    buffer::spare_capacity,
    fs::{AtFlags, CWD, Mode, OFlags, RawDir, XattrFlags},
    io::Errno,
    path::DecInt,
    process,
};

use super::{
    Actor, Caches, Handle, Level, Listed, NO_CACHE, NOT_ALLOWED, Open, ReadAhead, Work, consume, records,
    unsupported_because,
};
use crate::base::path::TreePath;

/// Buffer size of a getdents64 call, the same as in glibc's readdir.
const ENTRIES: usize = 32 << 10;

/// The longest path (`PATH_MAX`).
const LONGEST: usize = 4096;

/// One thread's access to a directory.
pub(super) struct DirActor {
    root: PathBuf,
    tree: OwnedFd,
    scratch: Scratch,
    /// Whether the thread has a working directory of its own.
    own_cwd: bool,
}

/// Buffers that are reused between calls.
#[derive(Default)]
struct Scratch {
    entries: Vec<u8>,
    cwd: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl DirActor {
    pub(super) fn at(root: PathBuf) -> io::Result<Self> {
        // Each thread has its own descriptor. With a shared one, every call would count a reference
        // on the same open file. NOFOLLOW: a symbolic link may lead to a directory that is not
        // ours.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let tree = rustix::fs::open(&root, flags, Mode::empty())?;
        Ok(Self { root, tree, scratch: Scratch::default(), own_cwd: false })
    }

    /// Makes a directory the working directory of this thread alone. After that, a relative `root`
    /// is no longer valid.
    fn enter(&mut self, dir: impl AsFd) -> io::Result<()> {
        if !self.own_cwd {
            unshare(CloneFlags::CLONE_FS)?;
            self.own_cwd = true;
        }
        Ok(process::fchdir(dir)?)
    }

    fn handle(&self, path: &TreePath, how: Open) -> io::Result<DirHandle> {
        let flags = match how {
            Open::Read => OFlags::RDONLY,
            Open::Create => OFlags::RDWR | OFlags::CREATE,
        };
        let flags = flags | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.tree, path.relative_c(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(DirHandle { name: DecInt::from_fd(&file), file })
    }
}

impl Drop for DirActor {
    /// A working directory in the tree would keep its mount in use.
    fn drop(&mut self) {
        if self.own_cwd {
            _ = process::chdir("/");
        }
    }
}

impl Actor for DirActor {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.tree, path.relative_c(), Mode::RWXU)?)
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&self.tree, path.relative_c(), flags, Mode::RUSR | Mode::WUSR)?);
        Ok(())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.tree, path.relative_c(), AtFlags::empty())?)
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(consume(rustix::fs::statat(&self.tree, path.relative_c(), AtFlags::empty()))?)
    }

    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.tree, path.relative_c(), AtFlags::REMOVEDIR)?)
    }

    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.tree, from.relative_c(), &self.tree, to.relative_c())?)
    }

    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        drop(rustix::fs::openat(&self.tree, path.relative_c(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        Ok(())
    }

    fn open(&mut self, path: &TreePath) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(self.handle(path, Open::Create)?))
    }

    fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
        work(&self.handle(path, how)?)
    }

    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let fd = open_dir(&self.tree, dir.relative_c())?;
        if level >= Level::XattrNames {
            // getfattr also addresses files relative to the working directory. No calls on a
            // descriptor are available on all kernels. With whole paths, the cost would depend on
            // the depth of the tree.
            self.enter(&fd)?;
        }
        let Scratch { entries, names, value, .. } = &mut self.scratch;
        entries.reserve(ENTRIES);
        let mut listed = Listed::default();
        let mut raw = RawDir::new(&fd, entries.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            listed.entries += 1;
            if level >= Level::Stat {
                black_box(rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?);
            }
            if level >= Level::XattrNames {
                xattrs(name, level, (&mut *names, &mut *value), &mut listed)?;
            }
        }
        if level >= Level::XattrNames {
            // A working directory stays in the kernel's caches, which may have to be cold in the
            // next round.
            process::fchdir(&self.tree)?;
        }
        Ok(listed)
    }

    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        records::list(open_dir(&self.tree, dir.relative_c())?, level)
    }

    fn read_ahead(&mut self, dir: &TreePath, level: Level) -> io::Result<Box<dyn ReadAhead>> {
        records::read_ahead(self.root.join(dir.relative()), level)
    }

    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.tree, path.relative_c(), flags, Mode::empty())?;
        Ok(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())?)
    }

    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.enter(rustix::fs::openat(&self.tree, path.relative_c(), flags, Mode::empty())?)
    }

    fn getcwd(&mut self) -> io::Result<usize> {
        // The only safe call returns a string of exact length: the buffer shrinks each time, and
        // grows again.
        let buffer = std::mem::take(&mut self.scratch.cwd);
        let cwd = process::getcwd(buffer)?;
        let len = cwd.as_bytes().len();
        self.scratch.cwd = black_box(cwd).into_bytes();
        Ok(len)
    }

    fn drop_caches(&mut self, what: Caches) -> io::Result<()> {
        const TMPFS: u64 = 0x0102_1994;
        // A 32-bit number on every architecture.
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
        let kind = rustix::fs::fstatfs(&self.tree)?.f_type as u64 & 0xffff_ffff;
        if kind == TMPFS {
            // On tmpfs, the dentries and inodes are the file system itself.
            return unsupported_because(NO_CACHE);
        }
        rustix::fs::syncfs(open_dir(&self.tree, c".")?)?;
        match std::fs::write("/proc/sys/vm/drop_caches", if what == Caches::Inodes { "2" } else { "3" }) {
            // Only root may write it, and only where /proc is writable.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                unsupported_because(NOT_ALLOWED)
            }
            done => done,
        }
    }

    fn host_path(&self) -> Option<&Path> {
        Some(&self.root)
    }
}

fn open_dir(at: impl AsFd, path: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The extended attributes of one file in the working directory.
fn xattrs(
    file: &CStr,
    level: Level,
    (names, value): (&mut Vec<u8>, &mut Vec<u8>),
    listed: &mut Listed,
) -> rustix::io::Result<()> {
    grow(names, |names| rustix::fs::llistxattr(file, spare_capacity(names)))?;
    for name in names.split_inclusive(|&byte| byte == 0) {
        listed.xattrs += 1;
        if level >= Level::XattrValues {
            let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
            grow(value, |value| rustix::fs::lgetxattr(file, name, spare_capacity(value)))?;
            listed.value_bytes += value.len() as u64;
        }
    }
    Ok(())
}

/// Fills a buffer, and enlarges it while it is too small.
fn grow(
    buffer: &mut Vec<u8>,
    mut fill: impl FnMut(&mut Vec<u8>) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    const FIRST: usize = 1 << 10;
    const LAST: usize = 1 << 20;
    buffer.clear();
    buffer.reserve(FIRST);
    loop {
        match fill(buffer) {
            Err(Errno::RANGE) if buffer.capacity() < LAST => buffer.reserve(2 * buffer.capacity()),
            done => return done.map(drop),
        }
    }
}

/// An open file.
struct DirHandle {
    file: OwnedFd,
    /// Its name in the directory of this process's descriptors.
    name: DecInt,
}

/// The directory of this process's descriptors. It is opened once, so that rendering a path
/// involves no other path walk.
fn descriptors() -> io::Result<BorrowedFd<'static>> {
    static DIR: OnceLock<OwnedFd> = OnceLock::new();
    if DIR.get().is_none() {
        let dir = open_dir(CWD, c"/proc/self/fd")?;
        // If another thread was first, its descriptor is used.
        let _ = DIR.set(dir);
    }
    Ok(DIR.get().expect("set above").as_fd())
}

impl Handle for DirHandle {
    fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(offset) => rustix::fs::SeekFrom::Start(offset),
            SeekFrom::Current(delta) => rustix::fs::SeekFrom::Current(delta),
            SeekFrom::End(delta) => rustix::fs::SeekFrom::End(delta),
        };
        Ok(rustix::fs::seek(&self.file, to)?)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.file, buffer, offset)?)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.file, data)?)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, size)?)
    }

    fn fsync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.file)?)
    }

    fn path(&self) -> io::Result<usize> {
        // readlink of /proc/self/fd/N renders the path of an open file: the kernel's d_path.
        let mut buffer = [const { MaybeUninit::uninit() }; LONGEST];
        let (path, _) = rustix::fs::readlinkat_raw(descriptors()?, self.name.as_c_str(), &mut buffer)?;
        Ok(black_box(path).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_does_not_depend_on_depth_of_tree() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let mut root = temp.path().join("root");
        while root.as_os_str().len() < LONGEST - 250 {
            root.push("d".repeat(200));
        }
        // The path of a file below it is longer than PATH_MAX.
        root.push("d".repeat(LONGEST - 3 - root.as_os_str().len()));
        std::fs::create_dir_all(&root).expect("mkdir");
        let mut actor = DirActor::at(root).expect("it opens");
        actor.mkdir(&TreePath::new("d")).expect("mkdir");
        actor.create(&TreePath::new("d/f")).expect("create");
        for level in Level::ALL {
            assert_eq!(actor.list(&TreePath::new("d"), level).expect("listed").entries, 1, "{level:?}");
        }
    }
}
