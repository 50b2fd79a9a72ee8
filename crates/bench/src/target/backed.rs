//! pandofs in process over a driver that keeps its tree elsewhere. It shows the cost of a miss in
//! the inode cache.
//!
//! The store consists of plain maps behind one lock (`pando-mapfs`). It is as fast as a simple
//! store can be, so that the cost of the cache itself is visible. The cache is kept small: a thread
//! that has added inodes evicts the excess.

use std::io;

use pando_mapfs::{MapFs, MapHandle, MapOptions};
use pando_vfs::{Credentials, Vfs};

use super::{Actor, Session, Target, cache_limit::CacheLimit, tree::TreeActor};
use crate::base::failure::{During, Failure};

/// Number of inodes that the cache may hold.
pub(crate) const CACHE: u64 = 4096;

/// A tree in maps, with a cache of [`CACHE`] inodes.
pub(crate) struct BackedTarget;

impl Target for BackedTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let driver = MapFs::new(MapOptions::default());
        let store = driver.handle();
        let vfs = Vfs::new(driver).during(|| "making a backed tree".into())?;
        Ok(Box::new(BackedSession { vfs, store }))
    }
}

struct BackedSession {
    vfs: Vfs,
    store: MapHandle,
}

impl Session for BackedSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(self.with_cache(CACHE)))
    }

    fn unbounded_actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(self.with_cache(u64::MAX)))
    }
}

impl BackedSession {
    fn with_cache(&self, cache: u64) -> TreeActor<'_> {
        let limit = CacheLimit::new(&self.store, cache);
        // The owner of the store's root directory is user 0.
        TreeActor::new(&self.vfs, Credentials::root(), Some(limit))
    }
}

#[cfg(test)]
mod tests {
    use pando_mapfs::Call;

    use super::*;
    use crate::base::path::TreePath;
    use crate::target::cache_limit::EVERY;

    #[test]
    fn cache_stays_small_and_a_larger_walk_misses() {
        let driver = MapFs::new(MapOptions::default());
        let store = driver.handle();
        let session = BackedSession { vfs: Vfs::new(driver).expect("a tree"), store: store.clone() };
        let mut actor = session.actor().expect("an actor");
        let files: Vec<TreePath> = (0..3 * CACHE).map(|n| TreePath::new(&format!("f{n}"))).collect();
        for file in &files {
            actor.create(file).expect("create");
        }
        let before = store.calls(Call::Lookup);
        for file in &files {
            actor.stat(file).expect("stat");
        }
        assert!(store.cached_inodes() <= CACHE + u64::from(EVERY), "{}", store.cached_inodes());
        // The files made last may still have been cached.
        assert!(store.calls(Call::Lookup) - before >= 2 * CACHE - u64::from(EVERY));
        actor.drop_caches(crate::target::Caches::Inodes).expect("evict");
        // The root directory stays.
        assert!(store.cached_inodes() <= 1);
        let before = store.calls(Call::Lookup);
        actor.stat(&files[0]).expect("stat");
        assert_eq!(store.calls(Call::Lookup), before + 1);
    }
}
