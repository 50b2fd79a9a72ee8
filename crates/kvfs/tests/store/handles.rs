//! Inodes that are found by their numbers alone, as for the file handle of an NFS client.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{
    Ack, At, Backing, Change, Charge, CommitError, Context, Credentials, Driver, Error, Feed, FileData, NodeAttr,
    OpenFlags, Record, RecordMask, RenameFlags, StatFs, Vfs, Walk, Xattr,
};

use crate::{
    crash::{expect_consistent, open},
    machine::{Image, Machine},
};

fn new_store() -> Machine {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    machine
}

/// The store as another process finds it after the machine has crashed.
fn reopened(machine: &Machine) -> (Vfs, Context) {
    let machine = Machine::new(&machine.image());
    expect_consistent(&machine);
    open(&machine)
}

fn make(vfs: &Vfs, context: &Context, path: &str) -> u64 {
    let flags = OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL;
    vfs.open(context, At::Cwd, path, flags, 0o644).expect("made").stat().ino
}

fn number(vfs: &Vfs, context: &Context, path: &str) -> u64 {
    vfs.lookup(context, At::Cwd, path, Walk::NOFOLLOW).expect("there").ino()
}

/// The path of an inode that is found by its number.
fn path(vfs: &Vfs, context: &Context, ino: u64) -> Result<String, Error> {
    let found = vfs.exports().find(ino)?;
    assert_eq!(found.ino(), ino);
    Ok(String::from_utf8(vfs.d_path(context, &found, 4096)?).expect("text"))
}

fn rename(vfs: &Vfs, context: &Context, from: &str, to: &str, flags: RenameFlags) {
    vfs.rename(context, At::Cwd, from, At::Cwd, to, flags).expect("renamed");
}

#[test]
fn inodes_of_all_kinds_are_found() {
    let machine = new_store();
    let (vfs, context) = open(&machine);
    for dir in ["/a", "/a/b", "/a/b/c"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o700).expect("made");
    }
    make(&vfs, &context, "/a/b/file");
    vfs.symlink(&context, "nowhere", At::Cwd, "/a/link").expect("made");
    vfs.mknod(&context, At::Cwd, "/pipe", 0o010_600, 0).expect("made");
    vfs.sync().expect("stored");
    let paths = ["/", "/a", "/a/b", "/a/b/c", "/a/b/file", "/a/link", "/pipe"];
    let numbers = paths.map(|path| number(&vfs, &context, path));
    // From a cache that is empty, and one that has the directories.
    for expected in [&paths[..], &paths] {
        let (vfs, context) = reopened(&machine);
        for (expected, ino) in expected.iter().zip(numbers).rev() {
            assert_eq!(path(&vfs, &context, ino).as_deref(), Ok(*expected));
        }
        vfs.evict(usize::MAX).expect("evicted");
        for (expected, ino) in expected.iter().zip(numbers) {
            assert_eq!(path(&vfs, &context, ino).as_deref(), Ok(*expected));
        }
    }
    assert_eq!(path(&vfs, &context, numbers[6] + 1), Err(Error::Stale));
    assert_eq!(path(&vfs, &context, u64::MAX), Err(Error::Stale));
}

#[test]
fn inodes_are_found_by_their_present_names() {
    let machine = new_store();
    let (vfs, context) = open(&machine);
    let root = &context;
    vfs.mkdir(root, At::Cwd, "/a", 0o755).expect("made");
    vfs.mkdir(root, At::Cwd, "/b", 0o755).expect("made");
    let file = make(&vfs, root, "/a/file");
    let (one, two) = (make(&vfs, root, "/one"), make(&vfs, root, "/two"));
    let (new, replaced) = (make(&vfs, root, "/new"), make(&vfs, root, "/b/replaced"));
    let removed = make(&vfs, root, "/removed");
    let flags = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    let anonymous = vfs.open(root, At::Cwd, "/a", flags, 0o644).expect("made");
    let (named, never) = (anonymous.stat().ino, vfs.open(root, At::Cwd, "/a", flags, 0o644));
    let never = never.expect("made").stat().ino;
    vfs.sync().expect("stored");

    rename(&vfs, root, "/a/file", "/b/moved", RenameFlags::empty());
    rename(&vfs, root, "/b", "/a/c", RenameFlags::empty());
    rename(&vfs, root, "/one", "/two", RenameFlags::EXCHANGE);
    rename(&vfs, root, "/new", "/a/c/replaced", RenameFlags::empty());
    vfs.unlink(root, At::Cwd, "/removed").expect("removed");
    vfs.link(root, At::Dir(anonymous.dentry()), "", At::Cwd, "/named", Walk::EMPTY_PATH).expect("linked");
    drop(anonymous);
    vfs.sync().expect("stored");
    drop(vfs);

    let (vfs, context) = reopened(&machine);
    let found = |ino| path(&vfs, &context, ino);
    assert_eq!(found(file).as_deref(), Ok("/a/c/moved"));
    assert_eq!((found(one).as_deref(), found(two).as_deref()), (Ok("/two"), Ok("/one")));
    assert_eq!(found(new).as_deref(), Ok("/a/c/replaced"));
    assert_eq!(found(named).as_deref(), Ok("/named"));
    for gone in [replaced, removed, never] {
        assert_eq!(found(gone), Err(Error::Stale));
    }
}

