//! Open files.

use pando_vfs::{Error, FileKind, OpenFlags, Result, Seek};

use super::{Caller, Server};

impl Server {
    /// What open(2) flags mean to the tree when the kernel opens on behalf of a process. APPEND is the kernel's business:
    /// it knows the end and sends the offset; pages of a shared mapping written back through the same handle go where they
    /// belong, not to the end. DIRECT and the flags of creating are done with too.
    pub(super) fn handle_flags(&self, flags: u32) -> OpenFlags {
        let kernels = OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOCTTY;
        let flags = OpenFlags::from_bits_truncate(flags) - kernels;
        if self.no_atime { flags | OpenFlags::NOATIME } else { flags }
    }

    /// Opens `node`, a file or a directory; answers the handle. Truncates with `O_TRUNC`.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn open(&self, caller: Caller, node: u64, flags: u32) -> Result<u64> {
        self.guarded("open", || {
            let (dentry, mut flags) = (self.nodes.get(node)?, self.handle_flags(flags));
            if self.no_dir_atime && dentry.kind() == FileKind::Directory {
                flags |= OpenFlags::NOATIME;
            }
            if flags.contains(OpenFlags::TRUNC) {
                self.take_privileges(caller, &dentry)?;
            }
            let file = self.vfs.open_dentry(&self.context(caller, 0), &dentry, flags)?;
            self.keep(file)
        })
    }

    /// Closes a handle: nobody has it open any more.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn release(&self, handle: u64) -> Result<()> {
        self.guarded("release", || self.close(handle))
    }

    /// Fills `buf` from `offset` on; answers how many bytes there were, fewer only at the end.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn read(&self, handle: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.guarded("read", || {
            self.with_file(handle, |file| {
                let mut filled = 0;
                // The kernel takes a short answer for the end of the file.
                while filled < buf.len() {
                    match file.pread(&mut buf[filled..], offset + filled as u64)? {
                        0 => break,
                        count => filled += count,
                    }
                }
                Ok(filled)
            })
        })
    }

    /// Writes at `offset`; answers how many bytes were written.
    ///
    /// # Errors
    /// ENOSPC when not one byte fits, EFBIG; see [`Server`].
    pub fn write(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<usize> {
        match self.write_until(caller, handle, offset, data)? {
            (0, Err(error)) => Err(error),
            // What was written before counts; the error comes again with the next write.
            (written, _) => Ok(written),
        }
    }

    /// As [`Server::write`], for pages of a mapping that the kernel writes back, and for what is written past its cache: all
    /// of it or an error. Of the former the kernel takes any count for all, and there is no next write of theirs.
    ///
    /// # Errors
    /// ENOSPC when not all fits, EFBIG; see [`Server`].
    pub fn write_back(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<usize> {
        let (written, ended) = self.write_until(caller, handle, offset, data)?;
        ended.map(|()| written)
    }

    /// How many bytes could be written, and what came in the way of the others.
    fn write_until(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<(usize, Result<()>)> {
        self.guarded("write", || {
            self.with_file(handle, |file| {
                if !data.is_empty() {
                    self.take_privileges(caller, file.dentry())?;
                }
                let mut written = 0;
                while written < data.len() {
                    match self.space.retry(|| file.pwrite(&data[written..], offset + written as u64)) {
                        Ok(0) => return Ok((written, Err(Error::Io))),
                        Ok(count) => written += count,
                        Err(error) => return Ok((written, Err(error))),
                    }
                }
                Ok((written, Ok(())))
            })
        })
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn fsync(&self, handle: u64) -> Result<()> {
        self.guarded("fsync", || self.with_file(handle, pando_vfs::File::fsync))
    }

    /// Allocates or frees a range, as fallocate(2).
    ///
    /// # Errors
    /// ENOSPC, EOPNOTSUPP for unknown modes; see [`Server`].
    pub fn fallocate(&self, caller: Caller, handle: u64, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.guarded("fallocate", || {
            self.with_file(handle, |file| {
                self.take_privileges(caller, file.dentry())?;
                self.space.retry(|| file.fallocate(mode, offset, len))
            })
        })
    }

    /// Where data (`SEEK_DATA`, 3) or a hole (`SEEK_HOLE`, 4) is, at or after `offset`. The other kinds are the
    /// kernel's own: it keeps the position. Of what is open for reading and writing, all is data: the kernel may have pages
    /// of a mapping, and writes none back for this.
    ///
    /// # Errors
    /// ENXIO beyond the end, EINVAL for other kinds; see [`Server`].
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<u64> {
        self.guarded("lseek", || {
            let seek = match whence {
                3 => Seek::Data(offset),
                4 => Seek::Hole(offset),
                _ => return Err(Error::Invalid),
            };
            self.with_file(handle, |file| {
                if !self.mappable.has(file) {
                    return file.lseek(seek);
                }
                let size = file.stat().size;
                let start = u64::try_from(offset).ok().filter(|start| *start < size).ok_or(Error::NoDeviceAddress)?;
                Ok(if whence == 3 { start } else { size })
            })
        })
    }
}
