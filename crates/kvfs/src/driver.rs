//! The driver: the calls of the namespace.

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock, atomic::Ordering},
    thread,
};

use pando_kv::Engine;
use pando_vfs::{
    Ack, AclSupport, Backing, Change, Charge, CommitError, Driver, Feed, FileData, NodeAttr, Record, RecordMask,
    Result, StatFs, Xattr,
};

use crate::{
    committer::Committer,
    data::StoreData,
    files::Files,
    numbers::ROOT,
    open::{OpenError, Recovered, StoreOptions, open_existing, open_or_make, open_tree},
    space::UNIT,
    tree::Tree,
};

/// A tree in a store.
pub struct KvFs {
    tree: Arc<Tree>,
    committer: Arc<Committer>,
    recovered: Option<Recovered>,
    /// Whether the namespace is still there. The thread that drops the driver must not take a guard
    /// of the reclaimer.
    feed: OnceLock<Feed>,
}

impl fmt::Debug for KvFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvFs").finish_non_exhaustive()
    }
}

/// The end of a store that is used by a tree.
#[derive(Clone)]
pub struct Closed(Arc<Committer>);

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}

impl Closed {
    /// Waits until the tree has dropped the store, and everything is committed. Then another
    /// process can open it.
    ///
    /// Other threads that have used the tree have ended, or go on using a tree, or have called
    /// [`Vfs::thread_idle`](pando_vfs::Vfs::thread_idle). Otherwise, what such a thread has removed
    /// last may keep the store.
    ///
    /// # Errors
    /// Those of the last commit: the last changes may be lost.
    pub fn wait(&self) -> Result<()> {
        self.0.wait_for_end()
    }
}

impl KvFs {
    /// Opens the store in a directory. It is made if the directory is empty or missing. On the
    /// host it is for the user of this process only.
    ///
    /// # Errors
    /// See [`OpenError`]. A directory that is not a store is as it was before.
    pub fn open(dir: impl AsRef<Path>, options: StoreOptions) -> std::result::Result<Self, OpenError> {
        let (engine, files) = open_or_make(dir.as_ref(), options)?;
        Self::new(Box::new(engine), Box::new(files), options)
    }

    /// Opens the store in a directory, which must have one.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_existing(dir: impl AsRef<Path>, options: StoreOptions) -> std::result::Result<Self, OpenError> {
        let (engine, files) = open_existing(dir.as_ref(), options)?;
        Self::new(Box::new(engine), Box::new(files), options)
    }

    /// A tree in an engine, with the contents of large files in `files`. If the engine has no
    /// records, the tree has only its root directory.
    ///
    /// # Errors
    /// The engine has something else, or it cannot be read.
    pub fn new(
        engine: Box<dyn Engine>,
        files: Box<dyn Files>,
        options: StoreOptions,
    ) -> std::result::Result<Self, OpenError> {
        let (tree, recovered) = open_tree(engine, files, options)?;
        let tree = Arc::new(tree);
        let committer = Arc::new(Committer::new(options.interval));
        let run = {
            let (tree, committer) = (Arc::clone(&tree), Arc::clone(&committer));
            move || committer.run(tree)
        };
        thread::Builder::new().name("pando-commit".into()).spawn(run)?;
        Ok(Self { tree, committer, recovered, feed: OnceLock::new() })
    }

    /// How the store was found, if its last process had not closed it. None for a store that was
    /// closed, and for a new one.
    #[must_use]
    pub const fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// For the caller who drops the tree and then needs the store to be closed.
    #[must_use]
    pub fn closed(&self) -> Closed {
        Closed(Arc::clone(&self.committer))
    }
}

impl Drop for KvFs {
    fn drop(&mut self) {
        // The thread commits what is left. It must not be waited for here.
        self.committer.end();
    }
}

impl Driver for KvFs {
    fn statfs(&self) -> Result<StatFs> {
        let stat = self.tree.files.statfs()?;
        let inodes = &self.tree.inodes;
        // Without a limit of its own, it has that of the host, if the host has one.
        let of_host = if stat.files == 0 { u64::MAX } else { inodes.used() + stat.ffree };
        let all = inodes.limit().min(of_host);
        let stat = stat.inodes(all, all - inodes.used().min(all));
        let space = &self.tree.space;
        let unit = (u64::from(stat.bsize) / UNIT).max(1);
        let limit = space.limit() / unit;
        if limit >= stat.blocks {
            return Ok(stat);
        }
        let (left, available) = (limit.saturating_sub(space.used().div_ceil(unit)), stat.bavail);
        let mut stat = stat.blocks(limit, left);
        stat.bavail = left.min(available);
        Ok(stat)
    }

    fn charge(&self, _what: Charge) -> Result<()> {
        Ok(())
    }

    fn release(&self, _what: Charge) {}

    fn data(&self, ino: u64) -> Box<dyn FileData> {
        Box::new(StoreData::new(Arc::clone(&self.tree), Arc::clone(&self.committer), ino))
    }

    fn sync(&self) -> Result<()> {
        self.committer.commit()
    }

    fn shut_down(&self) {
        self.tree.has_stopped.store(true, Ordering::Relaxed);
    }

    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
}

impl Backing for KvFs {
    fn keeps_flags(&self) -> bool {
        true
    }

    fn acls(&self) -> AclSupport {
        AclSupport::Namespace
    }

    fn connect(&self, feed: Feed) -> Result<NodeAttr> {
        self.feed.set(feed).map_err(|_| pando_vfs::Error::Busy)?;
        self.tree.inode(ROOT).map(|root| root.attr)
    }

    fn identity(&self) -> Option<u64> {
        Some(self.tree.identity())
    }

    fn names_of(&self, ino: u64, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        self.tree.names_of(ino, each)
    }

    fn lookup(&self, dir: u64, names: &[&[u8]], each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()> {
        self.tree.lookup(dir, names, each)
    }

    fn getattr(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()> {
        for (place, inode) in self.tree.read_inodes(inos)?.into_iter().enumerate() {
            let inode = inode.unwrap_or(Err(pando_vfs::Error::Stale));
            each(place, inode.map(|inode| inode.attr));
        }
        Ok(())
    }

    fn commit(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        self.committer.make_room(&self.tree)?;
        self.tree.change(change)
    }

    fn forget(&self, ino: u64) {
        if !self.tree.unnamed.remove(ino) {
            return;
        }
        let is_connected = self.feed.get().is_some_and(Feed::is_connected);
        let freed = is_connected
            && self.tree.staged.try_change().is_some_and(|changing| self.tree.free(&changing, ino, false) == Ok(true));
        if !freed {
            self.tree.unnamed.forget(ino);
        }
        if !freed && is_connected {
            self.committer.free_forgotten();
        }
    }

    fn sync_inode(&self, _ino: u64) -> Result<()> {
        self.committer.commit()
    }

    fn scan(&self, dir: u64, cookie: u64, wanted: RecordMask, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()> {
        self.tree.scan(dir, cookie, wanted, each)
    }

    fn xattrs(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<Vec<Xattr>>)) -> Result<()> {
        inos.iter().enumerate().for_each(|(place, ino)| each(place, self.tree.xattrs(*ino)));
        Ok(())
    }
}
