//! The open files of each inode: what the kernel may know of their contents that the tree does not.
//!
//! - A program writes to a shared mapping without a request, and the kernel asks for data and holes
//!   without writing such pages back first. No request says what is mapped. But only a file that is
//!   open for reading and writing can be mapped this way, and a mapping keeps its handle: the
//!   kernel releases it after it has written the last page back.
//! - With passthrough (Linux 6.9) the kernel reads and writes a file of the host without any
//!   request: its backing file. All handles of an inode use the same backing file, or none of them
//!   has one. The kernel refuses anything else.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use pando_vfs::{File, FileKind, Result};
use tracing::{debug, info, warn};

use super::backing_file;

/// With this many locks, opens of different files at the same time rarely contend.
const STRIPES: usize = 64;

/// The inodes that are open, by their numbers.
pub(super) struct OpenInodes {
    stripes: [Mutex<HashMap<u64, OpenInode>>; STRIPES],
    /// Where backing files are registered. None without passthrough: then only handles that are
    /// open for reading and writing are counted.
    device: Option<Weak<OwnedFd>>,
    /// The kernel has refused a backing file, and would refuse all. Atomic: a single independent
    /// value.
    is_refused: AtomicBool,
}

/// The handles of an inode.
#[derive(Default)]
struct OpenInode {
    handles: u64,
    /// Those that are open for writing.
    writers: u64,
    /// Those that are open for reading and writing.
    mappable: u64,
    /// The number by which the kernel knows the backing file.
    backing: Option<u32>,
}

impl OpenInode {
    /// Whether the kernel may be writing to the backing file.
    fn writes(&self) -> bool {
        self.backing.is_some() && self.writers > 0
    }

    fn unseen(&self) -> Unseen {
        let mapped = self.backing.is_none() && self.mappable > 0;
        Unseen { mapped, backing: self.backing, writes: self.writes() }
    }
}

/// What the kernel may do with an inode that is open, without a request to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unseen {
    /// Programs may have written to a mapping, and the kernel has the pages.
    pub mapped: bool,
    /// The kernel reads the backing file, or writes to it.
    pub backing: Option<u32>,
    /// It may be writing to the backing file.
    pub writes: bool,
}

impl OpenInodes {
    pub(super) fn new() -> Self {
        Self { stripes: std::array::from_fn(|_| Mutex::default()), device: None, is_refused: AtomicBool::new(false) }
    }

    /// The kernel offers passthrough.
    pub(super) fn pass_through(&mut self, device: Weak<OwnedFd>) {
        self.device = Some(device);
    }

    pub(super) fn passes_through(&self) -> bool {
        self.device.is_some()
    }

    /// Counts a new handle, before any other thread can use it. If it is the first of its inode,
    /// and `backed`, the kernel gets the backing file. May wait for the tree. Returns what the
    /// kernel may do without a request.
    ///
    /// # Errors
    /// Those of an open on the host: if the kernel writes to the backing file, no other call tells
    /// the caller.
    pub(super) fn opened(&self, file: &File, backed: bool) -> Result<Unseen> {
        if !self.counts(file) {
            return Ok(Unseen::default());
        }
        let ino = file.dentry().ino();
        let is_open = || self.stripe(ino).contains_key(&ino);
        let registered = if backed && !is_open() { self.register(file) } else { None };
        let (needless, unseen) = {
            let mut stripe = self.stripe(ino);
            let open = stripe.entry(ino).or_default();
            let needless = if open.handles == 0 {
                open.backing = registered;
                None
            } else {
                // Another thread was first.
                registered
            };
            open.handles += 1;
            open.writers += u64::from(file.flags().writes());
            open.mappable += u64::from(may_map(file));
            (needless, open.unseen())
        };
        self.unregister(needless);
        if unseen.backing.is_some() && file.flags().writes() {
            file.may_write_backing_file().inspect_err(|_| self.closed(file))?;
        }
        Ok(unseen)
    }

    /// Removes the count of a handle.
    pub(super) fn closed(&self, file: &File) {
        if !self.counts(file) {
            return;
        }
        let ino = file.dentry().ino();
        let (backing, is_last) = {
            let mut stripe = self.stripe(ino);
            let Some(open) = stripe.get_mut(&ino) else { return };
            open.handles -= 1;
            open.writers -= u64::from(file.flags().writes());
            open.mappable -= u64::from(may_map(file));
            let (backing, is_last) = (open.backing, open.handles == 0);
            if is_last {
                stripe.remove(&ino);
            }
            (backing, is_last)
        };
        if is_last {
            self.unregister(backing);
        }
    }

    /// What the kernel may do with an inode without a request.
    pub(super) fn unseen(&self, ino: u64) -> Unseen {
        self.stripe(ino).get(&ino).map_or_else(Unseen::default, OpenInode::unseen)
    }

    /// The inodes whose backing files the kernel may be writing to.
    pub(super) fn written(&self) -> Vec<u64> {
        let mut written = Vec::new();
        for ino in 0..STRIPES as u64 {
            let stripe = self.stripe(ino);
            written.extend(stripe.iter().filter(|(_, open)| open.writes()).map(|(ino, _)| *ino));
        }
        written
    }

    fn counts(&self, file: &File) -> bool {
        if self.passes_through() { file.dentry().kind() == FileKind::File } else { may_map(file) }
    }

    /// Gives the kernel the backing file. If that fails, the kernel sends requests.
    fn register(&self, file: &File) -> Option<u32> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let device = self.device.as_ref()?.upgrade()?;
        let backing = match file.backing_file() {
            Ok(backing) => backing?,
            Err(error) => {
                debug!(%error, "no passthrough for a file");
                return None;
            }
        };
        let registered = backing_file::register(device.as_fd(), backing.as_fd());
        if let Err(error) = &registered {
            let is_final = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ELOOP | libc::EOPNOTSUPP));
            if is_final && !self.is_refused.swap(true, Ordering::Relaxed) {
                info!(%error, "no passthrough: the kernel refuses the files of this source");
            } else {
                debug!(%error, "no passthrough for a file");
            }
        }
        registered.ok()
    }

    fn unregister(&self, backing: Option<u32>) {
        if let Some(backing) = backing
            && let Some(device) = self.device.as_ref().and_then(Weak::upgrade)
            && let Err(error) = backing_file::unregister(device.as_fd(), backing)
        {
            warn!(%error, "the kernel keeps a backing file");
        }
    }

    fn stripe(&self, ino: u64) -> MutexGuard<'_, HashMap<u64, OpenInode>> {
        // No code that can panic halfway runs under the lock.
        self.stripes[ino as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn may_map(file: &File) -> bool {
    file.flags().reads() && file.flags().writes()
}
