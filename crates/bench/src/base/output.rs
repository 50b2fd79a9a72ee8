//! Files that hold results.

use std::{
    cell::Cell,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::base::failure::{During, Failure};

/// A file for results. It is opened before the measurement, so that a bad path is reported at once.
/// Its old content stays until there are results. If the file did not exist and there are no
/// results, it is removed again.
pub(crate) struct Output {
    path: PathBuf,
    /// Kept open: a process that reads a pipe would take its closing for the end.
    _file: File,
    is_regular: bool,
    /// Created by this run, and not yet written to.
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

    /// Whether it can be written again. A process that reads a pipe has already read the earlier
    /// text.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Replaces the content.
    ///
    /// # Errors
    /// The file system's error.
    pub(crate) fn write(&self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.is_new.set(false);
        fs::write(&self.path, text).during(|| writing(&self.path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new.get() {
            // The failure that ended the run is reported. A remaining empty file need not be.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}
