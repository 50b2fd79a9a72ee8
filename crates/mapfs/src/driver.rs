//! The driver: each call passes the [`Injector`], then takes the one lock and makes its change.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use pando_vfs::{
    AttrMask, Backing, Charge, Driver, Error, FileData, FileKind, NodeAttr, RenameFlags, Result, Scanned, StatFs,
};

use crate::{
    Call, MapHandle, MapOptions,
    data::MapData,
    injector::Injector,
    store::{ROOT, Store},
};

/// Directories share change counts by class. A change in one directory costs the others of its
/// class one check.
const CHANGE_COUNTS: usize = 1024;

/// State shared by a driver, its handles and its files.
pub(crate) struct Shared {
    store: Mutex<Store>,
    pub(crate) injector: Injector,
    /// Increased while the store is locked, so that a thread that sees a change also sees its
    /// count.
    changes: Box<[AtomicU64]>,
    /// The number of inodes in caches.
    cached: AtomicU64,
}

impl Shared {
    /// Locks the tree. No thread waits for anything else while it holds this lock.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        // A panic under the lock means that the test has already failed.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_of(&self, dir: u64) -> &AtomicU64 {
        &self.changes[dir as usize % CHANGE_COUNTS]
    }

    /// Notes that others have changed something that the names of a directory lead to. The store is
    /// locked.
    pub(crate) fn note_foreign_change(&self, dir: u64) {
        self.count_of(dir).fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Ordering::SeqCst)
    }
}

/// A tree in plain maps: the driver to pass to `pando_vfs::Vfs::new`.
pub struct MapFs {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for MapFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapFs").field("injector", &self.shared.injector).finish_non_exhaustive()
    }
}

impl MapFs {
    /// A store with an empty root directory (owner 0, mode 0755).
    #[must_use]
    pub fn new(options: MapOptions) -> Self {
        let store = Store::new(options.inodes.unwrap_or(u64::MAX));
        let shared = Shared {
            store: Mutex::new(store),
            injector: Injector::new(options.delays, options.faults),
            changes: (0..CHANGE_COUNTS).map(|_| AtomicU64::new(0)).collect(),
            cached: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A driver over an existing store, for a second mount of it.
    #[must_use]
    pub fn over(handle: &MapHandle) -> Self {
        Self { shared: handle.0.clone() }
    }

    /// A handle to the store, for changes that bypass the namespace.
    #[must_use]
    pub fn handle(&self) -> MapHandle {
        MapHandle(self.shared.clone())
    }

    /// Counts a call and delays it or fails it as configured. Then locks the store.
    fn call(&self, call: Call) -> Result<MutexGuard<'_, Store>> {
        self.shared.injector.enter(call)?;
        Ok(self.shared.store())
    }
}

impl Driver for MapFs {
    fn statfs(&self) -> StatFs {
        let store = self.shared.store();
        let blocks = 1 << 40;
        // The root exists whatever the limit is.
        let free = store.limit().saturating_sub(store.len());
        StatFs::new(4096).blocks(blocks, blocks).inodes(store.limit(), free)
    }

