//! A directory, of a tree or of the host, that entries are copied into.
//!
//! Difficulties, and what answers each:
//! 1. *A path of the source may lead through a symbolic link*: [`Target::level`] opens each
//!    directory on the way by itself, and [`Dir::open_dir`] follows no link.
//! 2. *Copying entries into a directory changes its mtime*, and a directory may be read-only: its
//!    metadata is set in [`Sink::finish`], deepest first.
//! 3. *A tree may be deeper than PATH_MAX allows*: the directories on the way are kept open, and
//!    only one name at a time is looked up.
//! 4. *Each call on a mount is a request to a server*: small entries of a directory are collected
//!    and made in one call ([`Batch`]), if the directory takes records. They are made before the
//!    directory is closed, and before anything that depends on them.

use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use pando_vfs::FileKind;

use crate::{
    Error, Options, Result, Summary,
    batch::{Batch, SmallFile},
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

    /// Whether this is a directory of the host with this device and inode number.
    fn is_host_dir(&self, dir: (u64, u64)) -> bool {
        let _ = dir;
        false
    }

    /// Whether [`Dir::make_many`] works. In the same process it would have no advantage.
    fn takes_records(&self) -> bool {
        false
    }
    /// Makes the entries of these records, with their metadata. On an error, also returns how many
    /// were made before.
    fn make_many(&self, records: &[u8]) -> std::result::Result<(), (usize, io::Error)> {
        let _ = records;
        Err((0, io::ErrorKind::Unsupported.into()))
    }
}

/// See the module.
pub(crate) struct Target<D> {
    options: Options,
    /// The directories from the target itself to the one that was used last.
    levels: Vec<Level<D>>,
    /// Metadata that is set at the end.
    directories: Vec<(PathBuf, Meta)>,
    summary: Summary,
}

/// An open directory.
struct Level<D> {
    /// Empty for the target itself.
    name: OsString,
    dir: D,
    /// Its entries that are not made yet. Empty before the first one; none if it takes no records.
    batch: OnceCell<Option<Batch>>,
}

impl<D: Dir> Level<D> {
    fn new(name: &OsStr, dir: D) -> Self {
        Self { name: name.to_owned(), dir, batch: OnceCell::new() }
    }

    /// The batch, if the directory takes records.
    fn batch(&mut self) -> Option<&mut Batch> {
        self.batch.get_or_init(|| self.dir.takes_records().then(Batch::new));
        self.begun_batch()
    }

    fn begun_batch(&mut self) -> Option<&mut Batch> {
        self.batch.get_mut()?.as_mut()
    }

    /// Makes the entries of the batch. On an error, also returns the name of the entry.
    fn make_batch(&mut self) -> std::result::Result<(), (OsString, io::Error)> {
        let Some(batch) = self.batch.get_mut().and_then(Option::as_mut) else { return Ok(()) };
        if batch.is_empty() {
            return Ok(());
        }
        let made = self.dir.make_many(batch.records());
        let made = made.map_err(|(count, error)| (batch.name(count).to_owned(), error));
        batch.clear();
        made
    }

    /// Opens a directory in this one, and makes it if it is missing.
    fn enter(&mut self, name: &OsStr) -> io::Result<D> {
        if self.begun_batch().is_some_and(|batch| batch.contains(name)) {
            // It is no directory. That is the error then.
            self.make_batch().map_err(|(_, error)| error)?;
        }
        match self.dir.open_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.dir.make_dir(name)?;
                self.dir.open_dir(name)
            }
            dir => dir,
        }
    }
}

impl<D: Dir> Target<D> {
    pub(crate) fn new(root: D, options: Options) -> Self {
        let levels = vec![Level::new(OsStr::new(""), root)];
        Self { options, levels, directories: Vec::new(), summary: Summary::default() }
    }

    /// Opens the directory at a path. A missing directory is made: a tar stream may leave it out.
    /// Directories that are not on the way are closed, and their entries made.
    fn level(&mut self, path: &Path) -> Result<&mut Level<D>> {
        // `/` or `..` would lead out of the target.
        let name = |component| match component {
            Component::Normal(name) => Ok(name),
            _ => Err(Error::new(path, io::Error::from(io::ErrorKind::InvalidInput))),
        };
        let names = path.components().map(name).collect::<Result<Vec<&OsStr>>>()?;
        let shared = self.levels[1..].iter().zip(&names).take_while(|(level, name)| level.name == **name).count();
        self.make_batches(1 + shared)?;
        self.levels.truncate(1 + shared);
        for name in &names[shared..] {
            let dir = self.last().enter(name).map_err(|error| Error::new(path, error))?;
            self.levels.push(Level::new(name, dir));
        }
        Ok(self.last())
    }

    fn last(&mut self) -> &mut Level<D> {
        self.levels.last_mut().expect("the target itself is always open")
    }

