//! pandofs in process over a driver that keeps its tree elsewhere. It shows the cost of a miss in
//! the inode cache.
//!
//! The store consists of plain maps behind one lock (`pando-mapfs`). It is as fast as a simple
//! store can be, so that the cost of the cache itself is visible. The cache is kept small.

use std::io;

use pando_mapfs::{MapFs, MapOptions};
use pando_vfs::{Credentials, Vfs, VfsOptions};

use super::{Actor, Session, Target, tree::TreeActor};
use crate::base::failure::{During, Failure};

/// Number of inodes that the cache may hold.
pub(crate) const CACHE: usize = 4096;

/// A tree in maps, with a cache of [`CACHE`] inodes.
pub(crate) struct BackedTarget;

impl Target for BackedTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(BackedSession::new(MapFs::new(MapOptions::default()), CACHE)?))
    }

    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(BackedSession::new(MapFs::new(MapOptions::default()), usize::MAX)?))
    }
}

struct BackedSession(Vfs);

impl BackedSession {
    fn new(driver: MapFs, cache: usize) -> Result<Self, Failure> {
        let options = VfsOptions::new().cached_inodes(cache).cached_bytes(usize::MAX);
        Vfs::with_options(driver, options).during(|| "making a backed tree".into()).map(Self)
    }
}

impl Session for BackedSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        // The owner of the store's root directory is user 0.
        Ok(Box::new(TreeActor::new(&self.0, Credentials::root(), true)))
    }
}

#[cfg(test)]
mod tests {
    use pando_mapfs::Call;

    use super::*;
    use crate::base::path::TreePath;

    #[test]
    fn cache_stays_small_and_a_larger_walk_misses() {
        let driver = MapFs::new(MapOptions::default());
        let store = driver.handle();
        let session = BackedSession::new(driver, CACHE).expect("a tree");
        let mut actor = session.actor().expect("an actor");
        let files: Vec<TreePath> = (0..3 * CACHE as u64).map(|n| TreePath::new(&format!("f{n}"))).collect();
        for file in &files {
            actor.create(file).expect("create");
        }
        let before = store.calls(Call::Lookup);
        for file in &files {
            actor.stat(file).expect("stat");
        }
        // Threads look at the size of the cache now and then.
        let most = CACHE as u64 + 64;
        assert!(store.cached_inodes() <= most, "{}", store.cached_inodes());
        // The files made last may still have been cached.
        assert!(store.calls(Call::Lookup) - before >= 3 * CACHE as u64 - most);
        actor.drop_caches(crate::target::Caches::Inodes).expect("evict");
        // The root directory stays.
        assert!(store.cached_inodes() <= 1);
        let before = store.calls(Call::Lookup);
        actor.stat(&files[0]).expect("stat");
        assert_eq!(store.calls(Call::Lookup), before + 1);
    }
}
