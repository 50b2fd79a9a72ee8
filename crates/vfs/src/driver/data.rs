//! The bytes of files.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::OwnedFd,
    sync::Arc,
};

use crate::{Result, types::layout::Layout};

/// The bytes of one file.
///
/// Calls are made with the inode's data lock held: shared for `&self`, exclusive for `&mut self`.
/// The namespace has checked offsets and sizes: none is beyond `i64::MAX`.
///
/// The drop frees the space of a memory driver. The thread that drops the last reference to the
/// inode drops the data, perhaps under a reclamation guard and with names locked, so the drop must
/// not wait.
pub trait FileData: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset` of a file of `size` bytes. Holes read as zeros.
    /// The result is shorter only at the end of the file.
    ///
    /// # Errors
    /// Those of the store.
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize>;

    /// Writes at `offset`, and returns the number of bytes that were written. A backing stores the
    /// new size together with the bytes. The namespace stores the times.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if no byte could be written.
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize>;

    /// As [`FileData::read_at`], into one buffer after the other. A driver whose calls go over a
    /// network implements it as one request.
    ///
    /// # Errors
    /// Those of the store, if no byte was read.
    fn readv_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64, size: u64) -> Result<usize> {
        let mut count = 0;
        for buffer in buffers {
            let offset = offset + count as u64;
            if offset >= size {
                break;
            }
            match self.read_at(buffer, offset, size) {
                Ok(part) => count += part,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// As [`FileData::write_at`], from one buffer after the other. A driver whose calls go over a
    /// network implements it as one request.
    ///
    /// # Errors
    /// As [`FileData::write_at`].
    fn writev_at(&mut self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let mut count = 0;
        for buffer in buffers.iter().filter(|buffer| !buffer.is_empty()) {
            match self.write_at(buffer, offset + count as u64) {
                Ok(part) => {
                    count += part;
                    if part < buffer.len() {
                        break;
                    }
                }
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Changes the size. Data beyond the new size is freed, and reads as zeros if the file grows
    /// again.
    ///
    /// # Errors
    /// Those of the store.
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()>;

    /// Allocates space for the range, so that later writes to it do not fail with ENOSPC.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]. A part that was allocated before the error stays allocated.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Allocates space for the range of a file of `size` bytes, and makes it read as zeros. The
    /// default writes zeros where there is data.
    ///
    /// # Errors
    /// As [`FileData::allocate`].
    fn zero(&mut self, offset: u64, len: u64, size: u64) -> Result<()> {
        write_zeros(self, offset, len, size)
    }

    /// Makes a hole. The range reads as zeros, and the pages that lie in it completely are freed.
    ///
    /// # Errors
    /// Those of the store.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// The first offset at or after `offset` that has data, in a file of `size` bytes. None if only
    /// a hole follows.
    ///
    /// # Errors
    /// Those of the store.
    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>>;

    /// The first offset at or after `offset` that is in a hole. The end of the file counts as a
    /// hole.
    ///
    /// # Errors
    /// Those of the store.
    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64>;

    /// The ranges that have data, as of the last change, if the driver keeps a record of them.
    ///
    /// If it does, SEEK_DATA and SEEK_HOLE read that record, do not call the driver, and never
    /// wait. Otherwise they call [`FileData::seek_data`] and [`FileData::seek_hole`]. They do not
    /// wait for a thread that changes the file; meanwhile they treat it as a file without holes,
    /// which POSIX allows.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// The occupied space in units of 512 bytes. None if only the attributes of the inode have it
    /// ([`NodeAttr::blocks`](crate::NodeAttr::blocks)).
    fn blocks(&self) -> Option<u64>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of the store.
    fn sync(&mut self) -> Result<()>;

    /// A descriptor of the file on the host that has these bytes, open for reading. A kernel that
    /// gets it opens the file again, also for writing, and checks nothing then. From then on it
    /// reads and writes the bytes without a call here
    /// ([`File::backing_file`](crate::File::backing_file)). None if the bytes are elsewhere, or may
    /// not be written everywhere.
    ///
    /// # Errors
    /// Those of the store.
    fn backing_file(&self) -> Result<Option<Arc<OwnedFd>>> {
        Ok(None)
    }

    /// A descriptor of a file on the host that has these bytes, open for reading:
    /// [`FileData::copy_from`] of another file can copy from it. None if the bytes are elsewhere.
    ///
    /// # Errors
    /// Those of the store.
    fn copy_source(&self) -> Result<Option<Arc<OwnedFd>>> {
        self.backing_file()
    }

    /// Copies up to `len` bytes at `source_offset` of a file on the host, open for reading, to
    /// `offset` (copy_file_range(2)). Returns their number.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] if these bytes cannot be copied so: they are read and written
    /// then.
    fn copy_from(&mut self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> Result<usize> {
        let _ = (offset, source, source_offset, len);
        Err(crate::Error::NotSupported)
    }

    /// Whether the store lets this process write to the file.
    ///
    /// # Errors
    /// Those of open(2).
    fn may_write(&self) -> Result<()> {
        Ok(())
    }
}

/// Zeros a range as the default of [`FileData::zero`] does, for drivers that have a faster way for
/// some files only.
///
/// # Errors
/// As [`FileData::allocate`].
pub fn write_zeros<D: FileData + ?Sized>(data: &mut D, offset: u64, len: u64, size: u64) -> Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    data.allocate(offset, len)?;
    let (mut at, end) = (offset, size.min(offset.saturating_add(len)));
    while at < end
        && let Some(start) = data.seek_data(at, size)?.filter(|start| *start < end)
    {
        let hole = data.seek_hole(start, size)?.min(end);
        at = start;
        while at < hole {
            let part = usize::try_from(hole - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            match data.write_at(&ZEROS[..part], at)? {
                0 => return Err(crate::Error::Io),
                count => at += count as u64,
            }
        }
    }
    Ok(())
}
