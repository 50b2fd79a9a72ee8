//! Open files.

use pando_vfs::{Error, FileKind, InodeFlags, OpenFlags, Result, Seek};

use super::{Caller, Server};

impl Server {
    /// The open(2) flags that the tree must see when the kernel opens a file for a process. The
    /// kernel itself handles APPEND: it knows the end and sends the offset. It also writes back
    /// pages of a shared mapping through the same handle, and these must not go to the end. The
    /// kernel has also handled DIRECT and the flags for creation.
    pub(super) fn handle_flags(&self, flags: u32) -> OpenFlags {
        let kernels = OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOCTTY;
        let flags = OpenFlags::from_bits_truncate(flags) - kernels;
        if self.no_atime { flags | OpenFlags::NOATIME } else { flags }
    }

    /// The flags with which a directory is opened.
    pub(super) fn dir_flags(&self, flags: OpenFlags) -> OpenFlags {
        if self.no_atime || self.no_dir_atime { flags | OpenFlags::NOATIME } else { flags }
    }

    /// Opens `node`, a file or a directory. Truncates a file with `O_TRUNC`. Returns the handle.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn open(&self, caller: Caller, node: u64, flags: u32) -> Result<u64> {
        self.guarded("open", || {
            let (dentry, asked) = (self.nodes.get(node)?, OpenFlags::from_bits_truncate(flags));
            // An append-only file can be opened only for appending.
            let mut flags = self.handle_flags(flags) | asked & OpenFlags::APPEND;
            if dentry.kind() == FileKind::Directory {
                flags = self.dir_flags(flags);
            }
            if flags.contains(OpenFlags::TRUNC) {
                self.freed();
                self.clear_privileges(caller, &dentry, InodeFlags::PROTECTING)?;
            }
            let file = self.vfs.open_dentry(&self.context(caller, 0), &dentry, flags)?;
            self.keep(file.without_append())
        })
    }

    /// Closes a handle: its last user has closed it.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn release(&self, handle: u64) -> Result<()> {
        self.guarded("release", || self.close(handle))
    }

    /// Fills `buf` from `offset` on. Returns the number of bytes, which is smaller than `buf` only
    /// at the end of the file.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn read(&self, handle: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.guarded("read", || {
            self.with_file(handle, |file| {
                let mut filled = 0;
                // The kernel takes a short reply for the end of the file.
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

    /// Writes at `offset`. Returns the number of bytes written.
    ///
    /// # Errors
    /// ENOSPC if no byte fits, EFBIG; see [`Server`].
    pub fn write(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<usize> {
        match self.write_until(caller, handle, offset, data)? {
            (0, Err(error)) => Err(error),
            // A short write succeeds. The next write gets the error again.
            (written, _) => Ok(written),
        }
    }

    /// As [`Server::write`], for pages of a mapping that the kernel writes back, and for writes
    /// that bypass its cache. Anything but a complete write is an error. For pages of a mapping the
    /// kernel takes a short write for a complete one, and does not write the rest again.
    ///
    /// # Errors
    /// ENOSPC if not all bytes fit, EFBIG; see [`Server`].
    pub fn write_back(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<usize> {
        let (written, ended) = self.write_until(caller, handle, offset, data)?;
        ended.map(|()| written)
    }

    /// Returns how many bytes could be written, and the error of the rest.
    fn write_until(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> Result<(usize, Result<()>)> {
        self.guarded("write", || {
            self.with_file(handle, |file| {
                if !data.is_empty() {
                    self.clear_privileges(caller, file.dentry(), InodeFlags::empty())?;
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

    /// Makes all writes durable.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn fsync(&self, handle: u64) -> Result<()> {
        self.guarded("fsync", || self.with_file(handle, pando_vfs::File::fsync))
    }

    /// Allocates or frees a range (fallocate(2)).
    ///
    /// # Errors
    /// ENOSPC, EOPNOTSUPP for unknown modes; see [`Server`].
    pub fn fallocate(&self, caller: Caller, handle: u64, mode: u32, offset: u64, len: u64) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        self.guarded("fallocate", || {
            self.with_file(handle, |file| {
                self.see_changes(file.dentry())?;
                let refusing = if mode & !KEEP_SIZE == 0 { InodeFlags::IMMUTABLE } else { InodeFlags::PROTECTING };
                self.clear_privileges(caller, file.dentry(), refusing)?;
                self.freed();
                self.space.retry(|| file.fallocate(mode, offset, len))
            })
        })
    }

    /// Copies bytes from one open file to another (copy_file_range(2)), each given by handle and
    /// offset. Returns their number, which may be smaller than `len`.
    ///
    /// A tree in memory is left to the kernel, which then also knows of the source's new atime.
    ///
    /// # Errors
    /// As [`pando_vfs::File::copy_range_on_host`]; see [`Server`]. After EOPNOTSUPP the kernel
    /// reads and writes.
    pub fn copy_file_range(&self, caller: Caller, from: (u64, u64), to: (u64, u64), len: u32) -> Result<u32> {
        self.guarded("copy_file_range", || {
            self.with_file(from.0, |source| {
                self.with_file(to.0, |file| {
                    self.see_changes(source.dentry())?;
                    self.see_changes(file.dentry())?;
                    self.clear_privileges(caller, file.dentry(), InodeFlags::IMMUTABLE)?;
                    let copied = self.space.retry(|| file.copy_range_on_host(to.1, source, from.1, len as usize))?;
                    // The kernel does not know that the atime has changed.
                    let _ = self.invalidate(self.nodes.number(source.dentry().ino()), -1);
                    Ok(u32::try_from(copied).expect("not more than asked for"))
                })
            })
        })
    }

    /// Finds data (`SEEK_DATA`, 3) or a hole (`SEEK_HOLE`, 4) at or after `offset`. The kernel
    /// serves the other kinds itself, because it has the position. A file that is open for reading
    /// and writing counts as data from its start to its end: the kernel may have dirty pages of a
    /// mapping, and does not write them back before this request.
    ///
    /// # Errors
    /// ENXIO at or beyond the end, EINVAL for other kinds; see [`Server`].
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<u64> {
        self.guarded("lseek", || {
            let seek = match whence {
                3 => Seek::Data(offset),
                4 => Seek::Hole(offset),
                _ => return Err(Error::Invalid),
            };
            self.with_file(handle, |file| {
                self.see_changes(file.dentry())?;
                if !self.open_inodes.unseen(file.dentry().ino()).mapped {
                    return file.lseek(seek);
                }
                let size = file.stat().size;
                let start = u64::try_from(offset).ok().filter(|start| *start < size).ok_or(Error::NoDeviceAddress)?;
                Ok(if whence == 3 { start } else { size })
            })
        })
    }
}
