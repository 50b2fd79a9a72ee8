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
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use pando_records::{PackedRecord, Unpacked};
use pando_vfs::FileKind;
use rustix::io::Errno;

use crate::{
    Error, Options, Result, Summary,
    batch::{Batch, SmallFile, unpacked},
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

    /// Whether new entries get an ACL.
    fn gives_acls(&self) -> io::Result<bool>;
    /// Removes the ACLs of a new file that its source lacks.
    fn remove_file_acls(&self, file: &Self::File, meta: &Meta) -> io::Result<()>;
    /// As [`Dir::remove_file_acls`], of an entry that is not opened.
    fn remove_acls(&self, name: &OsStr, meta: &Meta) -> io::Result<()>;
    /// As [`Dir::remove_file_acls`], of this directory.
    fn remove_own_acls(&self, meta: &Meta) -> io::Result<()>;

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
    /// Metadata that is set at the end, and whether there may be ACLs that were not copied.
    directories: Vec<(PathBuf, Meta, bool)>,
    summary: Summary,
}

/// An open directory.
struct Level<D> {
    /// Empty for the target itself.
    name: OsString,
    dir: D,
    batching: Batching,
    /// Whether a copied entry gets an ACL that its source may not have. None: not known.
    gives_acls: Option<bool>,
}

/// How the entries of a directory are made.
enum Batching {
    /// No entry has come that may be in a batch.
    Unknown,
    /// One by one: the directory takes no records.
    Off,
    /// Those in the batch are not made yet.
    On(Batch),
}

/// An error at the entry of a directory that has this name.
type Failed = (OsString, io::Error);

impl<D: Dir> Level<D> {
    fn new(name: &OsStr, dir: D) -> Self {
        Self { name: name.to_owned(), dir, batching: Batching::Unknown, gives_acls: None }
    }

    /// Whether a copied entry gets an ACL that its source may not have. Without privileges no ACLs
    /// are copied, and it keeps what it gets.
    fn gives_acls(&mut self, options: &Options) -> io::Result<bool> {
        if !options.privileged {
            return Ok(false);
        }
        if self.gives_acls.is_none() {
            self.gives_acls = Some(self.dir.gives_acls()?);
        }
        Ok(self.gives_acls == Some(true))
    }

    /// The batch, if the directory takes records, and gives no ACLs that were to be removed.
    fn batch(&mut self, options: &Options) -> Option<&mut Batch> {
        if let Batching::Unknown = self.batching {
            // The call for a single entry meets an error again.
            let is_on = self.dir.takes_records() && self.gives_acls(options).is_ok_and(|gives| !gives);
            self.batching = if is_on { Batching::On(Batch::new()) } else { Batching::Off };
        }
        if let Batching::On(batch) = &mut self.batching { Some(batch) } else { None }
    }

    /// Makes the entries of the batch.
    fn make_batch(&mut self, options: &Options) -> std::result::Result<(), Failed> {
        let Batching::On(batch) = &mut self.batching else { return Ok(()) };
        let mut records = Unpacked::new(batch.records());
        let mut made = Ok(());
        while !records.rest().is_empty() {
            let Err((count, error)) = self.dir.make_many(records.rest()) else { break };
            records.by_ref().take(count).for_each(drop);
            made = match (count, Errno::from_io_error(&error)) {
                // There was no space after the first entry.
                (1.., Some(Errno::BUSY)) => continue,
                (0, Some(Errno::OPNOTSUPP)) => records.try_for_each(|record| {
                    let made = make_unpacked(&self.dir, &record, options);
                    made.map_err(|error| (OsStr::from_bytes(record.name()).to_owned(), error))
                }),
                _ => {
                    let name = records.next().map(|record| record.name()).unwrap_or_default();
                    Err((OsStr::from_bytes(name).to_owned(), error))
                }
            };
            break;
        }
        batch.clear();
        made
    }

    /// Opens a directory in this one, and makes it if it is missing.
    fn enter(&mut self, name: &OsStr, options: &Options) -> std::result::Result<D, Failed> {
        if let Batching::On(batch) = &self.batching
            && batch.contains(name)
        {
            // An entry of this name was to be made, and it is no directory. This or the next call
            // says so.
            self.make_batch(options)?;
        }
        let dir = match self.dir.open_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.dir.make_dir(name).and_then(|()| self.dir.open_dir(name))
            }
            dir => dir,
        };
        dir.map_err(|error| (name.to_owned(), error))
    }
}

/// Makes an entry of a batch by single calls. A directory with a batch gives no ACLs.
fn make_unpacked<D: Dir>(dir: &D, record: &PackedRecord<'_>, options: &Options) -> io::Result<()> {
    let (meta, kind, device, body) = unpacked(record).ok_or(io::ErrorKind::InvalidData)?;
    let mut contents = io::Cursor::new(body);
    let body = match kind {
        FileKind::File => Body::File { size: body.len() as u64, contents: &mut contents },
        FileKind::Symlink => Body::Symlink(OsStr::from_bytes(body)),
        kind => Body::Special(kind, device),
    };
    make((dir, false), OsStr::from_bytes(record.name()), &meta, body, options).map(drop)
}