/// A file with more names than are noted is found as long as one of those that are noted is there.
#[test]
fn a_file_is_found_by_any_of_its_links() {
    const LINKS: usize = 20;
    let machine = new_store();
    let (vfs, context) = open(&machine);
    let file = make(&vfs, &context, "/0");
    for link in 1..LINKS {
        vfs.link(&context, At::Cwd, "/0", At::Cwd, format!("/{link}"), Walk::empty()).expect("linked");
    }
    let remove = |link: usize| vfs.unlink(&context, At::Cwd, format!("/{link}")).expect("removed");
    (0..10).for_each(remove);
    vfs.sync().expect("stored");
    {
        let (vfs, context) = reopened(&machine);
        assert!(path(&vfs, &context, file).is_ok());
    }
    // A new name is noted again.
    (10..LINKS - 1).for_each(remove);
    vfs.link(&context, At::Cwd, "/19", At::Cwd, "/last", Walk::empty()).expect("linked");
    vfs.unlink(&context, At::Cwd, "/19").expect("removed");
    vfs.sync().expect("stored");
    let (vfs, context) = reopened(&machine);
    assert_eq!(path(&vfs, &context, file).as_deref(), Ok("/last"));
}

/// A store that does something after it has returned the names of an inode, once.
struct Interrupted {
    store: KvFs,
    then: Arc<Mutex<Option<Then>>>,
}

type Then = Box<dyn FnOnce() + Send>;

impl Driver for Interrupted {
    fn statfs(&self) -> Result<StatFs, Error> {
        self.store.statfs()
    }
    fn charge(&self, what: Charge) -> Result<(), Error> {
        self.store.charge(what)
    }
    fn release(&self, what: Charge) {
        self.store.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.store.data(ino)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
}

type Each<'e, T> = &'e mut dyn FnMut(usize, Result<T, Error>);

impl Backing for Interrupted {
    fn identity(&self) -> Option<u64> {
        self.store.identity()
    }
    fn names_of(&self, ino: u64, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), Error> {
        let named = self.store.names_of(ino, each);
        let then = self.then.lock().expect("no panic").take();
        then.into_iter().for_each(|then| then());
        named
    }
    fn connect(&self, feed: Feed) -> Result<NodeAttr, Error> {
        self.store.connect(feed)
    }
    fn lookup(&self, dir: u64, names: &[&[u8]], each: Each<'_, Option<NodeAttr>>) -> Result<(), Error> {
        Backing::lookup(&self.store, dir, names, each)
    }
    fn getattr(&self, inos: &[u64], each: Each<'_, NodeAttr>) -> Result<(), Error> {
        self.store.getattr(inos, each)
    }
    fn commit(&self, change: &Change<'_>) -> Result<Ack, CommitError> {
        self.store.commit(change)
    }
    fn forget(&self, ino: u64) {
        self.store.forget(ino);
    }
    fn scan(
        &self,
        dir: u64,
        cookie: u64,
        wanted: RecordMask,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> Result<(), Error> {
        self.store.scan(dir, cookie, wanted, each)
    }
    fn xattrs(&self, inos: &[u64], each: Each<'_, Vec<Xattr>>) -> Result<(), Error> {
        self.store.xattrs(inos, each)
    }
}

/// The number of a file has led to its directory. Then the file is moved, and the directory is
/// removed.
#[test]
fn a_file_is_found_whose_directory_is_removed_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let then = Arc::<Mutex<Option<Then>>>::default();
    let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a store");
    let vfs = Vfs::new(Interrupted { store, then: Arc::clone(&then) }).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    let file = make(&vfs, &context, "/d/file");
    vfs.evict(usize::MAX).expect("evicted");
    let meanwhile = vfs.clone();
    *then.lock().expect("no panic") = Some(Box::new(move || {
        let context = Context::new(&meanwhile, Credentials::root());
        rename(&meanwhile, &context, "/d/file", "/file", RenameFlags::empty());
        meanwhile.rmdir(&context, At::Cwd, "/d").expect("removed");
        meanwhile.evict(usize::MAX).expect("evicted");
    }));
    assert_eq!(path(&vfs, &context, file).as_deref(), Ok("/file"));
    assert!(then.lock().expect("no panic").is_none(), "it was interrupted");
}

/// While another thread moves a file and its directories, and inodes leave the cache.
#[test]
fn an_inode_that_moves_is_found() {
    let machine = new_store();
    let (vfs, context) = open(&machine);
    for dir in ["/a", "/b", "/a/x", "/b/y"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o755).expect("made");
    }
    let file = make(&vfs, &context, "/a/x/file");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                rename(&vfs, &context, "/a/x/file", "/b/y/file", RenameFlags::empty());
                rename(&vfs, &context, "/a", "/b", RenameFlags::EXCHANGE);
                rename(&vfs, &context, "/b/x", "/a/y", RenameFlags::EXCHANGE);
                rename(&vfs, &context, "/a", "/b", RenameFlags::EXCHANGE);
            }
        });
        for _ in 0..2000 {
            let found = vfs.exports().find(file);
            assert_eq!(found.map(|found| found.ino()), Ok(file));
            vfs.evict(usize::MAX).expect("evicted");
        }
        done.store(true, Ordering::Relaxed);
    });
}
