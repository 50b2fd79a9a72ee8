//! pandofs in process over a driver whose tree is elsewhere: what a miss in the inode cache costs.
//!
//! The store is plain maps behind one lock (`pando-mapfs`), as fast as an obvious store can be, so that the cache's own
//! work shows. The cache is kept small: whoever has brought some inodes in evicts as many as are too many.

use std::io;

use pando_mapfs::{MapFs, MapHandle, MapOptions};
use pando_vfs::{Credentials, Vfs};

use super::{Actor, Session, Target, mem::TreeActor};
use crate::failure::{Failure, While};

/// Inodes that the cache may hold.
pub(crate) const CACHE: u64 = 4096;

/// After so many operations a thread looks whether the cache holds too much.
const EVERY: u32 = 128;

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

    fn hoarder(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(self.with_cache(u64::MAX)))
    }
}

impl BackedSession {
    fn with_cache(&self, cache: u64) -> TreeActor<'_> {
        let bound = Bound { store: &self.store, cache, operations: 0 };
        // The store's root directory is owned by 0.
        TreeActor::new(&self.vfs, Credentials::root(), Some(bound))
    }
}

/// One thread's part in keeping the cache small.
pub(super) struct Bound<'a> {
    store: &'a MapHandle,
    /// Inodes that may stay.
    cache: u64,
    operations: u32,
}

impl Bound<'_> {
    /// Counts an operation, and now and then evicts what is too much. What is in use stays.
    pub(super) fn keep(&mut self, vfs: &Vfs) -> io::Result<()> {
        self.operations += 1;
        if self.operations.is_multiple_of(EVERY) {
            let excess = self.store.cached_inodes().saturating_sub(self.cache);
            if excess > 0 {
                vfs.evict(usize::try_from(excess).unwrap_or(usize::MAX))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pando_mapfs::Call;

    use super::*;
    use crate::path::TreePath;

    #[test]
    fn the_cache_stays_small_and_a_walk_of_more_misses() {
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
        // What was made last may still have been there.
        assert!(store.calls(Call::Lookup) - before >= 2 * CACHE - u64::from(EVERY));
        actor.forget(crate::target::Forget::Inodes).expect("evict");
        // The root directory stays.
        assert!(store.cached_inodes() <= 1);
        let before = store.calls(Call::Lookup);
        actor.stat(&files[0]).expect("stat");
        assert_eq!(store.calls(Call::Lookup), before + 1);
    }
}