    /// Makes the entries of all batches from this level on, the deepest first.
    fn make_batches(&mut self, from: usize) -> Result<()> {
        for index in (from..self.levels.len()).rev() {
            self.levels[index].make_batch().map_err(|(name, error)| {
                let dir: PathBuf = self.levels[1..=index].iter().map(|level| &level.name).collect();
                Error::new(dir.join(name), error)
            })?;
        }
        Ok(())
    }

    /// Adds an entry to the batch of its directory. Returns false if it must be made by itself.
    fn put_in_batch(&mut self, path: &Path, meta: &Meta, body: &mut Body<'_>) -> Result<bool> {
        let options = self.options;
        if !Batch::takes(path, meta, body, &options) {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default();
        let Some(batch) = self.level(parent(path))?.batch() else { return Ok(false) };
        let (mut contents, mut bytes) = (Vec::new(), 0);
        let (kind, body) = match body {
            Body::File { size, contents: from } => {
                let file = SmallFile::default();
                bytes = contents::copy(*from, *size, &file).map_err(|error| Error::new(path, error))?;
                contents = file.into_bytes();
                ((FileKind::File, 0), &contents[..])
            }
            Body::Symlink(target) => ((FileKind::Symlink, 0), target.as_bytes()),
            Body::Special(kind, rdev) => ((*kind, *rdev), &contents[..]),
            Body::Directory | Body::HardLink(_) => return Ok(false),
        };
        if !batch.push(name, kind, meta, body, &options) {
            self.make_batches(self.levels.len() - 1)?;
            let pushed = self.last().batch().is_some_and(|batch| batch.push(name, kind, meta, body, &options));
            assert!(pushed, "a small entry fits into an empty batch");
        }
        self.summary.bytes += bytes;
        self.summary.entries += 1;
        Ok(true)
    }

    fn put_alone(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> Result<()> {
        let failed = |error: io::Error| Error::new(path, error);
        let last_name =
            |of: &Path| of.file_name().map(OsStr::to_owned).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()));
        let options = self.options;
        match body {
            Body::Directory => {
                if let Some(name) = path.file_name() {
                    // Most are new. A look-up first would be one more request, and any error shows
                    // below.
                    let _ = self.level(parent(path))?.dir.make_dir(name);
                }
                self.level(path)?;
                self.directories.push((path.to_owned(), meta.clone()));
                self.summary.entries += u64::from(!path.as_os_str().is_empty());
                return Ok(());
            }
            Body::Special(kind, _) if !options.makes(kind) => {
                self.summary.left_out.push(path.to_owned());
                return Ok(());
            }
            Body::HardLink(old) => {
                // The file may be in a batch.
                self.make_batches(0)?;
                let old_dir = self.level(parent(old))?.dir.open_dir(OsStr::new(".")).map_err(failed)?;
                let (old, new) = (last_name(old)?, last_name(path)?);
                self.level(parent(path))?.dir.hard_link(&old_dir, &old, &new).map_err(failed)?;
            }
            Body::File { size, contents } => {
                let dir = &self.level(parent(path))?.dir;
                let file = dir.make_file(&last_name(path)?).map_err(failed)?;
                let bytes = contents::copy(contents, size, &file).map_err(failed)?;
                dir.set_file_meta(&file, meta, &options).map_err(failed)?;
                self.summary.bytes += bytes;
            }
            Body::Symlink(target) => {
                let (dir, name) = (&self.level(parent(path))?.dir, last_name(path)?);
                let made = dir.make_symlink(&name, target);
                made.and_then(|()| dir.set_meta(&name, FileKind::Symlink, meta, &options)).map_err(failed)?;
            }
            Body::Special(kind, rdev) => {
                let (dir, name) = (&self.level(parent(path))?.dir, last_name(path)?);
                let made = dir.make_special(&name, kind, rdev);
                made.and_then(|()| dir.set_meta(&name, kind, meta, &options)).map_err(failed)?;
            }
        }
        self.summary.entries += 1;
        Ok(())
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl<D: Dir> Sink for Target<D> {
    fn put(&mut self, path: &Path, meta: &Meta, mut body: Body<'_>) -> Result<()> {
        if self.put_in_batch(path, meta, &mut body)? { Ok(()) } else { self.put_alone(path, meta, body) }
    }

    fn is_into(&self, dir: (u64, u64)) -> bool {
        self.levels[0].dir.is_host_dir(dir)
    }

    fn finish(mut self) -> Result<Summary> {
        self.make_batches(0)?;
        let options = self.options;
        // A directory comes before its entries, so the deepest ones are last.
        while let Some((path, meta)) = self.directories.pop() {
            let set = self.level(&path)?.dir.set_own_meta(&meta, &options);
            set.map_err(|error| Error::new(path, error))?;
        }
        Ok(self.summary)
    }
}
