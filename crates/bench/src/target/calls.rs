//! A directory of the kernel's: the system calls.

use std::{
    ffi::CStr,
    hint::black_box,
    io::{self, SeekFrom},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    buffer::spare_capacity,
    fs::{AtFlags, Mode, OFlags, RawDir, XattrFlags},
    io::Errno,
    path::DecInt,
    process,
};

use super::{Actor, Forget, Handle, Level, Listed, NO_CACHE, NOT_ALLOWED, Open, Work, lacks, records};
use crate::path::TreePath;

/// What one getdents64 may fill: as much as glibc's readdir gives it.
const ENTRIES: usize = 32 << 10;

/// No path is longer (`PATH_MAX`).
const LONGEST: usize = 4096;

/// One thread's access to a directory.
pub(super) struct DirActor {
    root: PathBuf,
    tree: OwnedFd,
    scratch: Scratch,
    /// Whether the working directory is this thread's alone.
    own_cwd: bool,
}

/// Buffers kept from call to call.
#[derive(Default)]
struct Scratch {
    entries: Vec<u8>,
    path: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl DirActor {
    pub(super) fn at(root: PathBuf) -> io::Result<Self> {
        // A descriptor of its own: with a shared one, threads would count on the same open file at each call.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tree = rustix::fs::open(&root, flags, Mode::empty())?;
        Ok(Self { root, tree, scratch: Scratch::default(), own_cwd: false })
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
        black_box(rustix::fs::statat(&self.tree, path.relative_c(), AtFlags::empty())?);
        Ok(())
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.tree, dir.relative_c(), flags, Mode::empty())?;
        let Scratch { entries, path, names, value } = &mut self.scratch;
        entries.reserve(ENTRIES);
        // Extended attributes are asked for by path, as getfattr does.
        path.clear();
        path.extend_from_slice(self.root.as_os_str().as_bytes());
        path.push(b'/');
        path.extend_from_slice(dir.relative().as_bytes());
        path.push(b'/');
        let prefix = path.len();
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
                path.truncate(prefix);
                path.extend_from_slice(name.to_bytes_with_nul());
                let path = CStr::from_bytes_with_nul(path).map_err(|_| Errno::INVAL)?;
                xattrs(path, level, (&mut *names, &mut *value), &mut listed)?;
            }
        }
        Ok(listed)
    }

    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        records::list(rustix::fs::openat(&self.tree, dir.relative_c(), flags, Mode::empty())?, level)
    }

    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        let path = self.root.join(path.relative());
        Ok(rustix::fs::setxattr(path, name, value, XattrFlags::empty())?)
    }

    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        if !self.own_cwd {
            unshare(CloneFlags::CLONE_FS)?;
            self.own_cwd = true;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(process::fchdir(rustix::fs::openat(&self.tree, path.relative_c(), flags, Mode::empty())?)?)
    }

    fn getcwd(&mut self) -> io::Result<usize> {
        let buffer = std::mem::take(&mut self.scratch.path);
        let cwd = process::getcwd(buffer)?;
        let len = cwd.as_bytes().len();
        self.scratch.path = black_box(cwd).into_bytes();
        Ok(len)
    }

    fn forget(&mut self, what: Forget) -> io::Result<()> {
        const TMPFS: u64 = 0x0102_1994;
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)] // A number of 32 bits on every machine.
        let kind = rustix::fs::statfs(&self.root)?.f_type as u64 & 0xffff_ffff;
        if kind == TMPFS {
            // Its names and inodes are the cache.
            return lacks(NO_CACHE);
        }
        rustix::fs::syncfs(open_dir(&self.root)?)?;
        match std::fs::write("/proc/sys/vm/drop_caches", if what == Forget::Inodes { "2" } else { "3" }) {
            // Only root may, and only where /proc can be written to.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                lacks(NOT_ALLOWED)
            }
            done => done,
        }
    }

    fn host_path(&self) -> Option<&Path> {
        Some(&self.root)
    }
}

fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The extended attributes of one file.
fn xattrs(
    path: &CStr,
    level: Level,
    (names, value): (&mut Vec<u8>, &mut Vec<u8>),
    listed: &mut Listed,
) -> rustix::io::Result<()> {
    grow(names, |names| rustix::fs::llistxattr(path, spare_capacity(names)))?;
    for name in names.split_inclusive(|&byte| byte == 0) {
        listed.xattrs += 1;
        if level >= Level::XattrValues {
            let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
            grow(value, |value| rustix::fs::lgetxattr(path, name, spare_capacity(value)))?;
            listed.value_bytes += value.len() as u64;
        }
    }
    Ok(())
}

/// Fills a buffer, a larger one as long as it is too small.
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
    /// In the directory of this process's descriptors.
    name: DecInt,
}

/// The directory of this process's descriptors: opened once, so that a path is rendered and no other walked.
fn descriptors() -> io::Result<BorrowedFd<'static>> {
    static DIR: OnceLock<OwnedFd> = OnceLock::new();
    if DIR.get().is_none() {
        let dir = open_dir(Path::new("/proc/self/fd"))?;
        // Another thread's is as good.
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
