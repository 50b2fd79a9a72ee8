//! The cached extended attributes of an inode: an immutable map that is replaced as a whole. So a
//! reader takes no lock and writes nothing.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use pando_sync::{AtomicCounted, Counted, Guard, Object, assert_unpinned, lock_counted, lock_order::LockClass, pin};

use crate::{
    Charge, Result,
    types::xattr_map::{XattrMap, is_large},
};

/// The capabilities of an executable file. A process that executes the file gains them.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";

/// The charge for an extended attribute with a value of this length, in a tree in memory.
pub(crate) fn cost_of(name: &[u8], value_len: usize) -> Charge {
    Charge::Xattr(name.len() + value_len)
}

/// The extended attributes of an inode, allocated at the first use.
pub(crate) struct Xattrs {
    /// Serializes changes while a backing acknowledges them. A leaf of the lock tree.
    changing: Mutex<()>,
    /// None: there are no attributes. Atomic pointer. In memory it is replaced by compare-and-swap
    /// without the lock; with a backing, under `changing`.
    map: AtomicCounted<Map>,
    /// With a backing: the bytes that the inode cache has counted for these attributes. Atomic: the
    /// thread that replaces the value counts the difference.
    pub counted_bytes: AtomicUsize,
}

impl Object for Xattrs {}

struct Map {
    map: XattrMap,
    /// After the map was replaced, the bytes of the large value that only the replaced map still
    /// has. Atomic: for statistics.
    replaced_bytes: AtomicUsize,
}

impl Map {
    /// None if there are no attributes.
    fn of(map: XattrMap) -> Option<Counted<Self>> {
        (!map.is_empty()).then(|| Counted::new(Self { map, replaced_bytes: AtomicUsize::new(0) }))
    }
}

impl Object for Map {
    fn held_bytes(&self) -> usize {
        self.map.held_bytes() + self.replaced_bytes.load(Ordering::Relaxed)
    }
}

impl Xattrs {
    pub(crate) fn new(map: XattrMap) -> Counted<Self> {
        Counted::new(Self {
            changing: Mutex::new(()),
            map: AtomicCounted::new(Map::of(map)),
            counted_bytes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn get<'g>(&self, guard: &'g Guard) -> Option<&'g XattrMap> {
        self.map.load(guard).map(|map| &map.to_ref().map)
    }

    /// Changes the map as a whole, without the lock. If `change` fails, nothing is changed.
    /// `change` may run more than once, and returns the length of the value that it has removed or
    /// replaced.
    pub(crate) fn exchange(
        &self,
        change: impl Fn(&mut XattrMap) -> Result<Option<usize>>,
        guard: &Guard,
    ) -> Result<Option<usize>> {
        loop {
            let now = self.map.load(guard);
            let mut map = now.map(|now| now.to_ref().map.clone()).unwrap_or_default();
            let old = change(&mut map)?;
            if let (Some(now), Some(old)) = (now, old.filter(|old| is_large(*old))) {
                // Relaxed: for statistics.
                now.to_ref().replaced_bytes.store(old, Ordering::Relaxed);
            }
            if self.map.compare_exchange(now, Map::of(map)).is_ok() {
                return Ok(old);
            }
        }
    }

    /// Changes the map as a whole, one change at a time. `change` may call the backing, so the
    /// caller holds no guard.
    pub(crate) fn change(&self, change: impl FnOnce(&mut XattrMap) -> Result<()>) -> Result<()> {
        assert_unpinned("extended attributes");
        let _changing = lock_counted(&self.changing, LockClass::Xattrs);
        let mut map = self.get(&pin()).cloned().unwrap_or_default();
        change(&mut map)?;
        self.map.swap(Map::of(map));
        Ok(())
    }

    /// Removes all attributes. No other thread can reach the inode any more.
    pub(crate) fn take(&self, each: impl Fn(&[u8], &[u8])) {
        let map = self.map.swap(None);
        map.iter().flat_map(|map| map.map.iter()).for_each(|(name, value)| each(name, value));
    }
}
