//! Names of one directory, in the order in which they are read.

use std::{
    ffi::{CStr, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use pando_records::Record;
use rustix::io::Errno;

use crate::Order;

/// The most names in a part. Many file systems read so many inodes at once (ext4 has 16 of 256
/// bytes in a block). One call waits for the block, and a thread that reads another inode of it
/// meanwhile waits for the same block.
const PART: usize = 16;

/// The least number of parts for each possible worker, so that all have something to do until the
/// end.
const PARTS_PER_WORKER: usize = 4;

/// The most names in a window. A larger directory has several windows, each in order.
pub(super) const NAMES: usize = 1 << 18;

/// A directory that several windows share.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Some names of a directory, dealt out in parts.
pub(super) struct Window {
    dir: Arc<Directory>,
    /// Each with a zero byte after it.
    names: Vec<u8>,
    /// The inode, and where the name begins in `names`.
    entries: Vec<(u64, u32)>,
    /// Entries in a part.
    part: usize,
    next: AtomicUsize,
}

impl Window {
    /// A window whose name is out of bounds: a worker that takes it panics.
    #[cfg(test)]
    pub(super) fn damaged() -> Self {
        let dir = Directory { fd: std::fs::File::open("/").unwrap().into(), path: PathBuf::new() };
        Self { dir: Arc::new(dir), names: Vec::new(), entries: vec![(0, 1)], part: 1, next: AtomicUsize::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.fd.as_fd()
    }

    pub(super) fn path_of(&self, name: &CStr) -> PathBuf {
        self.dir.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// The next names that no worker has taken.
    pub(super) fn next_part(&self) -> Option<impl Iterator<Item = &CStr>> {
        // Relaxed: only the value matters. The names were written before the window was shared.
        let begin = self.next.fetch_add(self.part, Relaxed);
        let part = self.entries.get(begin..self.entries.len().min(begin + self.part))?;
        let name = |&(_, begin): &(u64, u32)| CStr::from_bytes_until_nul(&self.names[begin as usize..]).ok();
        (!part.is_empty()).then(|| part.iter().filter_map(name))
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.next.load(Relaxed) >= self.entries.len()
    }
}

/// Collects the names of one directory after the other.
pub(super) struct Builder {
    by_inode: bool,
    /// The most names in a window.
    most: usize,
    /// The most workers.
    workers: usize,
    dir: Option<Arc<Directory>>,
    names: Vec<u8>,
    entries: Vec<(u64, u32)>,
}

impl Builder {
    /// For windows of at most `most` names, and never more than [`NAMES`], and for at most
    /// `workers` workers.
    pub(super) fn new(order: Order, most: usize, workers: usize) -> Self {
        Self {
            by_inode: order != Order::Directory,
            most: most.min(NAMES),
            workers,
            dir: None,
            names: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// The following names are those of this directory. The window of the one before was taken.
    pub(super) fn enter(&mut self, fd: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
        self.dir = None;
        self.names.clear();
        self.entries.clear();
        // A descriptor of its own, since the walk closes its descriptor when it continues.
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        self.dir = Some(Arc::new(Directory { fd, path: path.to_owned() }));
        Ok(())
    }

    /// Adds a name; false if its directory could not be kept open.
    pub(super) fn push(&mut self, record: &Record<'_>) -> bool {
        if self.dir.is_none() {
            return false;
        }
        // At most [`NAMES`] times 256 bytes, which fits.
        self.entries.push((record.ino(), self.names.len() as u32));
        self.names.extend_from_slice(record.name_c().to_bytes_with_nul());
        true
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.most
    }

    /// The names so far, in their order; none if there are none. The directory continues.
    pub(super) fn take(&mut self) -> Option<Window> {
        let dir = self.dir.as_ref().filter(|_| !self.entries.is_empty())?;
        let (names, mut entries) = (std::mem::take(&mut self.names), std::mem::take(&mut self.entries));
        if self.by_inode {
            entries.sort_unstable();
        }
        let part = (entries.len() / (PARTS_PER_WORKER * self.workers)).clamp(1, PART);
        Some(Window { dir: Arc::clone(dir), names, entries, part, next: AtomicUsize::new(0) })
    }
}
