//! The open file description: reads, writes and its position.

use std::{
    io::{IoSlice, IoSliceMut},
    ops::Deref,
    os::fd::OwnedFd,
    sync::Arc,
};

use pando_sync::pin;

use crate::{
    AttrMask, Error, File, FileData, InodeFlags, Layout, Result, Seek, Stat, Timestamp,
    caches::{ask::stat_settled, write_back::store_times},
    objects::{inode::Inode, notify, stat::note_access},
    operations::{
        attempt::retry_after_reclaim,
        attr::{Stamp, file_remove_privs, file_remove_privs_before, truncate_inode},
    },
    trace::TraceOp,
    types::{FileKind, OpenFlags, cred::Writer},
};

/// The largest size and offset.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;
/// The largest number of buffers of one call.
pub(crate) const IOV_MAX: usize = 1024;

impl File {
    /// Its attributes, as far as the tree knows them. [`Vfs::getattr`](crate::Vfs::getattr) asks a
    /// backing if others have changed them.
    #[must_use]
    pub fn stat(&self) -> Stat {
        stat_settled(&self.dentry().0)
    }

    /// Reads at the position and advances it (read). Waits for another read or write on this
    /// description.
    ///
    /// # Errors
    /// EBADF if not open for reading, EISDIR.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        self.traced(TraceOp::Read, || {
            self.readable()?;
            let len = buffer.len();
            self.read_here(&mut [IoSliceMut::new(buffer)], len)
        })
    }

    /// Like [`File::read`], into several buffers as one read: no write of another thread comes
    /// between them (readv). For zero bytes it does nothing.
    ///
    /// # Errors
    /// As read; EINVAL for more than 1024 buffers.
    pub fn readv(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.traced(TraceOp::Read, || {
            self.readable()?;
            match total(buffers)? {
                0 => Ok(0),
                len => self.read_here(buffers, len),
            }
        })
    }

    fn read_here(&self, buffers: &mut [IoSliceMut<'_>], len: usize) -> Result<usize> {
        let io = self.position.begin();
        let start = io.position();
        self.check_range(start, len)?;
        let count = self.read_inode(buffers, start)?;
        io.finish(start + count as u64);
        Ok(count)
    }

    /// Reads at an offset (pread). A result of 0 is the end of the file.
    ///
    /// # Errors
    /// EBADF, EISDIR; EINVAL for a range that ends beyond 2^63 - 1.
    pub fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.traced(TraceOp::Read, || {
            check_offset(offset)?;
            self.readable()?;
            self.check_range(offset, buffer.len())?;
            self.read_inode(&mut [IoSliceMut::new(buffer)], offset)
        })
    }

    /// Like [`File::pread`], into several buffers as one read (preadv). For zero bytes it does
    /// nothing.
    ///
    /// # Errors
    /// As pread; EINVAL for more than 1024 buffers.
    pub fn preadv(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.traced(TraceOp::Read, || {
            check_offset(offset)?;
            self.readable()?;
            match total(buffers)? {
                0 => Ok(0),
                len => {
                    self.check_range(offset, len)?;
                    self.read_inode(buffers, offset)
                }
            }
        })
    }

    /// The file on the host that has the contents, open for reading, if the driver has one. Writes
    /// to it bypass the tree. [`Vfs::changed_elsewhere`](crate::Vfs::changed_elsewhere) makes the
    /// tree show them.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn backing_file(&self) -> Result<Option<Arc<OwnedFd>>> {
        match self.kind {
            FileKind::File => self.inode().contents()?.map_or(Ok(None), |state| state.look(|data| data.backing_file())),
            _ => Ok(None),
        }
    }

    /// Whether the driver can write to the file on the host. It checks that at the first write, if
    /// nothing else asks.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn may_write_backing_file(&self) -> Result<()> {
        self.inode().contents()?.map_or(Ok(()), |state| state.look(|data| data.may_write()))
    }

    pub(crate) fn readable(&self) -> Result<()> {
        let flags = self.flags();
        let ok = flags.reads() && !flags.contains(OpenFlags::PATH);
        if ok { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// Checks that a read or write ends at 2^63 - 1 at the latest, and that this is not a
    /// directory.
    fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        if offset.checked_add(len as u64).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Error::Invalid);
        }
        if self.kind == FileKind::Directory { Err(Error::IsDirectory) } else { Ok(()) }
    }

    pub(crate) fn read_inode(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let count = read_at(self.inode(), buffers, offset)?;
        // A read of zero bytes updates atime too, as on tmpfs.
        self.note_access();
        if count > 0 {
            notify::accessed(self.dentry().0.as_shared());
        }
        Ok(count)
    }

    /// Updates atime after a read, unless the flags forbid it.
    pub(crate) fn note_access(&self) {
        if !self.no_atime() {
            note_access(self.inode(), i64::MIN, &pin());
        }
    }

    /// Writes at the position, or at the end with O_APPEND, and advances the position (write).
    ///
    /// # Errors
    /// EBADF if not open for writing, EINVAL for a range that ends beyond 2^63 - 1, ENOSPC if not
    /// one byte fits, EFBIG for an append to a file of the largest size.
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        self.writev(&[IoSlice::new(data)])
    }

    /// Like [`File::write`], from several buffers as one write: no thread sees a part of it or
    /// writes between them (writev).
    ///
    /// # Errors
    /// As write; EINVAL for more than 1024 buffers.
    pub fn writev(&self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            let writer = self.writer()?;
            let len = total(buffers)?;
            // Checked again when the position is locked. Privileges have been dropped by then.
            self.check_range(self.position.tell(), len)?;
            self.file_remove_privs_before(writer, len)?;
            let io = self.position.begin();
            self.check_range(io.position(), len)?;
            let append = self.flags().contains(OpenFlags::APPEND);
            let (start, count) = self.write_inode(writer, buffers, len, io.position(), append)?;
            io.finish(start + count as u64);
            self.written(count)
        })
    }

    /// Writes at an offset (pwrite). With O_APPEND Linux appends nevertheless, and so does this.
    ///
    /// # Errors
    /// EBADF, EINVAL for a range that ends beyond 2^63 - 1, ENOSPC, EFBIG.
    pub fn pwrite(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.pwritev(&[IoSlice::new(data)], offset)
    }

    /// Like [`File::pwrite`], from several buffers as one write (pwritev).
    ///
    /// # Errors
    /// As pwrite; EINVAL for more than 1024 buffers.
    pub fn pwritev(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            check_offset(offset)?;
            let writer = self.writer()?;
            let len = total(buffers)?;
            self.check_range(offset, len)?;
            self.file_remove_privs_before(writer, len)?;
            let (_, count) =
                self.write_inode(writer, buffers, len, offset, self.flags().contains(OpenFlags::APPEND))?;
            self.written(count)
        })
    }

    /// After a write of `count` bytes, which is durable if the flags ask for it: stores the times.
    /// A name lock orders that, so it happens after the data lock is released.
    pub(crate) fn written(&self, count: usize) -> Result<usize> {
        if count > 0 {
            notify::modified(self.dentry().0.as_shared());
        }
        if count > 0 && self.flags().contains(OpenFlags::SYNC) {
            store_times(self.inode())?;
        }
        Ok(count)
    }

    /// The writer, or EBADF if the file is not open for writing.
    pub(crate) fn writer(&self) -> Result<Writer> {
        self.writer.ok_or(Error::BadHandle)
    }

    /// Drops privileges before bytes are written, if there are any.
    fn file_remove_privs_before(&self, writer: Writer, len: usize) -> Result<()> {
        if len == 0 { Ok(()) } else { file_remove_privs_before(self.inode(), writer) }
    }

    /// Writes, and returns the offset and the count.
    pub(crate) fn write_inode(
        &self,
        writer: Writer,
        buffers: &[IoSlice<'_>],
        len: usize,
        offset: u64,
        append: bool,
    ) -> Result<(u64, usize)> {
        if len == 0 {
            return Ok((offset, 0));
        }
        retry_after_reclaim(|| {
            self.try_write(writer, offset, append, |contents, offset, room| write_at(contents, buffers, offset, room))
        })
    }

    /// Changes the contents by `write`, which writes some bytes at an offset, `room` at most, and
    /// returns their number. Returns the offset and the count.
    pub(crate) fn try_write(
        &self,
        writer: Writer,
        offset: u64,
        append: bool,
        write: impl FnOnce(&mut dyn FileData, u64, usize) -> Result<usize>,
    ) -> Result<(u64, usize)> {
        let inode = self.inode();
        let state = inode.file_state()?;
        state.change(inode, |contents| {
            let size = inode.size();
            let offset = if append { size } else { offset };
            let room = usize::try_from(OFFSET_MAX - offset).unwrap_or(usize::MAX);
            if room == 0 {
                return Err(Error::TooBig);
            }
            file_remove_privs(inode, writer);
            // Stamped before the write, even if there turns out to be no space, as Linux does.
            inode.times.modified(Timestamp::now().0);
            inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
            let count = write(contents, offset, room)?;
            if offset + count as u64 > size {
                state.resize(inode, contents, offset + count as u64);
            }
            if self.flags().intersects(OpenFlags::SYNC | OpenFlags::DSYNC) {
                contents.sync()?;
            }
            Ok((offset, count))
        })
    }

    /// The position. Never waits.
    #[must_use]
    pub fn tell(&self) -> u64 {
        self.position.tell()
    }

    /// Moves the position (lseek). Only a relative seek waits, and only for a read or write on this
    /// description.
    ///
    /// # Errors
    /// EINVAL for a negative result, EOVERFLOW for a result beyond 2^63 - 1, ENXIO for DATA and
    /// HOLE beyond the end, EBADF for O_PATH. The position is unchanged then.
    #[inline]
    pub fn lseek(&self, seek: Seek) -> Result<u64> {
        if let Seek::Set(offset) = seek
            && self.kind == FileKind::File
            && !self.flags().contains(OpenFlags::PATH)
        {
            let offset = u64::try_from(offset).map_err(|_| Error::Invalid)?;
            self.position.set(offset);
            return Ok(offset);
        }
        self.lseek_slow(seek)
    }

    fn lseek_slow(&self, seek: Seek) -> Result<u64> {
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        let size = self.inode().size();
        let target = match seek {
            Seek::Set(offset) => u64::try_from(offset).map_err(|_| Error::Invalid)?,
            Seek::Cur(delta) => return self.position.seek_relative(|now| add(now, delta)),
            Seek::End(_) | Seek::Data(_) | Seek::Hole(_) if self.kind == FileKind::Directory => {
                return Err(Error::Invalid);
            }
            Seek::End(delta) => add(size, delta)?,
            Seek::Data(offset) => self.traced(TraceOp::Seek, || self.seek_data(offset))?,
            Seek::Hole(offset) => self.traced(TraceOp::Seek, || self.seek_hole(offset))?,
        };
        self.position.set(target);
        Ok(target)
    }

    fn seek_data(&self, offset: i64) -> Result<u64> {
        let offset = u64::try_from(offset).map_err(|_| Error::NoDeviceAddress)?;
        let inode = self.inode();
        let state = inode.contents()?.ok_or(Error::NoDeviceAddress)?;
        let everywhere = |size| Some(offset).filter(|offset| *offset < size);
        let found = state.seek(inode, |size, layout: Option<&Layout>| match layout {
            Some(layout) if offset < size => layout.data_after(offset, size),
            _ => everywhere(size),
        });
        let found = match found {
            Ok(found) => found,
            Err(_) => {
                let ask = |data: &dyn FileData| {
                    let size = inode.size();
                    everywhere(size).map_or(Ok(None), |offset| data.seek_data(offset, size))
                };
                state.try_look(ask).unwrap_or_else(|| Ok(everywhere(inode.size())))?
            }
        };
        found.ok_or(Error::NoDeviceAddress)
    }

    fn seek_hole(&self, offset: i64) -> Result<u64> {
        let offset = u64::try_from(offset).map_err(|_| Error::NoDeviceAddress)?;
        let inode = self.inode();
        let inside =
            |size, hole: &dyn Fn() -> Result<u64>| if offset < size { hole() } else { Err(Error::NoDeviceAddress) };
        let state = inode.contents()?.ok_or(Error::NoDeviceAddress)?;
        let found = state.seek(inode, |size, layout: Option<&Layout>| {
            inside(size, &|| Ok(layout.map_or(size, |layout| layout.hole_after(offset, size))))
        });
        found.unwrap_or_else(|_| {
            let ask = |data: &dyn FileData| {
                let size = inode.size();
                inside(size, &|| data.seek_hole(offset, size))
            };
            state.try_look(ask).unwrap_or_else(|| {
                let size = inode.size();
                inside(size, &|| Ok(size))
            })
        })
    }

    /// Shrinks or extends the file (ftruncate).
    ///
    /// # Errors
    /// EINVAL if not open for writing or not a regular file, ENOSPC.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.traced(TraceOp::Truncate, || self.truncate_to(size))?;
        notify::modified(self.dentry().0.as_shared());
        Ok(())
    }

    fn truncate_to(&self, size: u64) -> Result<()> {
        if size > OFFSET_MAX {
            return Err(Error::Invalid);
        }
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        let writer = self.writer.filter(|_| self.kind == FileKind::File).ok_or(Error::Invalid)?;
        truncate_inode(self.inode(), size, writer, Stamp::Always)
    }

    /// Allocates or frees space (fallocate): `KEEP_SIZE` (1), `PUNCH_HOLE` (2, with KEEP_SIZE), and
    /// `ZERO_RANGE` (0x10).
    ///
    /// # Errors
    /// EBADF if not open for writing, EINVAL for an empty range, EFBIG for a range beyond 2^63 - 1,
    /// EOPNOTSUPP for another mode, EPERM for an immutable file, or if an append-only one would
    /// lose bytes, ENOSPC.
    pub fn fallocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.traced(TraceOp::Fallocate, || self.allocate(mode, offset, len))?;
        notify::modified(self.dentry().0.as_shared());
        Ok(())
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 0x10;
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if offset > OFFSET_MAX || len == 0 || len > OFFSET_MAX {
            return Err(Error::Invalid);
        }
        // Linux 6.17 and later know more modes (collapse, insert, unshare, write zeroes). Handle
        // and range are checked before these are refused.
        if !matches!(mode, 0 | KEEP_SIZE | 3 | 0x8 | 0x10 | 0x11 | 0x20 | 0x40 | 0x41 | 0x80) {
            return Err(Error::NotSupported);
        }
        let writer = self.writer()?;
        let refusing = if mode & !KEEP_SIZE == 0 { InodeFlags::IMMUTABLE } else { InodeFlags::PROTECTING };
        self.inode().permissions(&pin()).expect_without(refusing)?;
        let end = offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).ok_or(Error::TooBig)?;
        if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0 {
            return Err(Error::NotSupported);
        }
        let inode = self.inode();
        let state = inode.file_state()?;
        let change = |contents: &mut dyn FileData| {
            file_remove_privs(inode, writer);
            let size = inode.size();
            if mode & PUNCH_HOLE != 0 {
                // This covers space beyond the end too: the whole last page, and space that was
                // allocated there.
                contents.punch(offset, len)?;
            } else {
                if mode & ZERO_RANGE != 0 {
                    contents.zero(offset, len, size)?;
                } else {
                    contents.allocate(offset, len)?;
                }
                if mode & KEEP_SIZE == 0 && end > size {
                    if inode.shard.sb.driver.backing().is_some() {
                        // A backing must be told of the new size.
                        contents.truncate(size, end)?;
                    }
                    state.resize(inode, contents, end);
                }
            }
            inode.times.modified(Timestamp::now().0);
            inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
            Ok(())
        };
        file_remove_privs_before(inode, writer)?;
        retry_after_reclaim(|| state.change(inode, change))
    }

    /// Makes the contents durable (fsync).
    ///
    /// # Errors
    /// EBADF for O_PATH, and the errors of the driver.
    pub fn fsync(&self) -> Result<()> {
        self.traced(TraceOp::Fsync, || self.sync())
    }

    fn sync(&self) -> Result<()> {
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        store_times(self.inode())?;
        match self.inode().file_state_if_any() {
            Some(state) => state.change(self.inode(), |data| data.sync()),
            None => self.inode().shard.sb.ask_backing().map_or(Ok(()), |backing| backing.sync_inode(self.inode().ino)),
        }
    }
}

