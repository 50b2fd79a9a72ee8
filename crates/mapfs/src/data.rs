//! A file's bytes: read from the store and written to it at once, so that an eviction loses nothing.

use std::sync::Arc;

use pando_vfs::{Error, FileData, Result};

use crate::{Call, driver::Shared};

/// A file longer than this does not fit: a vector has no holes.
const FILE_MAX_BYTES: u64 = 1 << 26;

/// The contents of an inode of the store.
pub(crate) struct MapData {
    shared: Arc<Shared>,
    ino: u64,
}

impl MapData {
    pub(crate) fn new(shared: Arc<Shared>, ino: u64) -> Self {
        Self { shared, ino }
    }

    fn look<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let store = self.shared.store();
        Ok(look(&store.node(self.ino)?.bytes))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> Result<T>) -> Result<T> {
        self.shared.trouble.enter(Call::Write)?;
        let mut store = self.shared.store();
        change(&mut store.node_mut(self.ino)?.bytes)
    }
}

/// A size that a vector can have.
fn bounded(size: u64) -> Result<usize> {
    if size > FILE_MAX_BYTES {
        return Err(Error::NoSpace);
    }
    usize::try_from(size).map_err(|_| Error::NoSpace)
}

impl FileData for MapData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        self.shared.trouble.enter(Call::Read)?;
        let count = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.look(|bytes| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let stored = &bytes[start..bytes.len().min(start.saturating_add(count))];
            buf[..stored.len()].copy_from_slice(stored);
            buf[stored.len()..count].fill(0);
            count
        })
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        let end = bounded(offset.saturating_add(data.len() as u64))?;
        self.change(|bytes| {
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[end - data.len()..end].copy_from_slice(data);
            Ok(data.len())
        })
    }

    fn truncate(&mut self, _old_size: u64, new_size: u64) -> Result<()> {
        let size = bounded(new_size)?;
        self.change(|bytes| {
            bytes.resize(size, 0);
            Ok(())
        })
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        let end = bounded(offset.saturating_add(len))?;
        self.change(|bytes| {
            bytes.reserve(end.saturating_sub(bytes.len()));
            Ok(())
        })
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        self.change(|bytes| {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let (start, end) = (place(offset), place(offset.saturating_add(len)));
            bytes[start..end].fill(0);
            Ok(())
        })
    }

    /// A vector has no holes: all of it is data.
    fn seek_data(&self, offset: u64, size: u64) -> Option<u64> {
        (offset < size).then_some(offset)
    }

    fn seek_hole(&self, _offset: u64, size: u64) -> u64 {
        size
    }

    fn blocks(&self) -> u64 {
        self.look(|bytes| bytes.len().div_ceil(512) as u64).unwrap_or(0)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}
