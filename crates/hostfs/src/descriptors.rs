//! Open descriptors of inodes: those that were used last, at most a given number.

use std::{
    num::NonZeroUsize,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard},
};

use lru::LruCache;
use pando_sync::lock;

/// Two inodes seldom share the lock of a part of the cache.
const PARTS: usize = 16;

/// The use for which a descriptor was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// Everything except access to the contents (O_PATH).
    Path,
    Read,
    Write,
}

/// The open descriptors of inodes that no one else keeps open.
#[derive(Debug)]
pub(crate) struct Descriptors(Box<[Mutex<Part>]>);

/// The descriptors of some inodes, by their serial numbers
/// ([`HostInode::serial`](crate::nodes::HostInode::serial)).
type Part = LruCache<(u64, Use), Arc<OwnedFd>>;

impl Descriptors {
    /// At most `max` descriptors, but at least one in each part.
    pub(crate) fn new(max: usize) -> Self {
        let each = NonZeroUsize::new(max / PARTS).unwrap_or(NonZeroUsize::MIN);
        Self((0..PARTS).map(|_| Mutex::new(LruCache::new(each))).collect())
    }

    fn part(&self, serial: u64) -> MutexGuard<'_, Part> {
        lock(&self.0[serial as usize % PARTS])
    }

    pub(crate) fn get(&self, serial: u64, with: Use) -> Option<Arc<OwnedFd>> {
        self.part(serial).get(&(serial, with)).cloned()
    }

    /// Keeps a descriptor. Returns it, or the one that another thread has put there first.
    pub(crate) fn keep(&self, serial: u64, with: Use, file: OwnedFd) -> Arc<OwnedFd> {
        let file = Arc::new(file);
        let mut part = self.part(serial);
        if let Some(found) = part.get(&(serial, with)) {
            return found.clone();
        }
        let replaced = part.push((serial, with), file.clone());
        drop(part);
        // Closed without the lock.
        drop(replaced);
        file
    }

    pub(crate) fn close(&self, serial: u64, with: Use) {
        let closed = self.part(serial).pop(&(serial, with));
        // Closed without the lock.
        drop(closed);
    }

    /// Closes the descriptors of an inode that is not used any more.
    pub(crate) fn remove(&self, serial: u64) {
        let closed = {
            let mut part = self.part(serial);
            [Use::Path, Use::Read, Use::Write].map(|with| part.pop(&(serial, with)))
        };
        drop(closed);
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|part| lock(part).len()).sum()
    }
}
