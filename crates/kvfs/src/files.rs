//! The contents of large files: each in a file of the host, which is sparse where it is.

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::Arc,
};

use pando_vfs::StatFs;
use rustix::{
    fs::{AtFlags, Dir, DirEntry, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fstatvfs, openat, seek, unlinkat},
    io::Errno,
};

/// Files that have numbers. A simulator of crashes is another implementation.
pub trait Files: Send + Sync + fmt::Debug {
    /// Makes an empty file. A file of this number that a crash has left is emptied.
    ///
    /// # Errors
    /// Those of the host.
    fn create(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>>;

    /// Opens a file.
    ///
    /// # Errors
    /// Those of the host.
    fn open(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>>;

    /// Removes a file, if there is one.
    ///
    /// # Errors
    /// Those of the host.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// The numbers of all files.
    ///
    /// # Errors
    /// Those of the host.
    fn numbers(&self) -> io::Result<Vec<u64>>;

    /// The space of the file system that has them.
    ///
    /// # Errors
    /// Those of the host.
    fn statfs(&self) -> io::Result<StatFs>;

    /// Flushes the names of files: those that were made before survive a crash.
    ///
    /// # Errors
    /// Those of the host.
    fn sync(&self) -> io::Result<()>;
}

/// A file with the contents of one file of the tree. Bytes beyond its end are 0.
pub trait ContentsFile: Send + Sync + fmt::Debug {
    /// The length in bytes.
    ///
    /// # Errors
    /// Those of the host.
    fn size(&self) -> io::Result<u64>;

    /// Reads at an offset. Returns the number of bytes, which is less than wanted at the end only.
    ///
    /// # Errors
    /// Those of the host.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes at an offset. Returns the number of bytes that were written.
    ///
    /// # Errors
    /// Those of the host, if no byte was written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Changes the length.
    ///
    /// # Errors
    /// Those of the host.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space, beyond the end, too. The length stays.
    ///
    /// # Errors
    /// Those of the host.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes a hole. The length stays.
    ///
    /// # Errors
    /// Those of the host.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The first offset from `offset` on with data. None: there is only a hole before the end.
    ///
    /// # Errors
    /// Those of the host.
    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>>;

    /// The first offset from `offset` on in a hole. The end counts as one.
    ///
    /// # Errors
    /// Those of the host.
    fn seek_hole(&self, offset: u64) -> io::Result<u64>;

    /// The occupied space in units of 512 bytes.
    ///
    /// # Errors
    /// Those of the host.
    fn blocks(&self) -> io::Result<u64>;

    /// Flushes: what was written before survives a crash.
    ///
    /// # Errors
    /// Those of the host.
    fn sync(&self) -> io::Result<()>;
}

/// Files in a directory of the host, by number in hexadecimal.
#[derive(Debug)]
pub struct HostFiles {
    /// Names are opened from here, wherever the directory is moved.
    dir: File,
}

impl HostFiles {
    /// In this directory, which exists.
    ///
    /// # Errors
    /// Those of the host.
    pub fn new(dir: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { dir: File::open(dir)? })
    }

    fn with_flags(&self, number: u64, flags: OFlags) -> io::Result<Arc<dyn ContentsFile>> {
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir, format!("{number:x}"), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(HostFile(file.into())))
    }
}

impl Files for HostFiles {
    fn create(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        self.with_flags(number, OFlags::CREATE | OFlags::TRUNC)
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        self.with_flags(number, OFlags::empty())
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        match unlinkat(&self.dir, format!("{number:x}"), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let number = |entry: rustix::io::Result<DirEntry>| {
            let number = |entry: DirEntry| u64::from_str_radix(entry.file_name().to_str().ok()?, 16).ok();
            entry.map(number).map_err(io::Error::from).transpose()
        };
        Dir::read_from(&self.dir)?.filter_map(number).collect()
    }

    fn statfs(&self) -> io::Result<StatFs> {
        let host = fstatvfs(&self.dir)?;
        let unit = u32::try_from(host.f_frsize).unwrap_or(4096);
        let mut stat = StatFs::new(unit).blocks(host.f_blocks, host.f_bfree).inodes(host.f_files, host.f_ffree);
        stat.bavail = host.f_bavail;
        Ok(stat)
    }

    fn sync(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}

#[derive(Debug)]
struct HostFile(File);

impl ContentsFile for HostFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < buffer.len() {
            match self.0.read_at(&mut buffer[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < bytes.len() {
            match self.0.write_at(&bytes[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.0, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, offset, len)?)
    }

    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match seek(&self.0, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn seek_hole(&self, offset: u64) -> io::Result<u64> {
        match seek(&self.0, SeekFrom::Hole(offset)) {
            Err(Errno::NXIO) => self.size().map(|size| size.max(offset)),
            found => Ok(found?),
        }
    }

    fn blocks(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
