//! Directories that the kernel lists without opening them.
//!
//! The kernel need not send OPENDIR and RELEASEDIR (`FUSE_NO_OPENDIR_SUPPORT`). Then a request for
//! entries names only the node of the directory and the position. The server opens the directory at
//! the first such request, and keeps it for the next one. An open directory knows how many entries
//! the last reply had room for, and may be reading ahead.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use pando_vfs::File;

/// How many listings are kept. The server opens the directory of another one again.
const KEPT_MAX: usize = 64;

/// The directory of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directory {
    /// By its handle, from [`Server::open`](super::Server::open).
    Handle(u64),
    /// By its node: the kernel has not asked the server to open it.
    Node(u64),
}

/// Listings that may go on with another request.
#[derive(Default)]
pub(super) struct Listings {
    /// The oldest first. A leaf of the lock tree.
    kept: Mutex<VecDeque<Listing>>,
    /// Their number. Written under the lock; a reader without it need not see the latest value.
    count: AtomicUsize,
}

/// A listing between two requests.
pub(super) struct Listing {
    pub node: u64,
    /// The position at which it has stopped.
    pub cookie: u64,
    pub dir: File,
}

impl Listings {
    /// The directory of the listing that has stopped at this position, or else of the youngest one
    /// of the node: the kernel may have had no room for the whole last reply. None for a listing
    /// that begins.
    pub(super) fn take(&self, node: u64, cookie: u64) -> Option<File> {
        if cookie == 0 {
            return None;
        }
        self.with(|kept| {
            let last =
                |stopped: &dyn Fn(&Listing) -> bool| kept.iter().rposition(|one| one.node == node && stopped(one));
            let index = last(&|one| one.cookie == cookie).or_else(|| last(&|_| true))?;
            kept.remove(index)
        })
        .map(|listing| listing.dir)
    }

    /// Keeps a listing. The oldest one is closed if there are too many.
    pub(super) fn keep(&self, listing: Listing) {
        let oldest = self.with(|kept| {
            kept.push_back(listing);
            if kept.len() > KEPT_MAX { kept.pop_front() } else { None }
        });
        drop(oldest);
    }

    /// Closes the listings of a node. If a program still lists it, the directory is opened again.
    pub(super) fn forget(&self, node: u64) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ended = self.with(|kept| {
            let mut ended = Vec::new();
            while let Some(index) = kept.iter().position(|listing| listing.node == node) {
                ended.extend(kept.remove(index));
            }
            ended
        });
        drop(ended);
    }

    /// Directories that `work` returns are closed without the lock: that may call the tree.
    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<Listing>) -> T) -> T {
        let mut kept: MutexGuard<'_, _> = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut kept);
        self.count.store(kept.len(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::{At, Context, Credentials, OpenFlags, Seek, Vfs};

    use super::*;

    #[test]
    fn listings_go_on_where_they_stopped_or_elsewhere_in_the_directory() {
        let vfs = Vfs::new(MemFs::new(MemOptions::new())).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let listings = Listings::default();
        let keep = |node, cookie| {
            let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opened");
            dir.lseek(Seek::Set(cookie as i64)).expect("a position");
            listings.keep(Listing { node, cookie, dir });
        };
        let taken = |node, cookie| {
            let dir = listings.take(node, cookie)?;
            Some(dir.lseek(Seek::Cur(0)).expect("a position"))
        };
        for cookie in [10, 20, 30] {
            keep(1, cookie);
        }
        assert_eq!(taken(1, 0), None, "another listing");
        assert_eq!((taken(1, 20), taken(1, 20), taken(1, 20), taken(1, 20)), (Some(20), Some(30), Some(10), None));
        (0..1000).for_each(|cookie| keep(1 + cookie % 2, cookie));
        assert_eq!(listings.count.load(Ordering::Relaxed), KEPT_MAX);
        listings.forget(1);
        assert_eq!((taken(1, 998), taken(2, 999)), (None, Some(999)));
        listings.forget(2);
        assert_eq!(listings.count.load(Ordering::Relaxed), 0);
    }
}
