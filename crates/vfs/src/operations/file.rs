//! The open file description: reading, writing, and where it stands.

use std::{
    io::{IoSlice, IoSliceMut},
    ops::Deref,
};

use pando_sync::pin;

use crate::{
    AttrMask, Error, File, FileData, Layout, Result, Seek, Stat, Timestamp,
    caches::write_back::store_times,
    objects::{inode::Inode, stat::stat_of},
    operations::{
        attempt::in_need_of_space,
        attr::{Stamp, file_remove_privs, file_remove_privs_before, truncate_inode},
    },
    trace::TraceOp,
    types::{FileKind, OpenFlags},
};

/// The greatest size and offset.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;
/// The most buffers that one call takes.
pub(crate) const IOV_MAX: usize = 1024;

impl File {
    /// Its attributes (fstat).
    #[must_use]
    pub fn stat(&self) -> Stat {
        stat_of(self.inode(), &pin())
    }

    /// Reads at the position and moves it (read). Waits for another read or write on this description.
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

    /// As [`File::read`], into one buffer after the other, as one: nobody's write comes between (readv). For no bytes it
    /// does nothing.
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

    /// Reads at an offset (pread). Zero bytes: the end.
    ///
    /// # Errors
    /// EBADF, EISDIR; EINVAL for what would end beyond 2^63 - 1.
    pub fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.traced(TraceOp::Read, || {
            check_offset(offset)?;
            self.readable()?;
            self.check_range(offset, buffer.len())?;
            self.read_inode(&mut [IoSliceMut::new(buffer)], offset)
        })
    }

    /// As [`File::pread`], into one buffer after the other, as one (preadv). For no bytes it does nothing.
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

    fn readable(&self) -> Result<()> {
        let flags = self.flags();
        let ok = flags.reads() && !flags.contains(OpenFlags::PATH);
        if ok { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// What is read or written must end at 2^63 - 1 at the latest; and directories are not read so.
    fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        if offset.checked_add(len as u64).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Error::Invalid);
        }
        if self.kind == FileKind::Directory { Err(Error::IsDirectory) } else { Ok(()) }
    }

    fn read_inode(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let inode = self.inode();
        let count = read_at(inode, buffers, offset)?;
        // Reading no bytes is reading, as on tmpfs.
        if !self.no_atime() && inode.times.accessed(&pin(), i64::MIN, || Timestamp::now().0) {
            inode.set_dirty(AttrMask::ATIME);
        }
        Ok(count)
    }

    /// Writes at the position (with O_APPEND: at the end) and moves it (write).
    ///
    /// # Errors
    /// EBADF if not open for writing, EINVAL for what would end beyond 2^63 - 1, ENOSPC when not one byte fits, EFBIG
    /// when appending to the greatest size.
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        self.writev(&[IoSlice::new(data)])
    }

    /// As [`File::write`], one buffer after the other, as one: nobody sees a part of it, or writes between (writev).
    ///
    /// # Errors
    /// As write; EINVAL for more than 1024 buffers.
    pub fn writev(&self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            self.writable()?;
            let len = total(buffers)?;
            // Asked again when the position stands still: by then privileges are gone.
            self.check_range(self.position.tell(), len)?;
            self.file_remove_privs_before(len)?;
            let io = self.position.begin();
            self.check_range(io.position(), len)?;
            let append = self.flags().contains(OpenFlags::APPEND);
            let (start, count) = self.write_inode(buffers, len, io.position(), append)?;
            io.finish(start + count as u64);
            self.written(count)
        })
    }

    /// Writes at an offset (pwrite). With O_APPEND Linux appends all the same, and so does this.
    ///
    /// # Errors
    /// EBADF, EINVAL for what would end beyond 2^63 - 1, ENOSPC, EFBIG.
    pub fn pwrite(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.pwritev(&[IoSlice::new(data)], offset)
    }

    /// As [`File::pwrite`], one buffer after the other, as one (pwritev).
    ///
    /// # Errors
    /// As pwrite; EINVAL for more than 1024 buffers.
    pub fn pwritev(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.traced(TraceOp::Write, || {
            check_offset(offset)?;
            self.writable()?;
            let len = total(buffers)?;
            self.check_range(offset, len)?;
            self.file_remove_privs_before(len)?;
            let (_, count) = self.write_inode(buffers, len, offset, self.flags().contains(OpenFlags::APPEND))?;
            self.written(count)
        })
    }

    /// So much was written, and made durable if it is to be; now the times, which a name's lock orders.
    fn written(&self, count: usize) -> Result<usize> {
        if count > 0 && self.flags().contains(OpenFlags::SYNC) {
            store_times(self.inode())?;
        }
        Ok(count)
    }

    fn writable(&self) -> Result<()> {
        let flags = self.flags();
        let ok = flags.writes() && !flags.contains(OpenFlags::PATH);
        if ok { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// Before bytes are written, if there are any.
    fn file_remove_privs_before(&self, len: usize) -> Result<()> {
        if len == 0 { Ok(()) } else { file_remove_privs_before(self.inode(), self.writer) }
    }

    /// Writes, and says where.
    fn write_inode(&self, buffers: &[IoSlice<'_>], len: usize, offset: u64, append: bool) -> Result<(u64, usize)> {
        if len == 0 {
            return Ok((offset, 0));
        }
        in_need_of_space(|| self.try_write(buffers, offset, append))
    }

    fn try_write(&self, buffers: &[IoSlice<'_>], offset: u64, append: bool) -> Result<(u64, usize)> {
        let inode = self.inode();
        let state = inode.file_state()?;
        state.change(inode, |contents| {
            let size = inode.size();
            let offset = if append { size } else { offset };
            let room = usize::try_from(OFFSET_MAX - offset).unwrap_or(usize::MAX);
            if room == 0 {
                return Err(Error::TooBig);
            }
            file_remove_privs(inode, self.writer);
            // Stamped before, also if there turns out to be no space: as Linux does.
            inode.times.modified(Timestamp::now().0);
            inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
            let count = write_at(contents, buffers, offset, room)?;
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

    /// Moves the position (lseek). Only a relative seek waits, and only for a read or write on this description.
    ///
    /// # Errors
    /// EINVAL for a negative result, EOVERFLOW for one beyond 2^63 - 1, ENXIO for DATA and HOLE beyond the end, EBADF
    /// for O_PATH. The position is then unchanged.
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
        let found = found.unwrap_or_else(|_| {
            let ask = |data: &dyn FileData| {
                let size = inode.size();
                everywhere(size).and_then(|offset| data.seek_data(offset, size))
            };
            state.try_look(ask).unwrap_or_else(|| everywhere(inode.size()))
        });
        found.ok_or(Error::NoDeviceAddress)
    }

    fn seek_hole(&self, offset: i64) -> Result<u64> {
        let offset = u64::try_from(offset).map_err(|_| Error::NoDeviceAddress)?;
        let inode = self.inode();
        let inside =
            |size, hole: &dyn Fn() -> u64| if offset < size { Ok(hole()) } else { Err(Error::NoDeviceAddress) };
        let state = inode.contents()?.ok_or(Error::NoDeviceAddress)?;
        let found = state.seek(inode, |size, layout: Option<&Layout>| {
            inside(size, &|| layout.map_or(size, |layout| layout.hole_after(offset, size)))
        });
        found.unwrap_or_else(|_| {
            let ask = |data: &dyn FileData| {
                let size = inode.size();
                inside(size, &|| data.seek_hole(offset, size))
            };
            state.try_look(ask).unwrap_or_else(|| {
                let size = inode.size();
                inside(size, &|| size)
            })
        })
    }

    /// Cuts or grows the file (ftruncate).
    ///
    /// # Errors
    /// EINVAL if not open for writing or no regular file, ENOSPC.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.traced(TraceOp::Truncate, || self.truncate_to(size))
    }

    fn truncate_to(&self, size: u64) -> Result<()> {
        if size > OFFSET_MAX {
            return Err(Error::Invalid);
        }
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if !self.flags().writes() || self.kind != FileKind::File {
            return Err(Error::Invalid);
        }
        truncate_inode(self.inode(), size, self.writer, Stamp::Always)
    }

    /// Allocates or frees space (fallocate): `KEEP_SIZE` (1) and `PUNCH_HOLE` (2, with KEEP_SIZE).
    ///
    /// # Errors
    /// EBADF if not open for writing, EINVAL for an empty range, EFBIG for one beyond 2^63 - 1, EOPNOTSUPP for another
    /// mode, ENOSPC.
    pub fn fallocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.traced(TraceOp::Fallocate, || self.allocate(mode, offset, len))
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if offset > OFFSET_MAX || len == 0 || len > OFFSET_MAX {
            return Err(Error::Invalid);
        }
        // What Linux knows (6.17 and later) and memory does not have (collapse, zero, insert, unshare, write zeroes) is refused
        // after handle and range are.
        if !matches!(mode, 0 | KEEP_SIZE | 3 | 0x8 | 0x10 | 0x11 | 0x20 | 0x40 | 0x41 | 0x80) {
            return Err(Error::NotSupported);
        }
        self.writable()?;
        let end = offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).ok_or(Error::TooBig)?;
        if mode > KEEP_SIZE | PUNCH_HOLE {
            return Err(Error::NotSupported);
        }
        let inode = self.inode();
        let state = inode.file_state()?;
        let change = |contents: &mut dyn FileData| {
            file_remove_privs(inode, self.writer);
            let size = inode.size();
            if mode & PUNCH_HOLE != 0 {
                // Beyond the end too: the last page as a whole, and what was allocated there.
                contents.punch(offset, len)?;
            } else {
                contents.allocate(offset, len)?;
                if mode & KEEP_SIZE == 0 && end > size {
                    if inode.shard.sb.driver.backing().is_some() {
                        // What is kept elsewhere must hear of the size.
                        contents.truncate(size, end)?;
                    }
                    state.resize(inode, contents, end);
                }
            }
            inode.times.modified(Timestamp::now().0);
            inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
            Ok(())
        };
        file_remove_privs_before(inode, self.writer)?;
        in_need_of_space(|| state.change(inode, change))
    }

    /// Makes the contents durable (fsync).
    ///
    /// # Errors
    /// EBADF for O_PATH, and what the store answers.
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
            None => Ok(()),
        }
    }
}

/// `base + delta` as a position.
fn add(base: u64, delta: i64) -> Result<u64> {
    // Both fit 64 bits signed, so their sum fits 128.
    let sum = i128::from(base) + i128::from(delta);
    if sum < 0 {
        Err(Error::Invalid)
    } else {
        u64::try_from(sum).ok().filter(|sum| *sum <= OFFSET_MAX).ok_or(Error::Overflow)
    }
}

/// Asked before what the handle is for, as in Linux.
fn check_offset(offset: u64) -> Result<()> {
    if offset > OFFSET_MAX { Err(Error::Invalid) } else { Ok(()) }
}

/// How many bytes there are in all.
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
            _ if offset >= size => Ok(0),
            [buffer] => data.read_at(buffer, offset, size),
            buffers => data.readv_at(buffers, offset, size),
        }
    })
}

/// Writes as much as there is `room` for; of several buffers, those that fit as they are, if the first one does.
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