    /// Counts an inode in the cache. Inodes of the store are limited in `create`.
    fn charge(&self, what: Charge) -> Result<()> {
        assert_eq!(what, Charge::Inode, "a store has limits of its own");
        self.shared.cached.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn release(&self, what: Charge) {
        assert_eq!(what, Charge::Inode, "something was given back that was never paid for");
        let old = self.shared.cached.fetch_sub(1, Ordering::SeqCst);
        assert!(old > 0, "an inode was given back that was never paid for");
    }

    fn data(&self, ino: u64) -> Box<dyn FileData> {
        Box::new(MapData::new(self.shared.clone(), ino))
    }

    fn sync(&self) -> Result<()> {
        self.shared.injector.enter(Call::Sync)
    }

    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
}

impl Backing for MapFs {
    fn root(&self) -> Result<NodeAttr> {
        self.shared.store().attr(ROOT)
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<NodeAttr>> {
        let store = self.call(Call::Lookup)?;
        let found = store.lookup(dir, name)?.map(|ino| store.attr(ino)).transpose();
        drop(store);
        self.shared.injector.leave(Call::Lookup);
        found
    }

    fn change_count(&self, dir: u64) -> u64 {
        self.shared.count_of(dir).load(Ordering::SeqCst)
    }

    fn getattr_many(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()> {
        let store = self.call(Call::Getattr)?;
        let found: Vec<_> = inos.iter().map(|ino| store.attr(*ino)).collect();
        drop(store);
        found.into_iter().enumerate().for_each(|(place, attr)| each(place, attr));
        Ok(())
    }

    fn create(&self, dir: u64, name: &[u8], attr: &NodeAttr) -> Result<u64> {
        let made = self.call(Call::Create)?.create(dir, name, attr);
        self.shared.injector.leave(Call::Create);
        made
    }

    fn link(&self, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
        self.call(Call::Link)?.link(ino, dir, name)
    }

    fn remove(&self, dir: u64, name: &[u8]) -> Result<()> {
        let removed = self.call(Call::Remove)?.remove(dir, name);
        self.shared.injector.leave(Call::Remove);
        removed.map(drop)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<()> {
        self.call(Call::Rename)?.rename(from, to, flags)
    }

    fn setattr(&self, ino: u64, attr: &NodeAttr, meant: AttrMask) -> Result<()> {
        fn set<T: Copy>(stored: &mut T, new: T, meant: bool) {
            *stored = if meant { new } else { *stored };
        }
        let mut store = self.call(Call::Setattr)?;
        let stored = &mut store.node_mut(ino)?.attr;
        set(&mut stored.mode, attr.mode, meant.contains(AttrMask::MODE));
        set(&mut stored.uid, attr.uid, meant.contains(AttrMask::UID));
        set(&mut stored.gid, attr.gid, meant.contains(AttrMask::GID));
        set(&mut stored.atime, attr.atime, meant.contains(AttrMask::ATIME));
        set(&mut stored.mtime, attr.mtime, meant.contains(AttrMask::MTIME));
        set(&mut stored.ctime, attr.ctime, meant.contains(AttrMask::CTIME));
        Ok(())
    }

    fn forget(&self, ino: u64) {
        if let Ok(mut store) = self.call(Call::Forget) {
            store.forget(ino);
        }
    }

    fn scan(&self, dir: u64, cookie: u64, each: &mut dyn FnMut(Scanned<'_>) -> bool) -> Result<()> {
        /// The number of entries that are copied while the store is locked. `each` is called
        /// without the lock.
        const BATCH: usize = 64;
        let mut after = cookie;
        loop {
            let batch: Vec<(u64, Box<[u8]>, u64, FileKind)> = {
                let store = self.call(Call::Scan)?;
                let names = store.dir(dir)?.names.after(after).take(BATCH);
                let entry =
                    |(cookie, name, ino): (u64, &[u8], u64)| Ok((cookie, name.into(), ino, store.node(ino)?.attr.kind));
                names.map(entry).collect::<Result<_>>()?
            };
            for (cookie, name, ino, kind) in &batch {
                if !each(Scanned::new(name, *ino, *kind, *cookie)) {
                    return Ok(());
                }
                after = *cookie;
            }
            if batch.len() < BATCH {
                return Ok(());
            }
        }
    }

    fn xattrs(&self, ino: u64) -> Result<Vec<(Box<[u8]>, Box<[u8]>)>> {
        let store = self.call(Call::Xattrs)?;
        Ok(store.node(ino)?.xattrs.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut store = self.call(Call::SetXattr)?;
        let xattrs = &mut store.node_mut(ino)?.xattrs;
        match value {
            Some(value) => {
                xattrs.insert(name.into(), value.into());
                Ok(())
            }
            None => xattrs.remove(name).map(drop).ok_or(Error::NoData),
        }
    }
}
