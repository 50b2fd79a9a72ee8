//! The contents of a file. Reads and writes go to the store at once, so an eviction loses nothing.

use std::{
    io::{IoSlice, IoSliceMut},
    sync::Arc,
};

use pando_vfs::{Error, FileData, Layout, Result};

use crate::{Call, bytes::Bytes, driver::Shared};

/// Longer ranges are not allocated, since they would occupy memory.
const ALLOCATE_MAX_BYTES: u64 = 1 << 26;

/// The contents of an inode in the store.
pub(crate) struct MapData {
    shared: Arc<Shared>,
    ino: u64,
}

impl MapData {
    pub(crate) fn new(shared: Arc<Shared>, ino: u64) -> Self {
        Self { shared, ino }
    }

    fn look<T>(&self, look: impl FnOnce(&Bytes) -> T) -> Result<T> {
        let store = self.shared.store();
        Ok(look(&store.node(self.ino)?.bytes))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Bytes) -> T) -> Result<T> {
        self.shared.injector.enter(Call::Write)?;
        let mut store = self.shared.store();
        Ok(change(&mut store.node_mut(self.ino)?.bytes))
    }
}

impl FileData for MapData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        self.shared.injector.enter(Call::Read)?;
        let count = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.look(|bytes| bytes.read(&mut buf[..count], offset)).map(|()| count)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        self.change(|bytes| bytes.write(data, offset)).map(|()| data.len())
    }

    fn readv_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64, size: u64) -> Result<usize> {
        let mut all = vec![0; buffers.iter().map(|buffer| buffer.len()).sum()];
        let count = self.read_at(&mut all, offset, size)?;
        let mut rest = &all[..count];
        for buffer in buffers {
            let (part, after) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..part.len()].copy_from_slice(part);
            rest = after;
        }
        Ok(count)
    }

    fn writev_at(&mut self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let all: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.write_at(&all, offset)
    }

    fn truncate(&mut self, _old_size: u64, new_size: u64) -> Result<()> {
        self.change(|bytes| bytes.resize(new_size))
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        if len > ALLOCATE_MAX_BYTES {
            return Err(Error::NoSpace);
        }
        self.change(|bytes| bytes.allocate(offset, len))
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        self.change(|bytes| bytes.punch(offset, len))
    }

    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        self.look(|bytes| bytes.layout().data_after(offset, size))
    }

    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64> {
        self.look(|bytes| bytes.layout().hole_after(offset, size))
    }

    /// An empty layout if the inode no longer exists.
    fn layout(&self) -> Option<Layout> {
        Some(self.look(|bytes| bytes.layout().clone()).unwrap_or_default())
    }

    fn blocks(&self) -> Option<u64> {
        self.look(Bytes::blocks).ok()
    }

    fn sync(&mut self) -> Result<()> {
        self.shared.injector.enter(Call::Sync)
    }
}
