//! Where an embedded engine keeps its bytes.

use std::{
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use crate::{Error, Result};

/// Bytes that are read and written at any place. A simulator of crashes, or of a failing disk, is
/// another implementation.
pub trait Storage: Send + Sync + fmt::Debug {
    /// The number of bytes.
    ///
    /// # Errors
    /// Those of the storage.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    ///
    /// # Errors
    /// Those of the storage.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills a buffer with the bytes from an offset.
    ///
    /// # Errors
    /// Those of the storage, also if it ends before the buffer is full.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes bytes within the length.
    ///
    /// # Errors
    /// Those of the storage. Any part may have been written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Changes the length. New bytes are 0.
    ///
    /// # Errors
    /// Those of the storage, such as ENOSPC: a later write within the length should not fail for
    /// lack of space.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Flushes: when it returns, what was written before survives a crash.
    ///
    /// # Errors
    /// Those of the storage. What was written before may be lost in a crash, whatever a later flush
    /// says.
    fn sync(&self) -> io::Result<()>;
}

/// A file, which is locked as long as it is open.
#[derive(Debug)]
pub struct FileStorage(File);

impl FileStorage {
    /// Makes a file that must not exist. Only this user may read and write it.
    ///
    /// # Errors
    /// The file exists or cannot be made.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_options(path.as_ref(), OpenOptions::new().create_new(true))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be opened for reading and writing, or [`Error::InUse`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_options(path.as_ref(), &mut OpenOptions::new())
    }

    fn with_options(path: &Path, options: &mut OpenOptions) -> Result<Self> {
        let file = options.read(true).write(true).mode(0o600).open(path)?;
        match file.try_lock() {
            // Another process may have replaced it before it was locked.
            Ok(()) if fs::metadata(path)?.ino() != file.metadata()?.ino() => Err(Error::InUse),
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(Error::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

impl Storage for FileStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let now = self.len()?;
        if len <= now {
            return self.0.set_len(len);
        }
        match fallocate(&self.0, FallocateFlags::empty(), now, len - now) {
            // This file system cannot reserve space.
            Err(Errno::OPNOTSUPP) => self.0.set_len(len),
            reserved => Ok(reserved?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Bytes in memory.
#[derive(Debug, Default)]
pub struct MemoryStorage(Mutex<Vec<u8>>);

impl MemoryStorage {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(bytes))
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of `bytes` that a request is about.
fn part(bytes: &mut [u8], offset: u64, len: usize) -> io::Result<&mut [u8]> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(len)?));
    range.and_then(|range| bytes.get_mut(range)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Storage for MemoryStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(part(&mut self.lock(), offset, buffer.len())?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        part(&mut self.lock(), offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.lock().resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
