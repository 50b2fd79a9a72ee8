//! A walk through a tree, as an iterator.
//!
//! Difficulties, and what answers each:
//! 1. *Another thread swaps a directory for a symbolic link* during the walk: each step opens one
//!    name in a directory that is open already, and follows nothing. The walk never leaves the
//!    tree.
//! 2. *A tree may be deeper than the stack, or its paths longer than PATH_MAX*: the way down is a
//!    list of open directories, and only the last name of a path is looked up.
//! 3. *Entries disappear*: a directory that is removed before it is opened has no entries.

use std::{
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    At, Error, FileKind,
    fs::{DirEntry, Fs, ReadDir},
};

type Filter<'a> = Box<dyn FnMut(&DirEntry) -> bool + 'a>;

/// The entries below a directory, depth first: each directory before its entries. Made by
/// [`Fs::walk`].
///
/// Symbolic links are returned and not followed. The order within a directory means nothing.
#[must_use = "an iterator does nothing until it is used"]
pub struct TreeWalk<'a> {
    fs: Fs,
    start: Option<PathBuf>,
    /// The directories from the start to the current one.
    levels: Vec<ReadDir>,
    /// Returned next: the contents of the entry before it could not be read.
    failed: Option<WalkError>,
    min_depth: usize,
    max_depth: usize,
    filter: Option<Filter<'a>>,
}

/// A directory that a [`TreeWalk`] could not read. The walk continues after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkError {
    path: PathBuf,
    error: Error,
}

impl Fs {
    /// Walks through the tree below a directory. The directory itself is not among the entries.
    ///
    /// ```
    /// use pando_memfs::{MemFs, MemOptions};
    /// use pando_vfs::fs::{DirEntry, Fs};
    ///
    /// let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    /// fs.create_dir_all("/src/.git/objects")?;
    /// fs.write("/src/main.rs", "fn main() {}")?;
    /// let hidden = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    /// let mut sources = Vec::new();
    /// for entry in fs.walk("/src").filter_entry(|entry| !hidden(entry)) {
    ///     sources.push(entry?.path());
    /// }
    /// assert_eq!(sources, [std::path::Path::new("/src/main.rs")]);
    /// # Ok::<(), pando_vfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// The items' errors: ENOTDIR, EACCES, and those of the walk to the directory; EACCES for
    /// directories below it.
    pub fn walk(&self, path: impl AsRef<Path>) -> TreeWalk<'static> {
        TreeWalk {
            fs: self.clone(),
            start: Some(path.as_ref().to_owned()),
            levels: Vec::new(),
            failed: None,
            min_depth: 1,
            max_depth: usize::MAX,
            filter: None,
        }
    }
}

impl<'a> TreeWalk<'a> {
    /// Returns only entries that are at least this deep. The entries of the directory itself have
    /// depth 1.
    pub fn min_depth(mut self, depth: usize) -> Self {
        self.min_depth = depth;
        self
    }

    /// Returns only entries that are at most this deep, and reads no deeper directories.
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Returns only entries for which `keep` is true. A directory for which it is false is not
    /// read. Entries above [`TreeWalk::min_depth`] are passed to it, too.
    pub fn filter_entry<'b>(self, keep: impl FnMut(&DirEntry) -> bool + 'b) -> TreeWalk<'b> {
        let Self { fs, start, levels, failed, min_depth, max_depth, filter: _ } = self;
        TreeWalk { fs, start, levels, failed, min_depth, max_depth, filter: Some(Box::new(keep)) }
    }

    /// Opens a directory that was found. None if it has disappeared or is something else by now.
    fn open(&self, entry: &DirEntry) -> Result<Option<ReadDir>, WalkError> {
        match self.fs.open_dir_itself(At::Dir(entry.parent()), entry.file_name().as_bytes()) {
            Ok(dir) => Ok(Some(ReadDir::new(self.fs.clone(), entry.path(), dir, entry.depth()))),
            Err(Error::NoEntry | Error::NotDirectory | Error::Loop) => Ok(None),
            Err(error) => Err(WalkError { path: entry.path(), error }),
        }
    }
}

impl Iterator for TreeWalk<'_> {
    type Item = Result<DirEntry, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        if let Some(path) = self.start.take() {
            match self.fs.read_dir(&path) {
                Ok(dir) => self.levels.push(dir),
                Err(error) => return Some(Err(WalkError { path, error })),
            }
        }
        loop {
            let level = self.levels.last_mut()?;
            let entry = match level.next() {
                Some(Ok(entry)) => entry,
                // A directory that was removed after it was opened has no more entries.
                None | Some(Err(Error::NoEntry)) => {
                    self.levels.pop();
                    continue;
                }
                Some(Err(error)) => {
                    let path = level.path().to_owned();
                    return Some(Err(WalkError { path, error }));
                }
            };
            let depth = entry.depth();
            if depth > self.max_depth || self.filter.as_mut().is_some_and(|keep| !keep(&entry)) {
                continue;
            }
            if entry.file_type() == FileKind::Directory && depth < self.max_depth {
                match self.open(&entry) {
                    Ok(dir) => self.levels.extend(dir),
                    Err(error) if depth < self.min_depth => return Some(Err(error)),
                    Err(error) => self.failed = Some(error),
                }
            }
            if depth >= self.min_depth {
                return Some(Ok(entry));
            }
        }
    }
}

impl std::iter::FusedIterator for TreeWalk<'_> {}

impl fmt::Debug for TreeWalk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeWalk").field("start", &self.start).field("levels", &self.levels).finish_non_exhaustive()
    }
}

impl WalkError {
    /// The directory that could not be read: the path that [`Fs::walk`] was given, and the names
    /// below.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> Error {
        self.error
    }
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for WalkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<WalkError> for Error {
    fn from(error: WalkError) -> Self {
        error.error
    }
}

impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> Self {
        Self::new(error.error.kind(), error)
    }
}
