//! A directory's entries, as an iterator.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{At, File, FileKind, OpenFlags, Result, Stat, Walk, fs::Fs};

/// How many entries are fetched at once.
const BATCH: usize = 256;

/// The entries of a directory. Made by [`Fs::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    fs: Fs,
    path: PathBuf,
    dir: File,
    cookie: u64,
    fetched: VecDeque<(OsString, u64, FileKind)>,
    /// The last fetch saw the end, or failed.
    done: bool,
}

impl Fs {
    /// The entries of a directory, without `.` and `..`, in no order that means anything.
    ///
    /// What is there from the first to the last call of the iterator is met exactly once, whatever is made and removed
    /// meanwhile.
    ///
    /// # Errors
    /// ENOTDIR, EACCES, and those of the walk; the iterator's items: ENOENT when the directory was removed.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let dir = self.vfs.open(&self.context, At::Cwd, super::bytes(&path), flags, 0)?;
        Ok(ReadDir::new(self.clone(), path.as_ref().to_owned(), dir))
    }
}

impl ReadDir {
    fn new(fs: Fs, path: PathBuf, dir: File) -> Self {
        Self { fs, path, dir, cookie: 0, fetched: VecDeque::new(), done: false }
    }

    fn fetch(&mut self) -> Result<()> {
        let (fetched, cookie, mut full) = (&mut self.fetched, &mut self.cookie, false);
        self.dir.readdir(*cookie, |entry| {
            if fetched.len() == BATCH {
                full = true;
                return false;
            }
            *cookie = entry.cookie;
            if !matches!(entry.name, b"." | b"..") {
                fetched.push_back((OsString::from_vec(entry.name.to_vec()), entry.ino, entry.kind));
            }
            true
        })?;
        self.done = !full;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.is_empty()
            && !self.done
            && let Err(error) = self.fetch()
        {
            self.done = true;
            return Some(Err(error));
        }
        let (name, ino, kind) = self.fetched.pop_front()?;
        let (fs, path) = (self.fs.clone(), self.path.join(&name));
        Some(Ok(DirEntry { fs, parent: self.dir.dentry().clone(), path, name, ino, kind }))
    }
}

impl std::iter::FusedIterator for ReadDir {}

/// One entry of a directory.
#[derive(Debug)]
pub struct DirEntry {
    fs: Fs,
    parent: crate::DentryRef,
    path: PathBuf,
    name: OsString,
    ino: u64,
    kind: FileKind,
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The path: what [`Fs::read_dir`] was given, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// What it was when it was read.
    #[must_use]
    pub fn file_type(&self) -> FileKind {
        self.kind
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Everything about it, now; a symbolic link is not followed. Found in the directory that was read, also if that
    /// has moved.
    ///
    /// # Errors
    /// ENOENT when the entry is gone, EACCES.
    pub fn metadata(&self) -> Result<Stat> {
        let at = At::Dir(&self.parent);
        self.fs.vfs.stat(&self.fs.context, at, self.name.as_bytes(), Walk::NOFOLLOW)
    }
}
