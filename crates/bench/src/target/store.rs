//! pandofs in process over a store (`pando-kvfs`): a tree that stays. It commits every 5 seconds
//! and at each fsync, as a program's store does. The cache is kept small.

use std::{io, path::Path};

use pando_kvfs::{Closed, KvFs, StoreOptions};
use pando_vfs::{Vfs, VfsOptions};

use super::{Actor, Session, Target, backed::CACHE, dir::DirTarget, host::caller, tree::TreeActor};
use crate::base::failure::{During, Failure};

/// A tree in a store in a directory of its own, with a cache of [`CACHE`] inodes.
pub(crate) struct StoreTarget(DirTarget);

impl StoreTarget {
    pub(crate) fn new(path: &Path) -> Self {
        Self(DirTarget::new(path))
    }

    fn with_cache(&self, cache: usize) -> Result<Box<dyn Session>, Failure> {
        let dir = self.0.open()?;
        let path = dir.tree().expect("a directory of the host has a path");
        let opened = KvFs::open(&path, StoreOptions::new()).map_err(io::Error::other);
        let store = opened.during(|| format!("making a store in {}", path.display()))?;
        let closed = store.closed();
        let options = VfsOptions::new().cached_inodes(cache).cached_bytes(usize::MAX);
        let vfs = Vfs::with_options(store, options).during(|| "making a tree over a store".into())?;
        Ok(Box::new(StoreSession { vfs, closed, dir }))
    }
}

impl Target for StoreTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        self.with_cache(CACHE)
    }

    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        self.with_cache(usize::MAX)
    }
}

struct StoreSession {
    vfs: Vfs,
    closed: Closed,
    dir: Box<dyn Session>,
}

impl Session for StoreSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(TreeActor::new(&self.vfs, caller(), true)))
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { vfs, closed, dir } = *self;
        drop(vfs);
        // Before its directory is removed.
        closed.wait().map_err(io::Error::from).during(|| "closing a store".into())?;
        dir.close()
    }
}
