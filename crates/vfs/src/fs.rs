//! A layer in the manner of `std::fs`, for who wants files and not system calls.
//!
//! [`Fs`] is a [`Vfs`] and a [`Context`] together: the calls take a path and nothing else. Paths are [`Path`]s; a
//! relative one starts at the context's working directory, which is the root unless it was changed. Open files are the
//! [`File`]s of the name space itself, with [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`] on top, so
//! whatever takes those (a `BufReader`, `std::io::copy`) takes them. Errors are [`Error`]s, and `?` makes
//! [`std::io::Error`]s of them where a function returns those.
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//!
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_vfs::fs::Fs;
//!
//! fn main() -> std::io::Result<()> {
//!     let fs = Fs::new(MemFs::new(MemOptions::default()))?;
//!     fs.create_dir_all("/var/log")?;
//!     let mut log = fs.create("/var/log/messages")?;
//!     writeln!(log, "all is well")?;
//!     writeln!(log, "still is")?;
//!     let lines = BufReader::new(fs.open("/var/log/messages")?).lines().count();
//!     assert_eq!(lines, 2);
//!     Ok(())
//! }
//! ```
//!
//! Clones are cheap and independent: each has a working directory of its own. Threads may share one `Fs`, or a clone
//! each; it makes no difference to how much runs in parallel.

mod io;
mod open_options;
mod read_dir;
mod remove_all;

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

pub use open_options::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};

use crate::{At, Context, Credentials, Driver, Error, File, OpenFlags, RenameFlags, Result, SetAttr, Stat, Vfs, Walk};

/// How much is copied at once.
const COPY_BYTES: usize = 64 * 1024;

/// A name space as one caller sees it.
#[derive(Debug, Clone)]
pub struct Fs {
    /// Before `vfs`: it holds the tree, which goes with the last `Vfs`.
    context: Context,
    vfs: Vfs,
}

/// The bytes of a path, as the name space takes them.
fn bytes(path: &(impl AsRef<Path> + ?Sized)) -> &[u8] {
    path.as_ref().as_os_str().as_bytes()
}

impl Fs {
    /// A new tree of `driver`, seen by the superuser with umask 022.
    ///
    /// # Errors
    /// ENOSPC when the driver has no room for the root directory.
    pub fn new(driver: impl Driver) -> Result<Self> {
        let vfs = Vfs::new(driver)?;
        let context = Context::new(&vfs, Credentials::root());
        Ok(Self { vfs, context })
    }

    /// An existing name space, seen from a context of it.
    #[must_use]
    pub fn with_context(vfs: Vfs, context: Context) -> Self {
        Self { vfs, context }
    }

    /// The name space below: for everything that has no call here.
    #[must_use]
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Who asks, and from where.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The working directory, as [`Vfs::getcwd`] has it.
    ///
    /// # Errors
    /// ENOENT when it was removed.
    pub fn current_dir(&self) -> Result<PathBuf> {
        self.vfs.getcwd(&self.context, usize::MAX).map(path_of)
    }

