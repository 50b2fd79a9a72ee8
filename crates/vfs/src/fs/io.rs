//! The traits of `std::io` on an open file.
//!
//! They are implemented on `&File`, too, since threads may share an open file. They share its
//! position then, and each call is atomic.

use std::io::{IoSlice, IoSliceMut, Read, Result, Seek, SeekFrom, Write};

use crate::{Error, File, operations::file::IOV_MAX};

/// The argument of lseek for a position of `std`.
fn lseek_of(position: SeekFrom) -> std::result::Result<crate::Seek, Error> {
    Ok(match position {
        // Beyond the largest file: lseek's errno for it.
        SeekFrom::Start(offset) => crate::Seek::Set(i64::try_from(offset).map_err(|_| Error::Overflow)?),
        SeekFrom::Current(delta) => crate::Seek::Cur(delta),
        SeekFrom::End(delta) => crate::Seek::End(delta),
    })
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(File::read(self, buffer)?)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let most = buffers.len().min(IOV_MAX);
        Ok(self.readv(&mut buffers[..most])?)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> Result<usize> {
        Ok(File::write(self, data)?)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        Ok(self.writev(&buffers[..buffers.len().min(IOV_MAX)])?)
    }

    /// Does nothing: every write is visible at once. [`File::fsync`] makes writes durable.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        Ok(self.lseek(lseek_of(position)?)?)
    }

    fn stream_position(&mut self) -> Result<u64> {
        Ok(self.tell())
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Read::read(&mut &*self, buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        Read::read_vectored(&mut &*self, buffers)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> Result<usize> {
        Write::write(&mut &*self, data)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        Write::write_vectored(&mut &*self, buffers)
    }

    fn flush(&mut self) -> Result<()> {
        Write::flush(&mut &*self)
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        Seek::seek(&mut &*self, position)
    }

    fn stream_position(&mut self) -> Result<u64> {
        Seek::stream_position(&mut &*self)
    }
}
