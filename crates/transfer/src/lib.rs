//! Copies trees between a tree of pandofs, a directory of the host and a tar stream.
//!
//! ```
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_transfer::{Options, export_tar, import_tar};
//! use pando_vfs::fs::Fs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = Fs::new(MemFs::new(MemOptions::new()))?;
//! fs.create_dir_all("/src/bin")?;
//! fs.write("/src/bin/main.rs", "fn main() {}")?;
//!
//! let mut archive = Vec::new();
//! export_tar(&fs, "/src", &mut archive, &Options::new())?;
//! fs.create_dir("/copy")?;
//! import_tar(archive.as_slice(), &fs, "/copy", &Options::new())?;
//! assert_eq!(fs.read("/copy/bin/main.rs")?, b"fn main() {}");
//! # Ok(())
//! # }
//! ```
//!
//! Each function copies what is below one directory into another directory, which must exist. It
//! copies contents, names, permission bits, mtime, symbolic links, hard links, fifos, devices, and
//! extended attributes of the `user` namespace. [`Options::privileged`] adds owners and the other
//! extended attributes. Directories that exist in the target are used, and get the metadata of the
//! source; another file that exists there is an error (EEXIST), so nothing is overwritten.
//!
//! # Safety against hostile sources
//!
//! Nothing is written outside the target directory. Each directory on the way is opened by itself,
//! without following symbolic links, so a link that the source has made, or that another process
//! puts there during the copy, is not followed. Paths in a tar stream that have `..` are an error.
//!
//! # Limitations
//!
//! * The first error ends a copy. What was copied before stays.
//! * A file whose size is 0 is empty in the copy. Those of `/proc` have that size and contents.
//! * Copying into a directory of the host needs `/proc`.
//! * Holes stay holes, except in a tar stream, which stores them as zeros.
//! * A tar stream has no sockets. They are left out, and [`Summary::left_out`] names them.
//! * ACLs are copied with [`Options::privileged`], as `tar --acls` does: a copy has the ACLs of its
//!   source, also none, and not those that its directory gives to new entries. A user or a group
//!   that an ACL of a tar stream names must exist on this machine.
//! * The names of extended attributes in a tar stream are UTF-8. Others are not written, and an
//!   error where they are read.
//! * A sparse file with 8 GiB of data in the PAX format of GNU tar is an error.
#![forbid(unsafe_code)]

mod archive;
mod batch;
mod contents;
mod entry;
mod host;
mod target;
mod tree;

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use pando_vfs::{FileKind, fs::Fs};

use crate::{
    archive::TarTarget,
    entry::Sink,
    host::{HostDir, Reader},
    target::Target,
    tree::TreeDir,
};

/// Options of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Options {
    /// Whether owners, groups, device nodes and all extended attributes are copied. The context and
    /// the process need the privileges for it.
    pub privileged: bool,
}

impl Options {
    /// Options that need no privileges: the files belong to the user who copies, and device
    /// nodes are left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether an entry of this kind is copied.
    fn makes(self, kind: FileKind) -> bool {
        self.privileged || !matches!(kind, FileKind::CharDevice | FileKind::BlockDevice)
    }

    /// Sets [`Options::privileged`].
    pub fn privileged(mut self, privileged: bool) -> Self {
        self.privileged = privileged;
        self
    }
}

/// The entries and bytes that were copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many entries, without the directory itself.
    pub entries: u64,
    /// How many bytes of file contents, without holes.
    pub bytes: u64,
    /// Entries that were left out: sockets in a tar stream, device nodes without
    /// [`Options::privileged`].
    pub left_out: Vec<PathBuf>,
}

/// An error at one entry, which has ended a copy.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    error: io::Error,
}

/// The result of a copy.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(path: impl Into<PathBuf>, error: impl Into<io::Error>) -> Self {
        Self { path: path.into(), error: error.into() }
    }

    /// The entry, relative to the directory that is copied; empty for that directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        write!(f, "{}: {}", path.display(), self.error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.error.kind(), error)
    }
}

/// Copies a directory of the host into the directory `to` of a tree.
///
/// # Errors
/// Those of reading and writing. The entry is [`Error::path`].
pub fn import_dir(from: impl AsRef<Path>, fs: &Fs, to: impl AsRef<Path>, options: &Options) -> Result<Summary> {
    let mut target = Target::new(TreeDir::open(fs, to.as_ref())?, *options);
    let read = Reader::new(options, &mut target).read_dir(from.as_ref(), Path::new(""));
    target.end(read)
}

/// Copies the directory `from` of a tree into a directory of the host.
///
/// # Errors
/// Those of reading and writing. The entry is [`Error::path`].
pub fn export_dir(fs: &Fs, from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Summary> {
    let mut target = Target::new(HostDir::open(to.as_ref())?, *options);
    let read = tree::read(fs, from.as_ref(), options, &mut target);
    target.end(read)
}

/// Unpacks a tar stream (ustar, GNU or PAX) into the directory `to` of a tree.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] and others for a stream that is not tar; those of writing.
pub fn import_tar(from: impl Read, fs: &Fs, to: impl AsRef<Path>, options: &Options) -> Result<Summary> {
    let mut target = Target::new(TreeDir::open(fs, to.as_ref())?, *options);
    let read = archive::read(from, options, &mut target);
    target.end(read)
}

/// Copies what is below a directory of the host into another one. On a mount of pandofs, small
/// entries are made many at a time.
///
/// # Errors
/// Those of reading and writing. [`Error::path`] is the entry in the copy, or `from` if that cannot
/// be opened.
pub fn copy_dir(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Summary> {
    let mut target = Target::new(HostDir::open(to.as_ref())?, *options);
    let read = Reader::new(options, &mut target).read_dir(from.as_ref(), Path::new(""));
    target.end(read)
}

/// Copies files of the host of any kind, with what is below them, into a directory of the host.
/// Each copy has the given name. Symbolic links are not followed. Hard links stay hard links.
///
/// # Errors
/// As [`copy_dir`]; EINVAL for a name that is no single component.
pub fn copy_files<'a>(
    files: impl IntoIterator<Item = (&'a Path, &'a OsStr)>,
    to: impl AsRef<Path>,
    options: &Options,
) -> Result<Summary> {
    let mut target = Target::new(HostDir::open(to.as_ref())?, *options);
    let mut reader = Reader::new(options, &mut target);
    let read = files.into_iter().try_for_each(|(from, name)| {
        let name = Path::new(name);
        if name.file_name() != Some(name.as_os_str()) {
            return Err(Error::new(name, io::Error::from(io::ErrorKind::InvalidInput)));
        }
        reader.read(from, name)
    });
    target.end(read)
}

/// Unpacks a tar stream (ustar, GNU or PAX) into a directory of the host. On a mount of pandofs,
/// small entries are made many at a time.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] and others for a stream that is not tar; those of writing.
pub fn unpack_tar(from: impl Read, to: impl AsRef<Path>, options: &Options) -> Result<Summary> {
    let mut target = Target::new(HostDir::open(to.as_ref())?, *options);
    let read = archive::read(from, options, &mut target);
    target.end(read)
}

/// Packs the directory `from` of a tree into a tar stream: ustar with GNU's long names, and PAX
/// records for nanoseconds and extended attributes.
///
/// # Errors
/// Those of reading and writing.
pub fn export_tar(fs: &Fs, from: impl AsRef<Path>, to: impl Write, options: &Options) -> Result<Summary> {
    let mut target = TarTarget::new(to);
    tree::read(fs, from.as_ref(), options, &mut target)?;
    target.finish()
}
