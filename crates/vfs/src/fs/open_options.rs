//! Options for opening a file.

use std::path::Path;

use crate::{At, Error, File, OpenFlags, Result, fs::Fs};

/// How to open a file, as `std::fs::OpenOptions` says it.
///
/// ```
/// use pando_memfs::{MemFs, MemOptions};
/// use pando_vfs::{Error, fs::{Fs, OpenOptions}};
///
/// # fn main() -> pando_vfs::Result<()> {
/// let fs = Fs::new(MemFs::new(MemOptions::default()))?;
/// OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fs, "/secret")?;
/// let again = OpenOptions::new().write(true).create_new(true).open(&fs, "/secret");
/// assert_eq!(again.err(), Some(Error::Exists));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom: OpenFlags,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// No access. New files get mode 0666, less the umask.
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom: OpenFlags::empty(),
        }
    }

    /// Opens the file for reading.
    pub const fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// Opens the file for writing.
    pub const fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Opens the file for writing. Each write appends.
    pub const fn append(mut self, yes: bool) -> Self {
        self.append = yes;
        self
    }

    /// Truncates the file to 0 bytes. Needs `write`.
    pub const fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Makes the file if it does not exist. Needs `write` or `append`.
    pub const fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Makes the file, and fails with EEXIST if it exists. Needs `write` or `append`. `create` and
    /// `truncate` have no effect then.
    pub const fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// The permission bits of a new file, before the umask is applied.
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Other `O_*` flags. The access mode, CREAT, EXCL, TRUNC and APPEND are ignored here.
    pub const fn custom_flags(mut self, flags: OpenFlags) -> Self {
        self.custom = flags;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// EINVAL for no access, and for truncating or creating without writing; otherwise those of
    /// [`crate::Vfs::open`].
    pub fn open(&self, fs: &Fs, path: impl AsRef<Path>) -> Result<File> {
        fs.vfs.open(&fs.context, At::Cwd, super::bytes(&path), self.flags()?, self.mode)
    }

    fn flags(&self) -> Result<OpenFlags> {
        let access = match (self.read, self.write || self.append) {
            (true, false) => OpenFlags::RDONLY,
            (false, true) => OpenFlags::WRONLY,
            (true, true) => OpenFlags::RDWR,
            (false, false) => return Err(Error::Invalid),
        };
        if !access.writes() && (self.truncate || self.create || self.create_new) {
            return Err(Error::Invalid);
        }
        // Truncating a file to append to it is most likely a mistake. std refuses it, too.
        if self.append && self.truncate && !self.create_new {
            return Err(Error::Invalid);
        }
        let ours = OpenFlags::WRONLY
            | OpenFlags::RDWR
            | OpenFlags::CREAT
            | OpenFlags::EXCL
            | OpenFlags::TRUNC
            | OpenFlags::APPEND;
        let mut flags = access | (self.custom & !ours);
        flags.set(OpenFlags::APPEND, self.append);
        flags.set(OpenFlags::CREAT, self.create || self.create_new);
        flags.set(OpenFlags::EXCL, self.create_new);
        flags.set(OpenFlags::TRUNC, self.truncate && !self.create_new);
        Ok(flags)
    }
}