/// Makes an entry, but no directory and no hard link, in a directory that gives ACLs or none.
/// Returns how many bytes were written.
fn make<D: Dir>(
    (dir, gives_acls): (&D, bool),
    name: &OsStr,
    meta: &Meta,
    body: Body<'_>,
    options: &Options,
) -> io::Result<u64> {
    match body {
        Body::File { size, contents } => {
            let file = dir.make_file(name)?;
            let bytes = contents::copy(contents, size, &file)?;
            if gives_acls {
                dir.remove_file_acls(&file, meta)?;
            }
            dir.set_file_meta(&file, meta, options)?;
            return Ok(bytes);
        }
        Body::Symlink(target) => {
            dir.make_symlink(name, target)?;
            dir.set_meta(name, FileKind::Symlink, meta, options)?;
        }
        Body::Special(kind, rdev) => {
            dir.make_special(name, kind, rdev)?;
            if gives_acls {
                dir.remove_acls(name, meta)?;
            }
            dir.set_meta(name, kind, meta, options)?;
        }
        Body::Directory | Body::HardLink(_) => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(0)
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
            let options = self.options;
            let dir = self.last().enter(name, &options).map_err(|failed| self.error(self.levels.len() - 1, failed))?;
            self.levels.push(Level::new(name, dir));
        }
        Ok(self.last())
    }

    fn last(&mut self) -> &mut Level<D> {
        self.levels.last_mut().expect("the target itself is always open")
    }

    /// Makes the entries of all batches from this level on, the deepest first.
    fn make_batches(&mut self, from: usize) -> Result<()> {
        let options = self.options;
        for index in (from..self.levels.len()).rev() {
            let made = self.levels[index].make_batch(&options);
            made.map_err(|failed| self.error(index, failed))?;
        }
        Ok(())
    }

    /// The error of an entry of this level.
    fn error(&self, level: usize, (name, error): Failed) -> Error {
        let dir: PathBuf = self.levels[1..=level].iter().map(|level| &level.name).collect();
        Error::new(dir.join(name), error)
    }

    /// Adds an entry to the batch of its directory. Returns false if it must be made by itself.
    fn put_in_batch(&mut self, path: &Path, meta: &Meta, body: &mut Body<'_>) -> Result<bool> {
        let (options, name) = (self.options, path.file_name().unwrap_or_default());
        if !Batch::takes(name, meta, body, &options) {
            return Ok(false);
        }
        let Some(batch) = self.level(parent(path))?.batch(&options) else { return Ok(false) };
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
            let pushed = self.last().batch(&options).is_some_and(|batch| batch.push(name, kind, meta, body, &options));
            assert!(pushed, "a small entry fits into an empty batch");
        }
        self.summary.bytes += bytes;
        self.summary.entries += 1;
        Ok(true)
    }

    fn put_alone(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> Result<()> {
        let failed = |error: io::Error| Error::new(path, error);
        let name_of = |path: &Path| {
            let name = path.file_name().map(OsStr::to_owned);
            name.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))
        };
        let options = self.options;
        match body {
            Body::Directory => {
                let mut gets_acls = None;
                if let Some(name) = path.file_name() {
                    let parent = self.level(parent(path))?;
                    // Most are new. A look-up first would be one more request, and any error shows
                    // below.
                    let is_new = parent.dir.make_dir(name).is_ok();
                    gets_acls = if is_new { Some(parent.gives_acls(&options).map_err(failed)?) } else { None };
                }
                let level = self.level(path)?;
                if options.privileged && gets_acls.is_some() {
                    // It was given the same ACLs to give.
                    level.gives_acls = gets_acls;
                }
                let may_have_acls = options.privileged && gets_acls != Some(false);
                self.directories.push((path.to_owned(), meta.clone(), may_have_acls));
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
                let (old, new) = (name_of(old)?, name_of(path)?);
                self.level(parent(path))?.dir.hard_link(&old_dir, &old, &new).map_err(failed)?;
            }
            body => {
                let (level, name) = (self.level(parent(path))?, name_of(path)?);
                let gives_acls = level.gives_acls(&options).map_err(failed)?;
                self.summary.bytes += make((&level.dir, gives_acls), &name, meta, body, &options).map_err(failed)?;
            }
        }
        self.summary.entries += 1;
        Ok(())
    }

    /// Ends a copy after its source was read. If reading failed, this makes the entries that came
    /// before.
    pub(crate) fn end(mut self, read: Result<()>) -> Result<Summary> {
        if read.is_err() {
            self.make_batches(0)?;
        }
        read?;
        self.finish()
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
        while let Some((path, meta, may_have_acls)) = self.directories.pop() {
            let dir = &self.level(&path)?.dir;
            let removed = if may_have_acls { dir.remove_own_acls(&meta) } else { Ok(()) };
            let set = removed.and_then(|()| dir.set_own_meta(&meta, &options));
            set.map_err(|error| Error::new(path, error))?;
        }
        Ok(self.summary)
    }
}
