//! The contents of large files: each in a file of the host, which is sparse where it is.

use std::{
    fmt,
    fs::File,
    io,
    num::NonZeroUsize,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use lru::LruCache;
use pando_sync::lock;
use pando_vfs::StatFs;
use rustix::{
    fs::{
        AtFlags, Dir, DirEntry, FallocateFlags, Mode, OFlags, SeekFrom, copy_file_range, fallocate, fstatfs, fstatvfs,
        openat, seek, syncfs, unlinkat,
    },
    io::{Errno, retry_on_intr},
    system::uname,
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

    /// Flushes the contents of all files at once. False: this cannot be done at once, or something
    /// could not be written, perhaps of another program.
    fn sync_contents(&self) -> bool;
}

/// A file with the contents of one file of the tree. Bytes beyond its end are 0.
pub trait ContentsFile: Send + Sync + fmt::Debug {
    /// The same file, which stays open until this is dropped. The kernel reports a failed write
    /// only through descriptors that were open then.
    ///
    /// # Errors
    /// Those of the host.
    fn held(&self) -> io::Result<Arc<dyn ContentsFile>>;

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

    /// A descriptor of the file on the host, open for reading. None if the contents are in no file
    /// of the host, or no descriptor is left.
    ///
    /// # Errors
    /// Those of the host.
    fn descriptor(&self) -> io::Result<Option<OwnedFd>>;

    /// Copies up to `len` bytes at `source_offset` of a file on the host, open for reading, to
    /// `offset`. Returns their number.
    ///
    /// # Errors
    /// EOPNOTSUPP if the host cannot copy these; ENOSPC.
    fn copy_from(&self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> io::Result<usize>;

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
pub struct HostFiles(Arc<Opened>);

/// Files are opened when they are used. Those that were used last stay open.
#[derive(Debug)]
struct Opened {
    /// Names are opened from here, wherever the directory is moved.
    dir: File,
    /// Whether syncfs flushes the files, and reports what could not be written.
    flushes_at_once: bool,
    /// Each part is guarded by its own mutex, a leaf.
    files: [Mutex<LruCache<u64, Arc<File>>>; PARTS],
}

/// Two files seldom share a mutex.
const PARTS: usize = 16;

impl HostFiles {
    /// In this directory, which exists. At most `open` files stay open, beside those that are held.
    ///
    /// # Errors
    /// Those of the host.
    pub fn new(dir: impl AsRef<Path>, open: usize) -> io::Result<Self> {
        let each = NonZeroUsize::new(open / PARTS).unwrap_or(NonZeroUsize::MIN);
        let files = std::array::from_fn(|_| Mutex::new(LruCache::new(each)));
        let dir = File::open(dir)?;
        let flushes_at_once = can_flush_at_once(&dir)?;
        Ok(Self(Arc::new(Opened { dir, flushes_at_once, files })))
    }

    fn file(&self, number: u64) -> Arc<dyn ContentsFile> {
        Arc::new(HostFile { opened: Arc::clone(&self.0), number, held: None })
    }
}

/// The file systems of local disks, as statfs(2) numbers them: ext4, XFS, btrfs, F2FS. The kernel
/// does not tell others of syncfs, such as those in user space.
const LOCAL: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// The first version of Linux whose syncfs reports what could not be written.
const SYNCFS_REPORTS: (u32, u32) = (5, 8);

fn can_flush_at_once(dir: &File) -> io::Result<bool> {
    let release = uname();
    let mut numbers = release.release().to_bytes().split(|byte| !byte.is_ascii_digit());
    let mut number = || std::str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok();
    let version = number().zip(number()).unwrap_or_default();
    Ok(version >= SYNCFS_REPORTS && LOCAL.contains(&(fstatfs(dir)?.f_type as i64)))
}

impl Opened {
    fn part(&self, number: u64) -> MutexGuard<'_, LruCache<u64, Arc<File>>> {
        lock(&self.files[number as usize % PARTS])
    }

    fn open(&self, number: u64, flags: OFlags) -> io::Result<Arc<File>> {
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = Arc::new(File::from(openat(&self.dir, format!("{number:x}"), flags, Mode::RUSR | Mode::WUSR)?));
        let replaced = self.part(number).push(number, Arc::clone(&file));
        // Closed without the lock.
        drop(replaced);
        Ok(file)
    }

    fn get(&self, number: u64) -> io::Result<Arc<File>> {
        let found = self.part(number).get(&number).cloned();
        found.map_or_else(|| self.open(number, OFlags::empty()), Ok)
    }
}

impl Files for HostFiles {
    fn create(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        self.0.open(number, OFlags::CREATE | OFlags::TRUNC)?;
        Ok(self.file(number))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        self.0.get(number)?;
        Ok(self.file(number))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let closed = self.0.part(number).pop(&number);
        drop(closed);
        match unlinkat(&self.0.dir, format!("{number:x}"), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let number = |entry: rustix::io::Result<DirEntry>| {
            let number = |entry: DirEntry| u64::from_str_radix(entry.file_name().to_str().ok()?, 16).ok();
            entry.map(number).map_err(io::Error::from).transpose()
        };
        Dir::read_from(&self.0.dir)?.filter_map(number).collect()
    }

    fn statfs(&self) -> io::Result<StatFs> {
        let host = fstatvfs(&self.0.dir)?;
        let unit = u32::try_from(host.f_frsize).unwrap_or(4096);
        let mut stat = StatFs::new(unit).blocks(host.f_blocks, host.f_bfree).inodes(host.f_files, host.f_ffree);
        stat.bavail = host.f_bavail;
        Ok(stat)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.dir.sync_all()
    }

    fn sync_contents(&self) -> bool {
        self.0.flushes_at_once && syncfs(&self.0.dir).is_ok()
    }
}

#[derive(Debug)]
struct HostFile {
    opened: Arc<Opened>,
    number: u64,
    held: Option<Arc<File>>,
}

impl HostFile {
    fn file(&self) -> io::Result<Arc<File>> {
        self.held.clone().map_or_else(|| self.opened.get(self.number), Ok)
    }
}

impl ContentsFile for HostFile {
    fn held(&self) -> io::Result<Arc<dyn ContentsFile>> {
        let held = Some(self.file()?);
        Ok(Arc::new(Self { opened: Arc::clone(&self.opened), number: self.number, held }))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (file, mut count) = (self.file()?, 0);
        while count < buffer.len() {
            match file.read_at(&mut buffer[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let (file, mut count) = (self.file()?, 0);
        while count < bytes.len() {
            match file.write_at(&bytes[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        Ok(self.file()?.try_clone().ok().map(OwnedFd::from))
    }

    fn copy_from(&self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> io::Result<usize> {
        let (file, mut from, mut to) = (self.file()?, source_offset, offset);
        match retry_on_intr(|| copy_file_range(source, Some(&mut from), &*file, Some(&mut to), len)) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
            // Between file systems, or beyond the end of the host's file.
            Err(_) | Ok(0) => Err(Errno::OPNOTSUPP.into()),
            Ok(copied) => Ok(copied),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file()?.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(self.file()?, FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(self.file()?, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, offset, len)?)
    }

    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match seek(self.file()?, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn seek_hole(&self, offset: u64) -> io::Result<u64> {
        match seek(self.file()?, SeekFrom::Hole(offset)) {
            Err(Errno::NXIO) => self.size().map(|size| size.max(offset)),
            found => Ok(found?),
        }
    }

    fn blocks(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.blocks())
    }

    fn sync(&self) -> io::Result<()> {
        self.file()?.sync_data()
    }
}
