//! The entries of a directory, as an iterator.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{At, File, FileKind, OpenFlags, Result, Stat, Walk, fs::Fs};

/// How many entries one readdir call fetches.
const BATCH: usize = 256;

/// The entries of a directory. Made by [`Fs::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    fs: Fs,
    path: PathBuf,
    dir: File,
    /// How many directories are above the entries, from the start of a walk.
    depth: usize,
    cookie: u64,
    fetched: VecDeque<(OsString, u64, FileKind)>,
    /// Whether the last fetch reached the end, or failed.
    done: bool,
}

impl Fs {
    /// The entries of a directory, without `.` and `..`. Their order means nothing.
    ///
    /// An entry that exists during the whole iteration is returned exactly once, whatever other
    /// threads make and remove.
    ///
    /// # Errors
    /// ENOTDIR, EACCES, and those of the walk. An item of the iterator: ENOENT if the directory was
    /// removed.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let dir = self.vfs.open(&self.context, At::Cwd, super::bytes(&path), flags, 0)?;
        Ok(ReadDir::new(self.clone(), path.as_ref().to_owned(), dir, 0))
    }

    /// Opens a directory and follows no symbolic link at the end, which is ENOTDIR or ELOOP.
    pub(super) fn open_dir_itself(&self, at: At<'_>, name: &[u8]) -> Result<File> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
        self.vfs.open(&self.context, at, name, flags, 0)
    }
}

impl ReadDir {
    /// The entries of `dir`, a directory that is `depth` directories below the start of a walk.
    pub(super) fn new(fs: Fs, path: PathBuf, dir: File, depth: usize) -> Self {
        Self { fs, path, dir, depth: depth + 1, cookie: 0, fetched: VecDeque::new(), done: false }
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
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
        let (fs, path, depth) = (self.fs.clone(), self.path.join(&name), self.depth);
        Some(Ok(DirEntry { fs, parent: self.dir.dentry().clone(), path, name, ino, kind, depth }))
    }
}

impl std::iter::FusedIterator for ReadDir {}

/// An entry of a directory, from [`Fs::read_dir`] or [`Fs::walk`].
#[derive(Debug, Clone)]
pub struct DirEntry {
    fs: Fs,
    parent: crate::DentryRef,
    path: PathBuf,
    name: OsString,
    ino: u64,
    kind: FileKind,
    depth: usize,
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The path: that of the directory that the iterator was made for, and the names below it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The kind of file, at the time when the directory was read.
    #[must_use]
    pub fn file_type(&self) -> FileKind {
        self.kind
    }

    /// The inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// How many directories there are from the start to the entry, including its own: 1 for an
    /// entry of [`Fs::read_dir`].
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The directory that was read.
    pub(super) fn parent(&self) -> &crate::DentryRef {
        &self.parent
    }

    /// The dentry that the name leads to now. A symbolic link is not followed. The calls of
    /// [`crate::Vfs`] take it as a starting point ([`At::Dir`]) with an empty path
    /// ([`Walk::EMPTY_PATH`]).
    ///
    /// # Errors
    /// ENOENT if the entry was removed, EACCES.
    pub fn dentry(&self) -> Result<crate::DentryRef> {
        self.fs.vfs.lookup(&self.fs.context, At::Dir(&self.parent), self.name.as_bytes(), Walk::NOFOLLOW)
    }

    /// The current attributes. A symbolic link is not followed. The name is looked up in the
    /// directory that was read, also if that directory has moved.
    ///
    /// # Errors
    /// ENOENT if the entry was removed, EACCES.
    pub fn metadata(&self) -> Result<Stat> {
        let at = At::Dir(&self.parent);
        self.fs.vfs.stat(&self.fs.context, at, self.name.as_bytes(), Walk::NOFOLLOW)
    }
}
