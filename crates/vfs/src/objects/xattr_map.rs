//! An inode's extended attributes, as the cache has them: a map that is never changed, but replaced as a whole. So who
//! reads an attribute takes no lock and writes nothing.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use pando_sync::{AtomicCounted, Counted, Guard, Object, assert_unpinned, lock_counted, lock_order::LockClass, pin};

use crate::{Charge, Result};

/// Names and values.
pub(crate) type XattrMap = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// Capabilities of an executable file: who runs it has them.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";

/// What an attribute of a tree in memory costs.
pub(crate) fn cost_of(name: &[u8], value: &[u8]) -> Charge {
    Charge::Xattr(name.len() + value.len())
}

/// What an inode has that has, or may have, extended attributes.
pub(crate) struct Xattrs {
    /// Held while a backing is told of a change. A leaf of the lock tree.
    changing: Mutex<()>,
    /// None: there are none.
    map: AtomicCounted<Map>,
}

impl Object for Xattrs {}

struct Map {
    map: XattrMap,
    /// Bytes of values that only this one has, once it was replaced.
    outlived: AtomicUsize,
}

impl Map {
    /// None: there are no attributes.
    fn of(map: XattrMap) -> Option<Counted<Self>> {
        (!map.is_empty()).then(|| Counted::new(Self { map, outlived: AtomicUsize::new(0) }))
    }
}

/// What an entry takes in a map, whose nodes may be half full.
const ENTRY_BYTES: usize = 2 * size_of::<(Arc<[u8]>, Arc<[u8]>)>();

impl Object for Map {
    fn held_bytes(&self) -> usize {
        self.map.len() * ENTRY_BYTES + self.outlived.load(Ordering::Relaxed)
    }
}

impl Xattrs {
    pub(crate) fn new(map: XattrMap) -> Counted<Self> {
        Counted::new(Self { changing: Mutex::new(()), map: AtomicCounted::new(Map::of(map)) })
    }

    pub(crate) fn get<'g>(&self, guard: &'g Guard) -> Option<&'g XattrMap> {
        self.map.load(guard).map(|map| &map.to_ref().map)
    }

    /// Changes them as a whole, or, if `change` fails, not at all. It may run more than once, and answers the value that
    /// has left.
    pub(crate) fn exchange(
        &self,
        change: impl Fn(&mut XattrMap) -> Result<Option<Arc<[u8]>>>,
        guard: &Guard,
    ) -> Result<Option<Arc<[u8]>>> {
        loop {
            let now = self.map.load(guard);
            let mut map = now.map(|now| now.to_ref().map.clone()).unwrap_or_default();
            let old = change(&mut map)?;
            if let (Some(now), Some(old)) = (now, &old) {
                // Relaxed: for statistics.
                now.to_ref().outlived.store(old.len(), Ordering::Relaxed);
            }
            if self.map.compare_exchange(now, Map::of(map)).is_ok() {
                return Ok(old);
            }
        }
    }

    /// As [`Xattrs::exchange`], one after the other: `change` may ask a backing, and no guard is held.
    pub(crate) fn change(&self, change: impl FnOnce(&mut XattrMap) -> Result<()>) -> Result<()> {
        assert_unpinned("extended attributes");
        let _changing = lock_counted(&self.changing, LockClass::Xattrs);
        let mut map = self.get(&pin()).cloned().unwrap_or_default();
        change(&mut map)?;
        self.map.swap(Map::of(map));
        Ok(())
    }

    /// Takes them all out, once nobody looks any more.
    pub(crate) fn take(&self, each: impl Fn(&[u8], &[u8])) {
        let map = self.map.swap(None);
        map.iter().flat_map(|map| &map.map).for_each(|(name, value)| each(name, value));
    }
}
