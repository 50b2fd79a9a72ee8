//! copy_file_range: bytes of one file become bytes of another. Analogous to fs/read_write.c.
//!
//! Only one data lock is held at a time: a part is read first, and written then. So two threads
//! that copy in opposite directions cannot deadlock. A driver that copies by itself gets a
//! descriptor of the source, and needs no lock for it.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::OwnedFd,
    sync::Arc,
};

use pando_sync::pin;

use crate::{
    Error, File, InodeFlags, Result,
    objects::notify,
    operations::{attr::file_remove_privs_before, file::OFFSET_MAX},
    trace::TraceOp,
    types::{FileKind, OpenFlags},
};

/// Bytes that are read at a time.
const PART: usize = 1 << 20;
/// The most bytes that one call copies by reading and writing, and that a driver copies. Other
/// threads wait for the file meanwhile.
const MOST: usize = 64 << 20;
const MOST_BY_DRIVER: usize = 256 << 20;

impl File {
    /// Copies bytes at `from_offset` of another file to `offset` of this one (copy_file_range), and
    /// returns their number. It is smaller than `len` if `from` ends before, and may be smaller
    /// otherwise; 0 means that `from` has ended. The positions do not move.
    ///
    /// If both files are in trees over directories of the host, or are large files of stores, the
    /// host copies, 256 MiB at most in one call, and its file system may let both share the bytes.
    /// Otherwise they are read and written, 64 MiB at most in one call.
    ///
    /// # Errors
    /// EBADF if `from` is not open for reading, or this file not for writing, or for O_APPEND;
    /// EISDIR; EINVAL for what is no regular file, for ranges of one file that overlap, and for an
    /// offset beyond 2^63 - 1 (EOVERFLOW if the range ends beyond 2^64); EPERM if this file is
    /// immutable; EFBIG for an `offset` of 2^63 - 1; ENOSPC; and those of the driver.
    #[doc(alias = "copy_file_range")]
    pub fn copy_range(&self, offset: u64, from: &Self, from_offset: u64, len: usize) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            let len = self.check_copy(offset, from, from_offset, len)?;
            if len == 0 {
                return Ok(0);
            }
            let on_host = || {
                let source = from.copy_source()?.ok_or(Error::NotSupported)?;
                self.copy_from_host(offset, from, (&source, from_offset), len)
            };
            let copied = match on_host() {
                Err(Error::NotSupported) => self.copy_parts(offset, from, from_offset, len.min(MOST))?,
                copied => copied?,
            };
            self.written(copied)
        })
    }

    /// As [`File::copy_range`], if the host can copy.
    ///
    /// # Errors
    /// EOPNOTSUPP if it cannot, and those of [`File::copy_range`].
    pub fn copy_range_on_host(&self, offset: u64, from: &Self, from_offset: u64, len: usize) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            let len = self.check_copy(offset, from, from_offset, len)?;
            let source = from.copy_source()?.ok_or(Error::NotSupported)?;
            match len {
                0 => Ok(0),
                len => self.written(self.copy_from_host(offset, from, (&source, from_offset), len)?),
            }
        })
    }

    /// The file on the host from which the bytes can be copied, if there is one.
    fn copy_source(&self) -> Result<Option<Arc<OwnedFd>>> {
        self.inode().contents()?.map_or(Ok(None), |state| state.look(|data| data.copy_source()))
    }

    /// The checks of `generic_copy_file_checks()`, in its order. Returns how many bytes there are
    /// to copy.
    fn check_copy(&self, offset: u64, from: &Self, from_offset: u64, len: usize) -> Result<usize> {
        let both = [from, self];
        if both.iter().any(|file| file.flags().contains(OpenFlags::PATH)) {
            return Err(Error::BadHandle);
        }
        if both.iter().any(|file| file.kind == FileKind::Directory) {
            return Err(Error::IsDirectory);
        }
        if both.iter().any(|file| file.kind != FileKind::File) {
            return Err(Error::Invalid);
        }
        from.readable()?;
        self.writer()?;
        if self.flags().contains(OpenFlags::APPEND) {
            return Err(Error::BadHandle);
        }
        self.inode().permissions(&pin()).expect_without(InodeFlags::IMMUTABLE)?;
        if [from_offset, offset].iter().any(|start| start.checked_add(len as u64).is_none()) {
            return Err(Error::Overflow);
        }
        if offset == OFFSET_MAX {
            return Err(Error::TooBig);
        }
        if offset > OFFSET_MAX || from_offset > OFFSET_MAX {
            return Err(Error::Invalid);
        }
        let left = from.inode().size().saturating_sub(from_offset).min(OFFSET_MAX - offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let overlap = offset + len as u64 > from_offset && offset < from_offset + len as u64;
        if std::ptr::eq(self.inode(), from.inode()) && overlap {
            return Err(Error::Invalid);
        }
        Ok(len)
    }

    /// Lets the driver copy from the host's file with the bytes of `from`.
    ///
    /// # Errors
    /// EOPNOTSUPP if it cannot.
    fn copy_from_host(
        &self,
        offset: u64,
        from: &Self,
        (source, source_offset): (&OwnedFd, u64),
        len: usize,
    ) -> Result<usize> {
        let (writer, len) = (self.writer()?, len.min(MOST_BY_DRIVER));
        file_remove_privs_before(self.inode(), writer)?;
        let (_, copied) = self.try_write(writer, offset, false, |contents, offset, room| {
            contents.copy_from(offset, source, source_offset, len.min(room))
        })?;
        from.note_access();
        if copied > 0 {
            notify::accessed(from.dentry().0.as_shared());
        }
        Ok(copied)
    }

    fn copy_parts(&self, offset: u64, from: &Self, from_offset: u64, len: usize) -> Result<usize> {
        let (mut buffer, mut copied) = (vec![0; PART.min(len)], 0);
        while copied < len {
            let part = buffer.len().min(len - copied);
            let done = self.copy_part(offset + copied as u64, from, from_offset + copied as u64, &mut buffer[..part]);
            match done {
                Err(error) if copied == 0 => return Err(error),
                Ok(count) if count == part => copied += count,
                Ok(count) => return Ok(copied + count),
                Err(_) => break,
            }
        }
        Ok(copied)
    }

    fn copy_part(&self, offset: u64, from: &Self, from_offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = from.read_inode(&mut [IoSliceMut::new(buffer)], from_offset)?;
        if read == 0 {
            return Ok(0);
        }
        let writer = self.writer()?;
        file_remove_privs_before(self.inode(), writer)?;
        let (_, count) = self.write_inode(writer, &[IoSlice::new(&buffer[..read])], read, offset, false)?;
        Ok(count)
    }
}
