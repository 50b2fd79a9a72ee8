//! Files that results go to.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::failure::{Failure, While};

/// A file for results, opened before there are any, so that a bad path is said then. What is in it stays until there are.
pub(crate) struct Output {
    path: PathBuf,
    /// Kept open: who reads a pipe would take closing it for the end.
    _file: File,
}

impl Output {
    /// # Errors
    /// That it cannot be written to.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::options().append(true).create(true).open(path).during(|| writing(path))?;
        Ok(Self { path: path.to_owned(), _file: file })
    }

    /// In place of what there was.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn write(&self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        fs::write(&self.path, text).during(|| writing(&self.path))
    }
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}
