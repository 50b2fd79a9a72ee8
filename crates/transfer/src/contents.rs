//! The contents of a file: read front to back, holes left out.

use std::io::{self, Read};

use pando_records::data_runs;
use pando_vfs::Seek;

/// The contents of a regular file.
pub(crate) trait Contents: Read {
    /// Moves to the first data at or after `at`, and returns its offset: `size` if only a hole
    /// follows. A source that knows no holes returns `at`.
    ///
    /// # Errors
    /// Those of lseek(2).
    fn next_data(&mut self, at: u64, size: u64) -> io::Result<u64> {
        let _ = size;
        Ok(at)
    }
}

impl Contents for pando_vfs::File {
    fn next_data(&mut self, at: u64, size: u64) -> io::Result<u64> {
        match self.lseek(Seek::Data(i64::try_from(at).unwrap_or(i64::MAX))) {
            Err(pando_vfs::Error::NoDeviceAddress) => Ok(size),
            data => Ok(data?),
        }
    }
}

impl Contents for std::fs::File {
    fn next_data(&mut self, at: u64, size: u64) -> io::Result<u64> {
        use rustix::{fs::SeekFrom, io::Errno};
        match rustix::fs::seek(&*self, SeekFrom::Data(at)) {
            Ok(data) => Ok(data),
            Err(Errno::NXIO) => Ok(size),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(rustix::fs::seek(&*self, SeekFrom::Start(at))?),
            Err(error) => Err(error.into()),
        }
    }
}

/// Contents in memory.
impl Contents for io::Cursor<&[u8]> {
    fn next_data(&mut self, at: u64, size: u64) -> io::Result<u64> {
        const BLOCK_BYTES: usize = 4096;
        let rest = self.get_ref().get(at as usize..).unwrap_or_default();
        let next = data_runs(rest, BLOCK_BYTES).next().map_or(size, |run| at + run.start as u64);
        self.set_position(next);
        Ok(next)
    }
}

/// A file in a target.
pub(crate) trait WriteAt {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    fn set_size(&self, size: u64) -> io::Result<()>;
}

impl WriteAt for pando_vfs::File {
    fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            match self.pwrite(data, offset)? {
                0 => return Err(pando_vfs::Error::NoSpace.into()),
                count => (data, offset) = (&data[count..], offset + count as u64),
            }
        }
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        Ok(self.truncate(size)?)
    }
}

impl WriteAt for std::fs::File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, data, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }
}

/// How many bytes are read at once.
const PART_BYTES: usize = 256 * 1024;
/// A block of this size that has only zeros becomes a hole.
const BLOCK_BYTES: usize = 64 * 1024;

/// Copies a file of `size` bytes to a new one, and returns how many bytes were written. If the
/// source ends early, the copy is as short.
pub(crate) fn copy(from: &mut dyn Contents, size: u64, to: &impl WriteAt) -> io::Result<u64> {
    let mut buffer = vec![0; usize::try_from(size).map_or(PART_BYTES, |size| size.min(PART_BYTES))];
    let (mut at, mut written, mut end) = (0, 0, 0);
    while at < size {
        at = from.next_data(at, size)?;
        if at >= size {
            break;
        }
        let part = usize::try_from(size - at).map_or(PART_BYTES, |left| left.min(PART_BYTES));
        let count = match from.read(&mut buffer[..part]) {
            Ok(0) => {
                to.set_size(at)?;
                return Ok(written);
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for run in data_runs(&buffer[..count], BLOCK_BYTES) {
            written += run.len() as u64;
            to.write_all_at(&buffer[run.clone()], at + run.start as u64)?;
            end = at + run.end as u64;
        }
        at += count as u64;
    }
    if end < size {
        to.set_size(size)?;
    }
    Ok(written)
}
