//! The driver: each call passes the [`Injector`], then takes the one lock and makes its change.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use pando_vfs::{
    Ack, AclSupport, Backing, Change, Charge, CommitError, Driver, Error, Feed, FileData, NodeAttr, Record, RecordMask,
    Result, StatFs, Xattr,
};

use crate::{
    Call, MapHandle, MapOptions, Message,
    data::MapData,
    injector::Injector,
    store::{ROOT, Store},
};

/// State shared by a driver, its handles and its files.
pub(crate) struct Shared {
    store: Mutex<Store>,
    pub(crate) injector: Injector,
    /// One for each tree on this store. They are told while the store is locked, so a thread that
    /// sees a change also sees the report. Guarded by its own mutex, a leaf.
    feeds: Mutex<Vec<Feed>>,
    /// Changes through a handle are reported for each name and inode. Immutable.
    pub(crate) exact_reports: bool,
    /// The number of inodes in caches.
    cached: AtomicU64,
}

impl Shared {
    /// Locks the tree. No thread waits for anything else while it holds this lock.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        // A panic under the lock means that the test has already failed.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feeds(&self) -> MutexGuard<'_, Vec<Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that others have changed something that the names of a directory lead to. The store
    /// is locked.
    pub(crate) fn report(&self, dir: u64) {
        self.feeds().iter().for_each(|feed| feed.directory_changed(dir));
    }

    /// Reports names and inodes that others have changed. The store is locked.
    pub(crate) fn report_exactly(&self, names: &[(u64, &[u8])], inodes: &[u64]) {
        for feed in self.feeds().iter() {
            names.iter().for_each(|(dir, name)| feed.name_changed(*dir, name));
            inodes.iter().for_each(|ino| feed.inode_changed(*ino));
        }
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Ordering::SeqCst)
    }
}

/// A tree in plain maps: the driver to pass to `pando_vfs::Vfs::new`.
pub struct MapFs {
    shared: Arc<Shared>,
    scans_add_attributes: bool,
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
            feeds: Mutex::default(),
            exact_reports: options.exact_reports,
            cached: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), scans_add_attributes: options.scans_add_attributes }
    }

    /// A driver over an existing store, for a second mount of it.
    #[must_use]
    pub fn over(handle: &MapHandle) -> Self {
        Self { shared: handle.0.clone(), scans_add_attributes: false }
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
    fn statfs(&self) -> Result<StatFs> {
        let store = self.shared.store();
        let blocks = 1 << 40;
        // The root exists whatever the limit is.
        let free = store.limit().saturating_sub(store.len());
        Ok(StatFs::new(4096).blocks(blocks, blocks).inodes(store.limit(), free))
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
    fn keeps_flags(&self) -> bool {
        true
    }

    fn acls(&self) -> AclSupport {
        AclSupport::Namespace
    }

    fn connect(&self, feed: Feed) -> Result<NodeAttr> {
        let store = self.shared.store();
        self.shared.feeds().push(feed);
        store.attr(ROOT)
    }

    fn lookup(&self, dir: u64, names: &[&[u8]], each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()> {
        let store = self.call(Call::Lookup)?;
        let bound = &store.dir(dir)?.names;
        let answer = |name: &&[u8]| bound.get(name).map(|ino| store.attr(ino)).transpose();
        let found: Vec<_> = names.iter().map(answer).collect();
        drop(store);
        self.shared.injector.leave(Call::Lookup);
        found.into_iter().enumerate().for_each(|(place, answer)| each(place, answer));
        Ok(())
    }

    fn getattr(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()> {
        let store = self.call(Call::Getattr)?;
        let found: Vec<_> = inos.iter().map(|ino| store.attr(*ino)).collect();
        drop(store);
        found.into_iter().enumerate().for_each(|(place, attr)| each(place, attr));
        Ok(())
    }

    fn commit(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        let call = Call::of(change).ok_or(Error::NotSupported)?;
        let lost = self.shared.injector.enter_change(call)?;
        if lost == Some(Message::Request) {
            return Err(CommitError::Unknown);
        }
        let result = self.shared.store().change(change);
        self.shared.injector.leave(call);
        if lost == Some(Message::Reply) { Err(CommitError::Unknown) } else { Ok(result?) }
    }

    fn forget(&self, ino: u64) {
        if let Ok(mut store) = self.call(Call::Forget) {
            store.forget(ino);
        }
    }

    fn sync_inode(&self, ino: u64) -> Result<()> {
        self.call(Call::Sync)?.node(ino).map(drop)
    }

    fn scan(&self, dir: u64, cookie: u64, wanted: RecordMask, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()> {
        /// The number of entries that are copied while the store is locked. `each` is called
        /// without the lock.
        const BATCH: usize = 64;
        let added = if self.scans_add_attributes { wanted } else { RecordMask::empty() };
        let mut after = cookie;
        loop {
            let batch = {
                let store = self.call(Call::Scan)?;
                let names = store.dir(dir)?.names.after(after).take(BATCH);
                let entry = |(cookie, name, ino): (u64, &[u8], u64)| {
                    let xattrs = if added.contains(RecordMask::XATTRS) { store.xattrs(ino)? } else { Vec::new() };
                    Ok((cookie, Box::<[u8]>::from(name), store.attr(ino)?, xattrs))
                };
                names.map(entry).collect::<Result<Vec<_>>>()?
            };
            self.shared.injector.leave(Call::Scan);
            for (cookie, name, attr, xattrs) in &batch {
                self.shared.injector.entry_scanned();
                let mut record = Record::new(name, attr.ino, attr.kind, *cookie);
                if added.contains(RecordMask::ATTR) {
                    record = record.attr(attr);
                }
                if added.contains(RecordMask::XATTRS) {
                    record = record.xattrs(xattrs);
                }
                if !each(record) {
                    return Ok(());
                }
                after = *cookie;
            }
            if batch.len() < BATCH {
                return Ok(());
            }
        }
    }

    fn xattrs(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<Vec<Xattr>>)) -> Result<()> {
        let store = self.call(Call::Xattrs)?;
        for (place, &ino) in inos.iter().enumerate() {
            each(place, store.xattrs(ino));
        }
        Ok(())
    }
}
