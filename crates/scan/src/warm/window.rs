//! Names of one directory, in the order in which they are asked for.

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

/// Names in a part, at most: many file systems read so many inodes at once, so that one of them waits, and who asks for another one
/// meanwhile waits for the same (ext4 has 16 of 256 bytes in a block).
const PART: usize = 16;

/// Parts for each worker there may be, at least, so that all have something to do to the end.
const PARTS_PER_WORKER: usize = 4;

/// Names in a window, at most. A directory of more is done in several parts, each in order.
pub(super) const NAMES: usize = 1 << 18;

/// A directory that others use as well.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Some names of a directory, handed out in parts.
pub(super) struct Window {
    dir: Arc<Directory>,
    /// Each with a zero byte behind it.
    names: Vec<u8>,
    /// Inode, and where the name begins in `names`.
    entries: Vec<(u64, u32)>,
    /// Entries in a part.
    part: usize,
    next: AtomicUsize,
}

impl Window {
    /// One whose name is nowhere: who takes it panics.
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

    /// The next names that nobody has had.
    pub(super) fn next_part(&self) -> Option<impl Iterator<Item = &CStr>> {
        // Only who gets which number matters; the names were there before the window was shared.
        let begin = self.next.fetch_add(self.part, Relaxed);
        let part = self.entries.get(begin..self.entries.len().min(begin + self.part))?;
        let name = |&(_, begin): &(u64, u32)| CStr::from_bytes_until_nul(&self.names[begin as usize..]).ok();
        (!part.is_empty()).then(|| part.iter().filter_map(name))
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.next.load(Relaxed) >= self.entries.len()
    }
}

/// Gathers the names of one directory after the other.
pub(super) struct Builder {
    by_inode: bool,
    /// Names in a window.
    most: usize,
    /// Workers there may be.
    workers: usize,
    dir: Option<Arc<Directory>>,
    names: Vec<u8>,
    entries: Vec<(u64, u32)>,
}

impl Builder {
    /// Windows of at most `most` names, and never more than [`NAMES`], for so many workers.
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

    /// Names are those of another directory from now on. The one before was taken.
    pub(super) fn enter(&mut self, fd: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
        self.dir = None;
        self.names.clear();
        self.entries.clear();
        // A descriptor of its own: the walk closes its own when it goes on.
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        self.dir = Some(Arc::new(Directory { fd, path: path.to_owned() }));
        Ok(())
    }

    /// Takes a name; false if it belongs to a directory that could not be kept open.
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

    /// What was gathered, in its order; none if that is nothing. The directory goes on.
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
