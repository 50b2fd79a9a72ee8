//! A driver that takes no parallel directory operations. The namespace has a lock for each
//! directory then, and never makes two calls for one directory at the same time.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use pando_mapfs::{MapFs, MapHandle, MapOptions};
use pando_vfs::{
    Ack, At, Backing, Change, Charge, CommitError, Context, Credentials, DirectoryLocks, Driver, Error, Feed, FileData,
    FileKind, NodeAttr, Record, RecordMask, RenameFlags, Result, StatFs, Vfs, VfsOptions, Walk, Xattr,
};

use crate::{
    random::run_beside,
    support::{assert_same, evict_down_to, seed, seen, stored},
};

/// Threads stop when the driver has had this many calls.
const CALLS: u64 = 2000;

/// The calls that the driver serves at the moment, and how many it has served.
#[derive(Default)]
struct Calls {
    /// The directories that a call is about at the moment.
    busy: Mutex<HashSet<u64>>,
    /// How many calls began while another one was about the same directory.
    overlaps: AtomicU64,
    count: AtomicU64,
}

/// A driver that notes when two calls for one directory overlap.
struct Naive {
    inner: MapFs,
    parallel: bool,
    calls: Arc<Calls>,
}

/// A call in progress, and the directories that no other call has entered before it.
struct Call<'a>(&'a Calls, Vec<u64>);

impl Naive {
    /// A call about these directories. It takes long enough to meet others.
    fn call(&self, mut dirs: Vec<u64>) -> Call<'_> {
        dirs.sort_unstable();
        dirs.dedup();
        let mut busy = self.calls.busy.lock().expect("no panic");
        let entered: Vec<u64> = dirs.iter().copied().filter(|&dir| busy.insert(dir)).collect();
        drop(busy);
        self.calls.overlaps.fetch_add((dirs.len() - entered.len()) as u64, SeqCst);
        self.calls.count.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_micros(50));
        Call(&self.calls, entered)
    }

    /// The directory that a name leads to.
    fn subdirectory(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let found = (&self.inner as &dyn Backing).lookup_one(dir, name).ok().flatten()?;
        (found.kind == FileKind::Directory).then_some(found.ino)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().expect("no panic");
        busy.retain(|dir| !self.1.contains(dir));
    }
}

impl Driver for Naive {
    fn statfs(&self) -> Result<StatFs> {
        self.inner.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        self.inner.charge(what)
    }
    fn release(&self, what: Charge) {
        self.inner.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.inner.data(ino)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
}

impl Backing for Naive {
    fn parallel_directory_operations(&self) -> bool {
        self.parallel
    }
    fn connect(&self, feed: Feed) -> Result<NodeAttr> {
        self.inner.connect(feed)
    }
    fn lookup(&self, dir: u64, names: &[&[u8]], each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()> {
        let _call = self.call(vec![dir]);
        self.inner.lookup(dir, names, each)
    }
    fn getattr(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()> {
        self.inner.getattr(inos, each)
    }
    fn commit(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        let dirs = match *change {
            Change::Create { dir, .. } | Change::CreateAnonymous { dir, .. } | Change::Link { dir, .. } => vec![dir],
            Change::Remove { dir, name, .. } => [dir].into_iter().chain(self.subdirectory(dir, name)).collect(),
            Change::Rename { from, to, flags, .. } => {
                let replaces = !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
                let replaced = if replaces { self.subdirectory(to.0, to.1) } else { None };
                [from.0, to.0].into_iter().chain(replaced).collect()
            }
            _ => Vec::new(),
        };
        let _call = self.call(dirs);
        self.inner.commit(change)
    }
    fn forget(&self, ino: u64) {
        self.inner.forget(ino);
    }
    fn scan(&self, dir: u64, cookie: u64, wanted: RecordMask, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()> {
        let _call = self.call(vec![dir]);
        self.inner.scan(dir, cookie, wanted, each)
    }
    fn xattrs(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<Vec<Xattr>>)) -> Result<()> {
        self.inner.xattrs(inos, each)
    }
}

/// Runs random operations on few directories from several threads, while inodes are evicted, and
/// while another user of the store changes a file in the root directory. Returns the number of
/// calls that met another one at a directory.
fn overlaps(parallel: bool, options: VfsOptions) -> u64 {
    let seed = seed();
    let driver = MapFs::new(MapOptions::default());
    let (store, calls) = (driver.handle(), Arc::new(Calls::default()));
    let vfs = Vfs::with_options(Naive { inner: driver, parallel, calls: calls.clone() }, options).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    let other = store.create(MapHandle::ROOT, "other", FileKind::File, 0o600).expect("made");
    let enough = |_| calls.count.load(SeqCst) >= CALLS;
    run_beside((&vfs, &root), seed, 4, &[Error::Stale, Error::TryAgain, Error::Io], enough, || {
        vfs.evict(8).expect("nothing fails");
        store.chmod(other, 0o600 | (store.inodes() as u32 % 8)).expect("changed");
        std::thread::sleep(Duration::from_millis(1));
    });
    let overlaps = calls.overlaps.load(SeqCst);
    assert_same(&seen(&vfs, &root), &stored(&store), "afterwards");
    evict_down_to(&vfs, &store, 1);
    assert_same(&seen(&vfs, &root), &stored(&store), "loaded anew");
    overlaps
}

/// Seen to fail: a load, a refresh or a scan without the lock of the directory; a directory that is
/// not locked while it is removed.
#[test]
fn calls_for_one_directory_never_overlap_without_parallel_operations() {
    assert_eq!(overlaps(false, VfsOptions::new()), 0);
}

#[test]
fn calls_for_one_directory_never_overlap_with_a_lock_per_directory() {
    assert_eq!(overlaps(true, VfsOptions::new().directory_locks(DirectoryLocks::PerDirectory)), 0);
}

/// The test can see overlaps.
#[test]
fn calls_for_one_directory_overlap_otherwise() {
    assert!(overlaps(true, VfsOptions::new()) > 0);
}

/// One stripe is the extreme: all names of the tree share one lock.
#[test]
fn tree_works_with_one_stripe() {
    let options = VfsOptions::new().directory_locks(DirectoryLocks::Stripes(1));
    let vfs = Vfs::with_options(MapFs::new(MapOptions::default()), options).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&root, At::Cwd, "/a", 0o755).expect("made");
    vfs.mkdir(&root, At::Cwd, "/b", 0o755).expect("made");
    vfs.rename(&root, At::Cwd, "/a", At::Cwd, "/b/c", RenameFlags::empty()).expect("moved");
    assert!(vfs.stat(&root, At::Cwd, "/b/c", Walk::empty()).is_ok());
    vfs.rmdir(&root, At::Cwd, "/b/c").expect("removed");
}
