//! Files that results go to.

use std::{
    cell::Cell,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::failure::{Failure, While};

/// A file for results, opened before there are any, so that a bad path is said then. What is in it stays until there are; one
/// that was not there goes again if there are none.
pub(crate) struct Output {
    path: PathBuf,
    /// Kept open: who reads a pipe would take closing it for the end.
    _file: File,
    is_regular: bool,
    /// Made by us, and nothing has been written.
    is_new: Cell<bool>,
}

impl Output {
    /// # Errors
    /// That it cannot be written to.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let mut how = File::options();
        let (file, is_new) = match how.append(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (how.create_new(false).create(true).open(path).during(|| writing(path))?, false)
            }
            new => (new.during(|| writing(path))?, true),
        };
        let is_regular = file.metadata().during(|| writing(path))?.is_file();
        Ok(Self { path: path.to_owned(), _file: file, is_regular, is_new: Cell::new(is_new) })
    }

    /// Whether it can be written again: who reads a pipe has read what was written before.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// In place of what there was.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn write(&self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.is_new.set(false);
        fs::write(&self.path, text).during(|| writing(&self.path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new.get() {
            // What ended the run is told; that an empty file stays need not be.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}