/// `base + delta` as a position.
fn add(base: u64, delta: i64) -> Result<u64> {
    // Both fit into 64 signed bits, so the sum fits into 128.
    let sum = i128::from(base) + i128::from(delta);
    if sum < 0 {
        Err(Error::Invalid)
    } else {
        u64::try_from(sum).ok().filter(|sum| *sum <= OFFSET_MAX).ok_or(Error::Overflow)
    }
}

/// Checked before the open mode of the handle, as in Linux.
fn check_offset(offset: u64) -> Result<()> {
    if offset > OFFSET_MAX { Err(Error::Invalid) } else { Ok(()) }
}

/// The number of bytes in all buffers.
fn total<B: Deref<Target = [u8]>>(buffers: &[B]) -> Result<usize> {
    if buffers.len() > IOV_MAX {
        return Err(Error::Invalid);
    }
    buffers.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.len())).ok_or(Error::Invalid)
}

/// Reads from an inode's contents.
fn read_at(inode: &Inode, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
    let Some(state) = inode.contents()? else { return Ok(0) };
    state.look(|data| {
        let size = inode.size();
        match buffers {
            // A store that stamps times counts this as an access.
            _ if offset >= size && !inode.shard.sb.stamped_elsewhere => Ok(0),
            [buffer] => data.read_at(buffer, offset, size),
            buffers => data.readv_at(buffers, offset, size),
        }
    })
}

/// Writes at most `room` bytes. Of several buffers it writes the leading ones that fit whole. If
/// the first does not fit, it writes a part of the first.
fn write_at(contents: &mut dyn FileData, buffers: &[IoSlice<'_>], offset: u64, mut room: usize) -> Result<usize> {
    match buffers {
        [only] => contents.write_at(&only[..only.len().min(room)], offset),
        [first, ..] if first.len() > room => contents.write_at(&first[..room], offset),
        buffers => {
            let fits = |buffer: &&IoSlice<'_>| room.checked_sub(buffer.len()).map(|left| room = left).is_some();
            let fitting = buffers.iter().take_while(fits).count();
            contents.writev_at(&buffers[..fitting], offset)
        }
    }
}
