//! The contents of a file of the host.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use pando_vfs::{Error, FileData, Result, write_zeros};
use rustix::{
    fs::{FallocateFlags, SeekFrom, StatxAttributes, copy_file_range, fallocate, fsync, ftruncate, seek},
    io::{Errno, preadv, pwrite, pwritev, retry_on_intr},
};

use crate::{
    attr::{from_errno, stat},
    descriptors::Use,
    nodes::Node,
    tree::Tree,
};

/// The contents of an inode. Its descriptors are opened at the first use, and may be closed at any
/// time.
pub(crate) struct HostData {
    tree: Arc<Tree>,
    /// None if the tree did not know the inode any more.
    node: Option<Arc<Node>>,
}

impl HostData {
    pub(crate) fn new(tree: &Arc<Tree>, ino: u64) -> Self {
        Self { tree: tree.clone(), node: tree.nodes.ilookup(ino) }
    }

    fn open(&self, with: Use) -> Result<Arc<OwnedFd>> {
        self.tree.data_fd(self.node.as_ref().ok_or(Error::Stale)?, with)
    }

    /// As lseek(2), whose position nothing else here uses. None if there is no such place.
    fn seek(&self, to: SeekFrom) -> Result<Option<u64>> {
        // A file may be open for writing only.
        let file = self.open(Use::Read).or_else(|_| self.open(Use::Write))?;
        match seek(&*file, to) {
            Err(Errno::NXIO) => Ok(None),
            found => found.map(Some).map_err(from_errno),
        }
    }
}

/// Repeats a call that a signal has interrupted.
fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> Result<T> {
    retry_on_intr(call).map_err(from_errno)
}

impl FileData for HostData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        self.readv_at(&mut [IoSliceMut::new(buf)], offset, size)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        let file = self.open(Use::Write)?;
        retry(|| pwrite(&*file, data, offset))
    }

    /// The whole buffers are read, even at the end of the file: the host then stamps the access.
    fn readv_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64, size: u64) -> Result<usize> {
        let file = self.open(Use::Read)?;
        let count = retry(|| preadv(&*file, buffers, offset))?;
        // Others may have made the file longer.
        Ok(count.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX)))
    }

    fn writev_at(&mut self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let file = self.open(Use::Write)?;
        retry(|| pwritev(&*file, buffers, offset))
    }

    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()> {
        let file = self.open(Use::Write)?;
        // Others may have made the file longer meanwhile. A call that extends it cuts nothing off.
        if new_size > old_size && stat(file.as_fd())?.stx_size >= new_size {
            return Ok(());
        }
        retry(|| ftruncate(&*file, new_size))
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        let file = self.open(Use::Write)?;
        retry(|| fallocate(&*file, FallocateFlags::KEEP_SIZE, offset, len))
    }

    fn zero(&mut self, offset: u64, len: u64, size: u64) -> Result<()> {
        let file = self.open(Use::Write)?;
        match retry(|| fallocate(&*file, FallocateFlags::KEEP_SIZE | FallocateFlags::ZERO_RANGE, offset, len)) {
            // tmpfs, for example, has only the other modes.
            Err(Error::NotSupported) => write_zeros(self, offset, len, size),
            done => done,
        }
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        let file = self.open(Use::Write)?;
        retry(|| fallocate(&*file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, offset, len))
    }

    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        Ok(self.seek(SeekFrom::Data(offset))?.filter(|found| *found < size))
    }

    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64> {
        Ok(self.seek(SeekFrom::Hole(offset))?.map_or(size, |found| found.min(size)))
    }

    fn blocks(&self) -> Option<u64> {
        None
    }

    fn sync(&mut self) -> Result<()> {
        // Either descriptor stands for the whole file. One for writing may not be permitted.
        let file = self.open(Use::Read).or_else(|_| self.open(Use::Write))?;
        retry(|| fsync(&*file))
    }

    fn backing_file(&self) -> Result<Option<Arc<OwnedFd>>> {
        let file = self.open(Use::Read)?;
        let attributes = stat(file.as_fd())?.stx_attributes;
        let is_plain = !attributes.intersects(StatxAttributes::APPEND | StatxAttributes::IMMUTABLE);
        Ok(is_plain.then_some(file))
    }

    fn copy_from(&mut self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> Result<usize> {
        let file = self.open(Use::Write)?;
        let (mut from, mut to) = (source_offset, offset);
        match retry_on_intr(|| copy_file_range(source, Some(&mut from), &*file, Some(&mut to), len)) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(from_errno(error)),
            // Between file systems, or on one that cannot copy, which some report as an end of the
            // source. A read or a write meets any other error again.
            Err(_) | Ok(0) => Err(Error::NotSupported),
            Ok(copied) => Ok(copied),
        }
    }

    fn may_write(&self) -> Result<()> {
        self.open(Use::Write).map(drop)
    }
}
