//! Anonymous files: made without a name, and given one later or never.

use std::path::Path;

use crate::{At, File, OpenFlags, Result, Walk, fs::Fs};

impl Fs {
    /// Makes an anonymous file (`O_TMPFILE`) in the tree of the directory `dir`, open for reading
    /// and writing, with mode 0600. It is freed when it is closed, unless [`Fs::persist`] gives it
    /// a name.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use pando_memfs::{MemFs, MemOptions};
    /// use pando_vfs::fs::Fs;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    /// let mut draft = fs.tempfile_in("/")?;
    /// writeln!(draft, "complete or not there at all")?;
    /// fs.persist(&draft, "/letter")?;
    /// assert_eq!(fs.read("/letter")?.len(), 29);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// ENOTDIR, EACCES, ENOSPC, EOPNOTSUPP in a tree with a backing, and those of the walk.
    pub fn tempfile_in(&self, dir: impl AsRef<Path>) -> Result<File> {
        let flags = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
        self.vfs.open(&self.context, At::Cwd, super::bytes(&dir), flags, 0o600)
    }

    /// Gives a file of [`Fs::tempfile_in`] its first name, in the same tree. No other caller sees
    /// the name before the call returns, or without the contents that were written before.
    ///
    /// # Errors
    /// EEXIST if the name exists, ENOENT if the file has had a name that was removed, EXDEV for
    /// another tree, and those of the walk.
    pub fn persist(&self, file: &File, path: impl AsRef<Path>) -> Result<()> {
        let from = At::Dir(file.dentry());
        self.vfs.link(&self.context, from, "", At::Cwd, super::bytes(&path), Walk::EMPTY_PATH).map(drop)
    }
}