    /// Changes the working directory, of this `Fs` only.
    ///
    /// # Errors
    /// ENOTDIR, EACCES, and those of the walk.
    pub fn set_current_dir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.chdir(&mut self.context, At::Cwd, bytes(&path))
    }

    /// Opens a file for reading. More ways to open: [`OpenOptions`].
    ///
    /// # Errors
    /// ENOENT, EACCES, and those of the walk.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.vfs.open(&self.context, At::Cwd, bytes(&path), OpenFlags::RDONLY, 0)
    }

    /// Opens a file for writing: makes it if it is missing, empties it if it is there.
    ///
    /// # Errors
    /// EISDIR, EACCES, ENOSPC, and those of the walk.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::TRUNC;
        self.vfs.open(&self.context, At::Cwd, bytes(&path), flags, 0o666)
    }

    /// The whole contents of a file.
    ///
    /// # Errors
    /// EISDIR, ENOMEM if memory cannot hold them, and those of [`Fs::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        read_to_end(&self.open(path)?)
    }

    /// The whole contents of a file, as text.
    ///
    /// # Errors
    /// EINVAL if they are not UTF-8, and those of [`Fs::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::Invalid)
    }

    /// Makes `contents` the whole contents of a file, which is made if it is missing.
    ///
    /// # Errors
    /// ENOSPC, and those of [`Fs::create`]. What was written before the failure stays.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        write_all(&self.create(path)?, contents.as_ref())
    }

    /// Copies contents and permission bits of a file; returns how many bytes. The target is made, or replaced in place.
    ///
    /// # Errors
    /// EINVAL if both are the same file (which is then left alone) or the source is no regular file, and those of
    /// [`Fs::open`], [`Fs::create`] and [`Fs::set_permissions`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(from)?;
        let stat = source.stat();
        if !stat.is_file() {
            return Err(Error::Invalid);
        }
        // Not emptied by opening it: it may be the source, by another name.
        let flags = OpenFlags::WRONLY | OpenFlags::CREAT;
        let target = self.vfs.open(&self.context, At::Cwd, bytes(&to), flags, stat.mode & 0o777)?;
        let there = target.stat();
        if (there.dev, there.ino) == (stat.dev, stat.ino) {
            return Err(Error::Invalid);
        }
        target.truncate(0)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut copied = 0;
        loop {
            let count = source.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            write_all(&target, &buffer[..count])?;
            copied += count as u64;
        }
        let change = SetAttr { mode: Some(stat.mode), ..SetAttr::default() };
        self.vfs.setattr(&self.context, target.dentry(), &change)?;
        Ok(copied)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, ENOENT when the parent is missing, EACCES, ENOSPC, and those of the walk.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.mkdir(&self.context, At::Cwd, bytes(&path), 0o777).map(drop)
    }

    /// Makes a directory and all that are missing above it. Fine if it is there already, or if others make it meanwhile.
    ///
    /// # Errors
    /// ENOTDIR or EEXIST if something else is in the way; otherwise as [`Fs::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        // Up to the first that is there, or can be made; then down again.
        let mut missing = Vec::new();
        for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
            match self.make_or_find_dir(ancestor) {
                Ok(()) => break,
                Err(Error::NoEntry) => missing.push(ancestor),
                Err(error) => return Err(error),
            }
        }
        missing.into_iter().rev().try_for_each(|dir| self.make_or_find_dir(dir))
    }

    fn make_or_find_dir(&self, path: &Path) -> Result<()> {
        match self.create_dir(path) {
            Err(Error::Exists) if self.metadata(path).is_ok_and(|stat| stat.is_dir()) => Ok(()),
            made => made,
        }
    }

    /// Removes a file's name (not a directory's). The file goes with its last name, when nobody has it open.
    ///
    /// # Errors
    /// EISDIR, ENOENT, EACCES, EPERM, and those of the walk.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.unlink(&self.context, At::Cwd, bytes(&path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY, ENOTDIR, EBUSY, ENOENT, EACCES, and those of the walk.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.rmdir(&self.context, At::Cwd, bytes(&path))
    }

    /// Moves a file or directory, over what is at the new path if that can be replaced.
    ///
    /// # Errors
    /// Those of [`Vfs::rename`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.vfs.rename(&self.context, At::Cwd, bytes(&from), At::Cwd, bytes(&to), RenameFlags::empty())
    }

    /// Makes a further name, `link`, for the file at `original` (for a symbolic link itself, if it is one).
    ///
    /// # Errors
    /// Those of [`Vfs::link`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (bytes(&original), bytes(&link));
        self.vfs.link(&self.context, At::Cwd, original, At::Cwd, link, Walk::NOFOLLOW).map(drop)
    }

    /// Makes a symbolic link at `link` that leads to `original`, which need not be there.
    ///
    /// # Errors
    /// EEXIST, ENOENT for an empty target, ENAMETOOLONG, EACCES, ENOSPC, and those of the walk.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.vfs.symlink(&self.context, bytes(&original), At::Cwd, bytes(&link)).map(drop)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// EINVAL if it is none, and those of the walk.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.vfs.readlink(&self.context, At::Cwd, bytes(&path), Walk::empty()).map(path_of)
    }

    /// Everything about the file at a path; a symbolic link is followed.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.vfs.stat(&self.context, At::Cwd, bytes(&path), Walk::empty())
    }

    /// Everything about the file at a path; a symbolic link is not followed.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.vfs.stat(&self.context, At::Cwd, bytes(&path), Walk::NOFOLLOW)
    }

    /// Whether something is at a path; a symbolic link is followed.
    ///
    /// # Errors
    /// What keeps us from knowing: EACCES, ELOOP, ENAMETOOLONG, EINVAL.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::NoEntry | Error::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the permission bits (07777) of the file at a path; a symbolic link is followed.
    ///
    /// # Errors
    /// EPERM for others than the owner, and those of the walk.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.vfs.chmod(&self.context, At::Cwd, bytes(&path), mode, Walk::empty())
    }
}

/// A path from the name space's bytes.
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// Reads from the position to the end.
fn read_to_end(file: &File) -> Result<Vec<u8>> {
    // The size is a hint: the file may change meanwhile. One byte more, so that the end is usually seen at once.
    let mut more = usize::try_from(file.stat().size).unwrap_or(usize::MAX).saturating_add(1);
    let mut contents = Vec::new();
    let mut filled = 0;
    loop {
        if filled == contents.len() {
            contents.try_reserve_exact(more).map_err(|_| Error::NoMemory)?;
            contents.resize(filled + more, 0);
            more = contents.len().max(COPY_BYTES);
        }
        let count = file.read(&mut contents[filled..])?;
        filled += count;
        if count == 0 {
            contents.truncate(filled);
            return Ok(contents);
        }
    }
}

/// Writes everything at the position.
fn write_all(file: &File, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match file.write(data)? {
            0 => return Err(Error::NoSpace),
            count => data = &data[count..],
        }
    }
    Ok(())
}
