//! A panic inside an operation (P14), either in a driver's charge or in the callback of a scan.
//! Nothing stays locked, pending or charged, and the same operation succeeds afterwards.
//! `pando-mapfs` tests panics in calls of a backing.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Charge, Context, Credentials, Driver, FileData, OpenFlags, Result, StatFs, Vfs, Walk, XattrFlags};

/// A tree in memory that panics once, at the charge that it is armed for.
#[derive(Clone)]
struct Fragile(Arc<MemFs>, Arc<Mutex<Option<Which>>>);

type Which = fn(Charge) -> bool;

impl Fragile {
    fn new() -> Self {
        let options = MemOptions::new().inodes(100).size_bytes(1 << 20);
        Self(Arc::new(MemFs::new(options)), Arc::default())
    }

    fn arm(&self, which: Which) {
        *self.1.lock().expect("no panic") = Some(which);
    }

    /// Asserts that inodes and blocks are finally as free as `before`. Tests that run beside this
    /// one may be reading, each for a moment.
    fn assert_returns_to(&self, before: StatFs, what: &str) {
        let reached = || {
            pando_sync::collect();
            std::thread::yield_now();
            self.statfs() == Ok(before)
        };
        assert!((0..1000).any(|_| reached()), "{what}: {:?}, before {before:?}", self.statfs());
    }
}

impl Driver for Fragile {
    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        let strikes = self.1.lock().expect("no panic").take_if(|which| which(what)).is_some();
        assert!(!strikes, "on purpose: {what:?}");
        self.0.charge(what)
    }
    fn release(&self, what: Charge) {
        self.0.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.0.data(ino)
    }
}

fn tree() -> (Fragile, Vfs, Context) {
    let driver = Fragile::new();
    let vfs = Vfs::new(driver.clone()).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    (driver, vfs, context)
}

type Operation = fn(&Vfs, &Context) -> Result<()>;

const CWD: At<'_> = At::Cwd;

#[test]
fn p14_panicking_charge_leaves_nothing_behind() {
    let inode: Which = |what| what == Charge::Inode;
    let mkdir: Operation = |vfs, root| vfs.mkdir(root, CWD, "/w/new", 0o755).map(drop);
    let create: Operation =
        |vfs, root| vfs.open(root, CWD, "/w/new", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).map(drop);
    let anonymous: Operation = |vfs, root| {
        vfs.open(root, CWD, "/w", OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY, 0o644).map(drop)
    };
    let symlink: Operation = |vfs, root| vfs.symlink(root, [b't'; 4000], CWD, "/w/new").map(drop);
    let setxattr: Operation =
        |vfs, root| vfs.setxattr(root, CWD, "/w/f", "user.k", "v", XattrFlags::empty(), Walk::empty());
    let target: Which = |what| matches!(what, Charge::Target(_));
    let xattr: Which = |what| matches!(what, Charge::Xattr(_));
    let cases =
        [(inode, mkdir), (inode, create), (inode, anonymous), (inode, symlink), (target, symlink), (xattr, setxattr)];
    for (number, (which, operation)) in cases.into_iter().enumerate() {
        let what = format!("{number}");
        let (driver, vfs, root) = tree();
        let empty = driver.statfs().unwrap();
        vfs.mkdir(&root, CWD, "/w", 0o755).expect("made");
        drop(vfs.open(&root, CWD, "/w/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made"));
        let before = driver.statfs().unwrap();
        driver.arm(which);
        catch_unwind(AssertUnwindSafe(|| operation(&vfs, &root))).expect_err(&what);
        driver.assert_returns_to(before, &what);
        assert_eq!(operation(&vfs, &root), Ok(()), "{what} the second time");
        let _ = vfs.rmdir(&root, CWD, "/w/new").or_else(|_| vfs.unlink(&root, CWD, "/w/new"));
        assert_eq!(vfs.unlink(&root, CWD, "/w/f"), Ok(()), "{what}");
        assert_eq!(vfs.rmdir(&root, CWD, "/w"), Ok(()), "{what}");
        driver.assert_returns_to(empty, &what);
    }
}

#[test]
fn p14_panicking_mount_leaves_no_tree() {
    let (_, vfs, root) = tree();
    vfs.mkdir(&root, CWD, "/m", 0o755).expect("made");
    let mounted = Fragile::new();
    mounted.arm(|_| true);
    catch_unwind(AssertUnwindSafe(|| vfs.mount(&root, CWD, "/m", mounted.clone()))).expect_err("a panic");
    assert_eq!(Arc::strong_count(&mounted.0), 1);
    assert_eq!(vfs.mount(&root, CWD, "/m", mounted), Ok(()));
    assert_eq!(vfs.umount(&root, CWD, "/m"), Ok(()));
}

#[test]
fn p14_panicking_scan_callback_leaves_nothing_behind() {
    let (driver, vfs, root) = tree();
    let empty = driver.statfs().unwrap();
    vfs.mkdir(&root, CWD, "/w", 0o755).expect("made");
    let names = ["/w/a", "/w/b", "/w/c"];
    for name in names {
        drop(vfs.open(&root, CWD, name, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made"));
    }
    let dir = vfs.open(&root, CWD, "/w", OpenFlags::DIRECTORY, 0).expect("opens");
    let show = |cookie| {
        assert!(cookie < 3, "on purpose: neither . nor ..");
        true
    };
    catch_unwind(AssertUnwindSafe(|| dir.readdir(0, |entry| show(entry.cookie)))).expect_err("a panic");
    catch_unwind(AssertUnwindSafe(|| dir.readdir_plus(&root, 0, |entry, _| show(entry.cookie)))).expect_err("a panic");
    let mut entries = 0;
    let scanned = dir.readdir(0, |_| {
        entries += 1;
        true
    });
    assert_eq!((scanned, entries), (Ok(()), 5));
    drop(dir);
    assert_eq!(names.map(|name| vfs.unlink(&root, CWD, name)), [Ok(()); 3]);
    assert_eq!(vfs.rmdir(&root, CWD, "/w"), Ok(()));
    driver.assert_returns_to(empty, "at the end");
}
