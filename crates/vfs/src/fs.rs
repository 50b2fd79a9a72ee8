//! Files in the manner of `std::fs`, without the arguments of system calls.
//!
//! [`Fs`] is a [`Vfs`] and a [`Context`] together, so its calls take only a path. Paths are
//! [`Path`]s. A relative path starts at the working directory of the context, which is the root
//! unless it was changed. Open files are the [`File`]s of the namespace. They implement
//! [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`], so `BufReader` and `std::io::copy`
//! work with them. Errors are [`Error`]s; `?` makes [`std::io::Error`]s of them.
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
//! An [`Fs`], a [`Vfs`], a [`Context`] and a [`File`] are `Send`, `Sync` and `'static`: threads may
//! share one, or have a clone each, and it makes no difference to what runs in parallel. A clone of
//! an [`Fs`] is cheap and has a working directory of its own.
//!
//! ```
//! fn is_shareable<T: Send + Sync + 'static>() {}
//! is_shareable::<pando_vfs::fs::Fs>();
//! is_shareable::<pando_vfs::Vfs>();
//! is_shareable::<pando_vfs::Context>();
//! is_shareable::<pando_vfs::File>();
//! is_shareable::<pando_vfs::DentryRef>();
//! ```

mod io;
mod open_options;
mod read_dir;
mod remove_all;
mod tempfile;
mod tree_walk;

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

pub use open_options::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};
pub use tree_walk::{TreeWalk, WalkError};

use crate::{
    At, Context, Credentials, Driver, Error, File, OpenFlags, RenameFlags, Result, SetAttr, SetTime, Stat, Vfs, Walk,
};

/// How many bytes a copy reads at once.
const COPY_BYTES: usize = 64 * 1024;

/// A namespace as one caller sees it.
#[derive(Debug, Clone)]
pub struct Fs {
    /// Dropped before `vfs`: it refers to the tree, which is unmounted with the last `Vfs`.
    context: Context,
    vfs: Vfs,
}

/// The bytes of a path.
fn bytes(path: &(impl AsRef<Path> + ?Sized)) -> &[u8] {
    path.as_ref().as_os_str().as_bytes()
}

impl Fs {
    /// A new tree of `driver`, for root with umask 022.
    ///
    /// # Errors
    /// ENOSPC if the driver has no space for the root directory.
    pub fn new(driver: impl Driver) -> Result<Self> {
        let vfs = Vfs::new(driver)?;
        let context = Context::new(&vfs, Credentials::root());
        Ok(Self { vfs, context })
    }

    /// An existing namespace, as a context of it sees it.
    #[must_use]
    pub fn with_context(vfs: Vfs, context: Context) -> Self {
        Self { vfs, context }
    }

    /// The namespace, for the calls that this layer does not have.
    #[must_use]
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// The credentials, the root and the working directory of the calls.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The path of the working directory, as [`Vfs::getcwd`] returns it.
    ///
    /// # Errors
    /// ENOENT if it was removed.
    pub fn current_dir(&self) -> Result<PathBuf> {
        self.vfs.getcwd(&self.context, usize::MAX).map(path_of)
    }

