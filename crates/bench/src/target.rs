//! The targets that workloads run on.

mod backed;
mod before;
mod calls;
mod dir;
mod host;
#[cfg(feature = "peers")]
mod maps;
mod mem;
mod mount;
mod nothing;
#[cfg(feature = "peers")]
mod peers;
mod records;
mod spec;
mod store;
mod traced;
mod tree;

use std::{
    ffi::CStr,
    hint::black_box,
    io::{self, SeekFrom},
    path::{Path, PathBuf},
};

use pando_vfs::records::XattrValue;

pub(crate) use self::{nothing::Nothing, spec::TARGETS};
use crate::base::{failure::Failure, path::TreePath};

pub use self::spec::TargetSpec;

/// A file system, or a substitute for one.
pub(crate) trait Target {
    /// Makes an empty tree, used for one workload.
    ///
    /// # Errors
    /// The tree cannot be made; the text says what to do.
    fn open(&self) -> Result<Box<dyn Session>, Failure>;

    /// As [`Target::open`], but without a limit on the size of the cache.
    ///
    /// # Errors
    /// As [`Target::open`].
    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        self.open()
    }

    /// Whether its memory belongs to the kernel, not to this process.
    fn is_in_kernel(&self) -> bool {
        false
    }
}

/// An empty tree for one workload. Dropping it removes everything in it.
pub(crate) trait Session: Sync {
    /// One thread's access to the tree. Made on the thread that uses it.
    ///
    /// # Errors
    /// The system's error.
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>>;

    /// Where other processes find the tree (see [`attach`]).
    fn tree(&self) -> Option<PathBuf> {
        None
    }

    /// Removes everything in the tree, and reports a failure to do so.
    ///
    /// # Errors
    /// An entry could not be removed.
    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The operations of a thread on a target. New workloads add their operations here.
///
/// Every target has four operations. The others default to "not supported", which a run reports as
/// a row without figures ([`unsupported`]), not as slow or as failed.
pub(crate) trait Actor {
    /// Makes a directory in an existing one.
    ///
    /// # Errors
    /// The target's error; this holds for all operations.
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()>;

    /// Makes a new file, and closes it.
    fn create(&mut self, path: &TreePath) -> io::Result<()>;

    /// Removes a file.
    fn unlink(&mut self, path: &TreePath) -> io::Result<()>;

    /// Looks up a file and reads its attributes.
    fn stat(&mut self, path: &TreePath) -> io::Result<()>;

    /// Looks up a name that does not exist.
    fn stat_missing(&mut self, path: &TreePath) -> io::Result<()> {
        match self.stat(path) {
            Ok(()) => Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", path.relative()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes an empty directory.
    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// Moves a file or a directory to an unused name.
    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        unsupported((from, to))
    }

    /// Opens an existing file for reading, and closes it.
    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// Opens a file for reading and writing, and creates it if it does not exist. Any thread may
    /// use the handle.
    fn open(&mut self, path: &TreePath) -> io::Result<Box<dyn Handle>> {
        unsupported(path)
    }

    /// Opens a file, calls `work` with it, and closes it. The handle is not allocated, as it does
    /// not outlive the call.
    fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
        unsupported((path, how, work))
    }

    /// Reads all entries of a directory (without `.` and `..`). Reads with separate calls for each
    /// entry what `level` requires.
    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        unsupported((dir, level))
    }

    /// As [`Actor::list`], with calls that return many entries at once.
    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        unsupported((dir, level))
    }

    /// Begins to read ahead what `level` requires of each entry of a directory.
    fn read_ahead(&mut self, dir: &TreePath, level: Level) -> io::Result<Box<dyn ReadAhead>> {
        unsupported((dir, level))
    }

    /// Sets an extended attribute of a file.
    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        unsupported((path, name, value))
    }

    /// Makes a directory this thread's working directory. Paths of other operations stay relative
    /// to the root.
    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// Renders the path of the working directory; returns its length.
    fn getcwd(&mut self) -> io::Result<usize> {
        unsupported(())
    }

    /// Empties the target's caches, if it has caches beside the tree itself.
    fn drop_caches(&mut self, what: Caches) -> io::Result<()> {
        unsupported(what)
    }

    /// The path of the tree's root on the host, for programs that run in the tree.
    fn host_path(&self) -> Option<&Path> {
        None
    }
}

/// A read-ahead in progress.
pub(crate) trait ReadAhead {
    /// Waits for its end.
    ///
    /// # Errors
    /// The first error that it met.
    fn wait(self: Box<Self>) -> io::Result<()>;
}

/// The mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// For reading; the file exists.
    Read,
    /// For reading and writing; the file is created if it does not exist.
    Create,
}

/// A function that is called with an open file.
pub(crate) type Work<'a> = &'a mut dyn FnMut(&dyn Handle) -> io::Result<()>;

/// An open file.
pub(crate) trait Handle: Send + Sync {
    /// Moves the position; returns the new one.
    ///
    /// # Errors
    /// The target's error; this holds for all operations.
    fn seek(&self, to: SeekFrom) -> io::Result<u64>;

    /// Reads at the position.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads at an offset (pread).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at the position.
    fn write(&self, data: &[u8]) -> io::Result<usize>;

    /// Changes the size.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Writes cached data back.
    fn fsync(&self) -> io::Result<()>;

    /// Renders the path (d_path); returns its length.
    fn path(&self) -> io::Result<usize>;
}

/// The data that a listing reads of each entry. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Its name.
    Names,
    /// Its attributes (stat).
    Stat,
    /// The names of its extended attributes.
    XattrNames,
    /// Their values.
    XattrValues,
}

impl Level {
    pub(crate) const ALL: [Self; 4] = [Self::Names, Self::Stat, Self::XattrNames, Self::XattrValues];
}

/// The caches to empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caches {
    /// The dentry and inode caches.
    Inodes,
    /// These, and the page cache.
    Disk,
}

/// The counts of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Listed {
    pub(crate) entries: u64,
    pub(crate) xattrs: u64,
    /// Bytes of the values of extended attributes.
    pub(crate) value_bytes: u64,
}

impl Listed {
    /// Counts the extended attributes of a record.
    fn add_xattrs<'a>(&mut self, values: impl Iterator<Item = XattrValue<'a>>) {
        for value in values {
            self.xattrs += 1;
            if let XattrValue::Bytes(value) = value {
                self.value_bytes += value.len() as u64;
            }
        }
    }
}

/// The reason why caches cannot be emptied: the tree is the cache.
pub(crate) const NO_CACHE: &str = "the target has no cache beside its tree";
/// The reason why caches cannot be emptied: missing permission.
pub(crate) const NOT_ALLOWED: &str = "only root may empty the kernel's caches";

/// Consumes a result as a caller that reads one field of it would: the compiler must produce all of
/// it, and nothing is copied.
#[inline]
pub(crate) fn consume<T, E>(answer: Result<T, E>) -> Result<(), E> {
    black_box(&answer);
    answer.map(drop)
}

/// The error of an operation that a target does not support, with a reason.
pub(crate) fn unsupported_because<T>(why: &'static str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// The error of an operation that a target does not have.
#[cold]
pub(crate) fn unsupported<T>(_arguments: impl Sized) -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Access to a tree that a session of another process has made ([`Session::tree`]).
///
/// # Errors
/// The system's error.
pub(crate) fn attach(tree: PathBuf) -> io::Result<Box<dyn Actor>> {
    Ok(Box::new(calls::DirActor::at(tree)?))
}

#[cfg(test)]
pub(crate) mod tests;
