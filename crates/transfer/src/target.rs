//! A directory, of a tree or of the host, that entries are copied into.
//!
//! Difficulties, and what answers each:
//! 1. *A path of the source may lead through a symbolic link*: [`Target::dir`] opens each directory
//!    on the way by itself, and [`Dir::open_dir`] follows no link.
//! 2. *Copying entries into a directory changes its mtime*, and a directory may be read-only: its
//!    metadata is set in [`Sink::finish`], deepest first.
//! 3. *A tree may be deeper than PATH_MAX allows*: the directories on the way are kept open, and
//!    only one name at a time is looked up.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Component, Path, PathBuf},
};

use pando_vfs::FileKind;

use crate::{
    Error, Options, Result, Summary,
    contents::{self, WriteAt},
    entry::{Body, Meta, Sink},
};

/// An open directory of a target. Names are single components.
pub(crate) trait Dir: Sized {
    type File: WriteAt;

    /// Opens a directory; a symbolic link is ENOTDIR or ELOOP.
    fn open_dir(&self, name: &OsStr) -> io::Result<Self>;
    /// Makes a directory that only the owner can use, until its metadata is set.
    fn make_dir(&self, name: &OsStr) -> io::Result<()>;
    /// Makes a file, open for writing.
    fn make_file(&self, name: &OsStr) -> io::Result<Self::File>;
    fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()>;
    fn make_special(&self, name: &OsStr, kind: FileKind, rdev: u64) -> io::Result<()>;
    /// Gives the file `old` in the directory `old_dir` the name `new` in this one.
    fn hard_link(&self, old_dir: &Self, old: &OsStr, new: &OsStr) -> io::Result<()>;

    fn set_file_meta(&self, file: &Self::File, meta: &Meta, options: &Options) -> io::Result<()>;
    /// Sets the metadata of an entry that is not opened: a symbolic link, a fifo, a device.
    fn set_meta(&self, name: &OsStr, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()>;
    /// Sets the metadata of this directory.
    fn set_own_meta(&self, meta: &Meta, options: &Options) -> io::Result<()>;
}

/// See the module.
pub(crate) struct Target<D> {
    root: D,
    options: Options,
    /// The directories from the root to the one that was used last, with their names.
    open: Vec<(OsString, D)>,
    /// Metadata that is set at the end.
    directories: Vec<(PathBuf, Meta)>,
    summary: Summary,
}

impl<D: Dir> Target<D> {
    pub(crate) fn new(root: D, options: Options) -> Self {
        Self { root, options, open: Vec::new(), directories: Vec::new(), summary: Summary::default() }
    }

    /// Opens the directory at a path. A missing directory is made: a tar stream may leave it out.
    fn dir(&mut self, path: &Path) -> io::Result<&D> {
        let names: Vec<&OsStr> = path.components().map(Component::as_os_str).collect();
        let shared = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(shared);
        for name in &names[shared..] {
            let above = self.open.last().map_or(&self.root, |(_, dir)| dir);
            let dir = match above.open_dir(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    above.make_dir(name)?;
                    above.open_dir(name)?
                }
                dir => dir?,
            };
            self.open.push(((*name).to_owned(), dir));
        }
        Ok(self.open.last().map_or(&self.root, |(_, dir)| dir))
    }

    fn try_put(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> io::Result<()> {
        if let Body::Directory = body {
            self.dir(path)?;
            self.directories.push((path.to_owned(), meta.clone()));
            self.summary.entries += u64::from(!path.as_os_str().is_empty());
            return Ok(());
        }
        let (options, mut bytes) = (self.options, 0);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if let Body::HardLink(old) = body {
            let old_name = old.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let old_dir = self.dir(parent(old))?.open_dir(OsStr::new("."))?;
            self.dir(parent(path))?.hard_link(&old_dir, old_name, name)?;
            self.summary.entries += 1;
            return Ok(());
        }
        let dir = self.dir(parent(path))?;
        match body {
            Body::File { size, contents } => {
                let file = dir.make_file(name)?;
                bytes = contents::copy(contents, size, &file)?;
                dir.set_file_meta(&file, meta, &options)?;
            }
            Body::Symlink(target) => {
                dir.make_symlink(name, target)?;
                dir.set_meta(name, FileKind::Symlink, meta, &options)?;
            }
            Body::Special(FileKind::CharDevice | FileKind::BlockDevice, _) if !options.privileged => {
                self.summary.left_out.push(path.to_owned());
                return Ok(());
            }
            Body::Special(kind, rdev) => {
                dir.make_special(name, kind, rdev)?;
                dir.set_meta(name, kind, meta, &options)?;
            }
            Body::Directory | Body::HardLink(_) => {}
        }
        self.summary.bytes += bytes;
        self.summary.entries += 1;
        Ok(())
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl<D: Dir> Sink for Target<D> {
    fn put(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> Result<()> {
        self.try_put(path, meta, body).map_err(|error| Error::new(path, error))
    }

    fn finish(mut self) -> Result<Summary> {
        let options = self.options;
        // A directory comes before its entries, so the deepest ones are last.
        while let Some((path, meta)) = self.directories.pop() {
            let set = self.dir(&path).and_then(|dir| dir.set_own_meta(&meta, &options));
            set.map_err(|error| Error::new(path, error))?;
        }
        Ok(self.summary)
    }
}