    /// Changes the working directory of this `Fs`.
    ///
    /// # Errors
    /// ENOTDIR, EACCES, and those of the walk.
    pub fn set_current_dir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.chdir(&mut self.context, At::Cwd, bytes(&path))
    }

    /// Opens a file for reading. [`OpenOptions`] has the other ways.
    ///
    /// # Errors
    /// ENOENT, EACCES, and those of the walk.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.vfs.open(&self.context, At::Cwd, bytes(&path), OpenFlags::RDONLY, 0)
    }

    /// Opens a file for writing. It is made if it does not exist, and truncated if it does.
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
    /// EISDIR, ENOMEM if the memory is too small, and those of [`Fs::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        read_to_end(&self.open(path)?)
    }

    /// The whole contents of a file, as text.
    ///
    /// # Errors
    /// [`Error::InvalidUtf8`] if the contents are not UTF-8, and those of [`Fs::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::InvalidUtf8)
    }

    /// Replaces the whole contents of a file, which is made if it does not exist.
    ///
    /// # Errors
    /// ENOSPC, and those of [`Fs::create`]. The part that was written before the error stays.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        write_all(&self.create(path)?, contents.as_ref())
    }

    /// Copies the contents and the permission bits of a file, and returns the number of bytes. The
    /// target is made, or overwritten in place.
    ///
    /// # Errors
    /// EINVAL if both are the same file, which is then unchanged, or if the source is not a regular
    /// file; and those of [`Fs::open`], [`Fs::create`] and [`Fs::set_permissions`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(from)?;
        let stat = source.stat();
        if !stat.is_file() {
            return Err(Error::Invalid);
        }
        // Opened without truncation: it may be a hard link to the source.
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
        let change = SetAttr::new().mode(stat.mode);
        self.vfs.setattr(&self.context, target.dentry(), &change)?;
        Ok(copied)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, ENOENT if the parent does not exist, EACCES, ENOSPC, and those of the walk.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.vfs.mkdir(&self.context, At::Cwd, bytes(&path), 0o777).map(drop)
    }

    /// Makes a directory and all its missing ancestors. A directory that exists already, or that
    /// another thread makes during the call, is no error.
    ///
    /// # Errors
    /// ENOTDIR or EEXIST if a component exists and is not a directory; otherwise as
    /// [`Fs::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        // Up to the first ancestor that exists or can be made; then down again.
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

    /// Removes the name of a file that is not a directory. The file is freed when it has no name
    /// and is not open.
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

    /// Renames a file or directory. A file at the new path is replaced, as by rename(2).
    ///
    /// # Errors
    /// Those of [`Vfs::rename`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.vfs.rename(&self.context, At::Cwd, bytes(&from), At::Cwd, bytes(&to), RenameFlags::empty())
    }

    /// Makes `link` a hard link to the file at `original`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of [`Vfs::link`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (bytes(&original), bytes(&link));
        self.vfs.link(&self.context, At::Cwd, original, At::Cwd, link, Walk::NOFOLLOW).map(drop)
    }

    /// Makes a symbolic link at `link` with the target `original`, which need not exist.
    ///
    /// # Errors
    /// EEXIST, ENOENT for an empty target, ENAMETOOLONG, EACCES, ENOSPC, and those of the walk.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.vfs.symlink(&self.context, bytes(&original), At::Cwd, bytes(&link)).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the file is not a symbolic link, and those of the walk.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.vfs.readlink(&self.context, At::Cwd, bytes(&path), Walk::empty()).map(path_of)
    }

    /// The attributes of the file at a path; a symbolic link is followed.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.vfs.stat(&self.context, At::Cwd, bytes(&path), Walk::empty())
    }

    /// The attributes of the file at a path; a symbolic link is not followed.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.vfs.stat(&self.context, At::Cwd, bytes(&path), Walk::NOFOLLOW)
    }

    /// Whether the file at a path exists; a symbolic link is followed.
    ///
    /// # Errors
    /// EACCES, ELOOP, ENAMETOOLONG and EINVAL: the walk did not find out.
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

    /// Sets atime and mtime of the file at a path; a symbolic link is followed.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use pando_memfs::{MemFs, MemOptions};
    /// use pando_vfs::{SetTime, fs::Fs};
    ///
    /// let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    /// fs.write("/log", "")?;
    /// let yesterday = SystemTime::now() - Duration::from_secs(86400);
    /// fs.set_times("/log", SetTime::Omit, yesterday)?;
    /// assert_eq!(SystemTime::from(fs.metadata("/log")?.mtime), yesterday);
    /// # Ok::<(), pando_vfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EPERM and EACCES for others than the owner, and those of the walk.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        atime: impl Into<SetTime>,
        mtime: impl Into<SetTime>,
    ) -> Result<()> {
        self.vfs.utimens(&self.context, At::Cwd, bytes(&path), atime.into(), mtime.into(), Walk::empty())
    }

    /// The absolute path of the file at a path, from the root of the context, without symbolic
    /// links, `.` and `..`.
    ///
    /// # Errors
    /// ENOENT if the file is removed during the call, and those of the walk.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let dentry = self.vfs.lookup(&self.context, At::Cwd, bytes(&path), Walk::empty())?;
        let rendered = self.vfs.render(&self.context, &dentry, usize::MAX)?;
        if rendered.deleted { Err(Error::NoEntry) } else { Ok(path_of(rendered.path)) }
    }
}

/// The path of these bytes.
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// Reads from the position to the end of the file.
fn read_to_end(file: &File) -> Result<Vec<u8>> {
    // The size is a hint, since the file may change. With one byte more, the first read usually
    // reaches the end.
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

/// Writes all of `data` at the position.
fn write_all(file: &File, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match file.write(data)? {
            0 => return Err(Error::NoSpace),
            count => data = &data[count..],
        }
    }
    Ok(())
}
