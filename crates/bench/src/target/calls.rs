//! A directory of the kernel's: the system calls.

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

use super::{Actor, Forget, Handle, Level, Listed, NO_CACHE, NOT_ALLOWED, Open, Work, lacks, records, take};
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
    cwd: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl DirActor {
    pub(super) fn at(root: PathBuf) -> io::Result<Self> {
        // A descriptor of its own: with a shared one, threads would count on the same open file at each call.
        // Nor is it somebody else's directory, where a link leads to.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let tree = rustix::fs::open(&root, flags, Mode::empty())?;
        Ok(Self { root, tree, scratch: Scratch::default(), own_cwd: false })
    }

    /// Makes a directory the working directory of this thread alone. After that `root` may not lead where it did.
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
        Ok(take(rustix::fs::statat(&self.tree, path.relative_c(), AtFlags::empty()))?)
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
            // There are calls for what stands in the working directory, and so getfattr asks, but none by a descriptor that all
            // kernels have. By a whole path, each would pay for how deep the tree lies.
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
            // What somebody works in stays in the kernel's caches, and they may have to be cold.
            process::fchdir(&self.tree)?;
        }
        Ok(listed)
    }

    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        records::list(open_dir(&self.tree, dir.relative_c())?, level)
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
        // The only safe call gives a string of its own length: the buffer is made smaller each time, and larger again.
        let buffer = std::mem::take(&mut self.scratch.cwd);
        let cwd = process::getcwd(buffer)?;
        let len = cwd.as_bytes().len();
        self.scratch.cwd = black_box(cwd).into_bytes();
        Ok(len)
    }

    fn forget(&mut self, what: Forget) -> io::Result<()> {
        const TMPFS: u64 = 0x0102_1994;
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)] // A number of 32 bits on every machine.
        let kind = rustix::fs::fstatfs(&self.tree)?.f_type as u64 & 0xffff_ffff;
        if kind == TMPFS {
            // Its names and inodes are the cache.
            return lacks(NO_CACHE);
        }
        rustix::fs::syncfs(open_dir(&self.tree, c".")?)?;
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
        let dir = open_dir(CWD, c"/proc/self/fd")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_does_not_depend_on_how_deep_the_tree_lies() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let mut root = temp.path().join("root");
        while root.as_os_str().len() < LONGEST - 250 {
            root.push("d".repeat(200));
        }
        // The path of a file below it is too long for a call.
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
