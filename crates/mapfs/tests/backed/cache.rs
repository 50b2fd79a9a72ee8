//! The cache over a tree that is kept elsewhere: misses, evictions, and what others change.

use std::{
    sync::{Arc, Barrier, Mutex},
    time::Duration,
};

use pando_mapfs::{Call, Delay, Fault, MapFs, MapHandle, MapOptions, Wait};
use pando_vfs::{
    At, Backing, Charge, Context, Credentials, Driver, Error, FileData, FileKind, OpenFlags, RenameFlags, Result, Seek,
    SetTime, StatFs, Timestamp, Vfs, Walk, XattrFlags,
};

use crate::support::{assert_same, collect_until, evict_all, evict_down_to, mounted, names, seen, stored};

const FOLLOW: Walk = Walk::empty();
const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT).union(OpenFlags::EXCL);
const ROOT: u64 = MapHandle::ROOT;

fn slow_lookups() -> MapOptions {
    let wait = Wait::Sleep(Duration::from_millis(20));
    MapOptions { delays: vec![Delay { call: Some(Call::Lookup), wait }], ..MapOptions::default() }
}

/// Runs `body` on eight threads that start together.
fn together<T: Send>(body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        let run = |id| {
            let (barrier, body) = (&barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                body(id)
            })
        };
        let threads: Vec<_> = (0..8).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
    })
}

#[test]
fn concurrent_misses_ask_once() {
    let (vfs, context, store) = mounted(slow_lookups());
    let ino = store.create(ROOT, "f", FileKind::File, 0o644).expect("made");
    let found = together(|_| vfs.stat(&context, At::Cwd, "/f", FOLLOW).map(|stat| stat.ino));
    assert!(found.iter().all(|found| *found == Ok(ino)), "{found:?}");
    assert_eq!(store.calls(Call::Lookup), 1);
    let found = together(|_| vfs.stat(&context, At::Cwd, "/nothing", FOLLOW).map(|stat| stat.ino));
    assert!(found.iter().all(|found| *found == Err(Error::NoEntry)), "{found:?}");
    assert_eq!(store.calls(Call::Lookup), 2, "that there is nothing is asked once, too");
}

#[test]
fn two_names_loaded_at_once_are_one_inode() {
    let (vfs, context, store) = mounted(slow_lookups());
    for round in 0..20 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let ino = store.create(ROOT, &a, FileKind::File, 0o644).expect("made");
        store.link(ino, ROOT, &b).expect("linked");
        let files = together(|id| {
            let name = if id % 2 == 0 { &a } else { &b };
            vfs.open(&context, At::Cwd, name, OpenFlags::RDWR, 0).expect("opens")
        });
        files[0].write(b"seen by all").expect("written");
        for file in &files {
            assert_eq!((file.stat().ino, file.stat().nlink, file.stat().size), (ino, 2, 11));
        }
        // The root and this one, whoever else was loading it.
        collect_until(|| store.cached_inodes() == 2);
        vfs.unlink(&context, At::Cwd, &a).expect("removed");
        assert_eq!(files[1].stat().nlink, 1);
        vfs.unlink(&context, At::Cwd, &b).expect("removed");
        assert_eq!(files[0].pread(&mut [0; 11], 0), Ok(11), "an open file lives on");
        assert_eq!(store.nameless(), [ino]);
        drop(files);
        evict_down_to(&vfs, &store, 1);
    }
}

#[test]
fn what_a_loader_is_told_all_are_told() {
    let (vfs, context, store) = mounted(MapOptions::default());
    store.create(ROOT, "f", FileKind::File, 0o644).expect("made");
    store.inject(Fault::Nth { call: Some(Call::Lookup), after: 0, error: Error::TryAgain });
    assert_eq!(vfs.stat(&context, At::Cwd, "/f", FOLLOW).err(), Some(Error::TryAgain), "no error is remembered");
    assert!(vfs.stat(&context, At::Cwd, "/f", FOLLOW).is_ok());
}

#[test]
fn an_eviction_loses_nothing() {
    let (vfs, context, store) = mounted(MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/d", 0o750).expect("made");
    let file = vfs.open(&context, At::Cwd, "/d/f", NEW, 0o640).expect("made");
    file.write(b"some bytes").expect("written");
    drop(file);
    vfs.open(&context, At::Cwd, "/d/timed", NEW, 0o600).expect("made");
    let (long_ago, one_day) = (Timestamp::from_parts(7, 9), Timestamp::from_parts(4_000_000_000, 1));
    vfs.utimens(&context, At::Cwd, "/d/timed", SetTime::At(long_ago), SetTime::At(one_day), FOLLOW).expect("set");
    vfs.link(&context, At::Cwd, "/d/f", At::Cwd, "/g", FOLLOW).expect("linked");
    vfs.link(&context, At::Cwd, "/d/f", At::Cwd, "/h", FOLLOW).expect("linked");
    vfs.unlink(&context, At::Cwd, "/h").expect("removed");
    vfs.symlink(&context, "d/f", At::Cwd, "/l").expect("made");
    vfs.mkdir(&context, At::Cwd, "/d/below", 0o777).expect("made");
    vfs.rename(&context, At::Cwd, "/d/below", At::Cwd, "/beside", RenameFlags::empty()).expect("moved");
    vfs.chmod(&context, At::Cwd, "/g", 0o4711, FOLLOW).expect("changed");
    vfs.setxattr(&context, At::Cwd, "/g", "user.k", "v", XattrFlags::empty(), FOLLOW).expect("set");
    let device = vfs.mknod(&context, At::Cwd, "/d/null", 0o020_666, 0x103).expect("made");
    drop(device);
    let paths = ["/d", "/d/f", "/d/timed", "/d/null", "/g", "/l", "/beside"];
    let stats = || paths.map(|path| vfs.stat(&context, At::Cwd, path, Walk::NOFOLLOW).expect(path));
    // Looking at all of it reads links and directories: their access times are now.
    let tree = seen(&vfs, &context);
    let before = stats();
    let root = vfs.stat(&context, At::Cwd, "/", FOLLOW).map(|stat| stat.nlink);
    for _ in 0..3 {
        evict_down_to(&vfs, &store, 1);
        assert_eq!(stats(), before);
        assert_same(&seen(&vfs, &context), &tree, "after an eviction");
        assert_same(&seen(&vfs, &context), &stored(&store), "in the store");
        assert_eq!(vfs.stat(&context, At::Cwd, "/", FOLLOW).map(|stat| stat.nlink), root);
    }
    assert_eq!(before[1].nlink, 2);
    assert_eq!(before[2].mtime, one_day);
    evict_all(&vfs);
    let file = vfs.open(&context, At::Cwd, "/d/timed", OpenFlags::RDWR, 0).expect("opens");
    file.write(b"x").expect("written");
    assert!(file.stat().mtime < one_day, "the clock again");
}

#[test]
fn bytes_are_read_before_anything_is_written() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let ino = store.create(ROOT, "f", FileKind::File, 0o644).expect("made");
    store.write(ino, b"from elsewhere").expect("written");
    let file = vfs.open(&context, At::Cwd, "/f", OpenFlags::RDWR, 0).expect("opens");
    let mut buffer = [0; 20];
    assert_eq!(file.read(&mut buffer), Ok(14));
    assert_eq!(&buffer[..14], b"from elsewhere");
    assert_eq!(file.lseek(Seek::Data(3)), Ok(3));
    file.fallocate(0, 0, 100).expect("grown");
    drop(file);
    evict_all(&vfs);
    assert_eq!(vfs.stat(&context, At::Cwd, "/f", FOLLOW).map(|stat| stat.size), Ok(100));
}

#[test]
fn what_is_in_use_stays() {
    let (vfs, mut context, store) = mounted(MapOptions::default());
    for path in ["/d", "/d/e", "/idle"] {
        vfs.mkdir(&context, At::Cwd, path, 0o777).expect("made");
    }
    let file = vfs.open(&context, At::Cwd, "/d/e/f", NEW, 0o644).expect("made");
    file.write(b"open").expect("written");
    vfs.chdir(&mut context, At::Cwd, "/d").expect("entered");
    // The root, d, e and f.
    evict_down_to(&vfs, &store, 4);
    let again = vfs.open(&context, At::Cwd, "e/f", OpenFlags::RDWR, 0).expect("opens");
    assert!(again.dentry().ptr_eq(file.dentry()));
    vfs.unlink(&context, At::Cwd, "e/f").expect("removed");
    evict_all(&vfs);
    assert_eq!(again.pread(&mut [0; 4], 0), Ok(4));
    assert_eq!(vfs.d_path(&context, again.dentry(), 100), Ok(b"/d/e/f (deleted)".to_vec()));
    let linked = vfs.link(&context, At::Dir(again.dentry()), "", At::Cwd, "/g", Walk::EMPTY_PATH);
    assert_eq!(linked.err(), Some(Error::NoEntry), "the last name is gone for good");
    drop((file, again));
    vfs.chdir(&mut context, At::Cwd, "/").expect("entered");
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn numbers_that_were_handed_out_stay() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let made = vfs.open(&context, At::Cwd, "/f", NEW, 0o644).expect("made");
    let ino = made.dentry().ino();
    made.write(b"kept").expect("written");
    vfs.remember(made.dentry(), 2);
    drop(made);
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    evict_all(&vfs);
    let known = vfs.iget(ino).expect("a server still counts it");
    assert_eq!(vfs.getattr(&known).size, 4);
    drop(known);
    vfs.forget(ino, 1);
    evict_all(&vfs);
    assert!(vfs.iget(ino).is_some());
    vfs.forget(ino, 1);
    assert!(vfs.iget(ino).is_none());
    evict_down_to(&vfs, &store, 1);
}

/// An eviction takes up its candidates many at a time, and comes to each of them later: what has happened to one of them
/// in between counts. Here that is long: each has times that are stored, slowly, before it goes.
fn meanwhile(happens: impl Fn(&Vfs, &Context, usize)) -> (Vfs, Context, MapHandle) {
    const FILES: usize = 8;
    let (vfs, context, store) = mounted(MapOptions::default());
    for i in 0..FILES {
        vfs.open(&context, At::Cwd, format!("/f{i}"), NEW, 0o644).expect("made").write(b"x").expect("written");
    }
    // Their times are not stored yet.
    let wait = Wait::Sleep(Duration::from_millis(20));
    store.set_delays(vec![Delay { call: Some(Call::Setattr), wait }]);
    let before = store.calls(Call::Setattr);
    std::thread::scope(|scope| {
        let evictor = scope.spawn(|| vfs.evict(usize::MAX).expect("evicted"));
        while store.calls(Call::Setattr) == before {
            assert!(!evictor.is_finished(), "nothing had to be stored");
            std::thread::yield_now();
        }
        (0..FILES).for_each(|i| happens(&vfs, &context, i));
        evictor.join().expect("ends");
    });
    store.set_delays(Vec::new());
    (vfs, context, store)
}

#[test]
fn a_file_that_is_removed_while_it_is_to_be_evicted_stays_with_its_user() {
    let open = Mutex::new(Vec::new());
    let (vfs, context, store) = meanwhile(|vfs, context, i| {
        let name = format!("/f{i}");
        let file = vfs.open(context, At::Cwd, &name, OpenFlags::RDWR, 0).expect("opens");
        vfs.unlink(context, At::Cwd, &name).expect("removed");
        open.lock().expect("no panic").push(file);
    });
    evict_all(&vfs);
    for file in open.into_inner().expect("no panic") {
        assert_eq!(file.pwrite(b"yz", 1), Ok(2));
        assert_eq!((file.stat().nlink, file.stat().size), (0, 3));
        let mut bytes = [0; 3];
        assert_eq!(file.pread(&mut bytes, 0).map(|_| bytes), Ok(*b"xyz"));
    }
    assert_eq!(vfs.stat(&context, At::Cwd, "/f0", FOLLOW).err(), Some(Error::NoEntry));
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn a_number_handed_out_while_its_inode_is_to_be_evicted_stays() {
    let numbers = Mutex::new(Vec::new());
    let (vfs, _context, store) = meanwhile(|vfs, context, i| {
        let file = vfs.open(context, At::Cwd, format!("/f{i}"), OpenFlags::RDWR, 0).expect("opens");
        vfs.remember(file.dentry(), 1);
        numbers.lock().expect("no panic").push(file.dentry().ino());
    });
    evict_all(&vfs);
    for ino in numbers.into_inner().expect("no panic") {
        assert!(vfs.iget(ino).is_some(), "a server counts {ino}");
        vfs.forget(ino, 1);
    }
    evict_down_to(&vfs, &store, 1);
}

/// Somebody else makes a further name of a file while its last known one is removed here: it is one file all the same, and
/// who has its number and has it open keeps it.
#[test]
fn a_file_that_others_save_from_its_removal_stays_one() {
    let (vfs, context, store) = mounted(MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    vfs.mkdir(&context, At::Cwd, "/e", 0o755).expect("made");
    let file = vfs.open(&context, At::Cwd, "/d/a", NEW, 0o644).expect("made");
    let (ino, e) = (file.dentry().ino(), vfs.stat(&context, At::Cwd, "/e", FOLLOW).expect("there").ino);
    vfs.remember(file.dentry(), 1);
    let parked = store.park(Call::Remove);
    std::thread::scope(|scope| {
        let unlinking = scope.spawn(|| vfs.unlink(&context, At::Cwd, "/d/a"));
        parked.reached();
        store.link(ino, e, "b").expect("linked");
        drop(parked);
        unlinking.join().expect("no panic").expect("removed");
    });
    assert_eq!(vfs.stat(&context, At::Cwd, "/e/b", FOLLOW).map(|stat| (stat.ino, stat.nlink)), Ok((ino, 1)));
    assert_eq!(vfs.iget(ino).map(|known| vfs.getattr(&known).nlink), Some(1));
    assert_eq!(file.stat().nlink, 1);
    vfs.unlink(&context, At::Cwd, "/e/b").expect("removed");
    evict_all(&vfs);
    assert_eq!(file.pwrite(b"kept", 0), Ok(4));
    vfs.forget(ino, 1);
    drop(file);
    evict_down_to(&vfs, &store, 1);
}

/// A removed directory that still shows what others have taken out of it holds itself.
#[test]
fn a_tree_is_taken_down_with_what_others_have_removed() {
    let (vfs, context, store) = mounted(MapOptions::default());
    drop(vfs.open(&context, At::Cwd, "/f", NEW, 0o644).expect("made"));
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    vfs.link(&context, At::Cwd, "/f", At::Cwd, "/d/l", FOLLOW).expect("linked");
    let d = vfs.stat(&context, At::Cwd, "/d", FOLLOW).expect("there").ino;
    store.remove(d, "l").expect("removed");
    vfs.rmdir(&context, At::Cwd, "/d").expect("empty by now");
    drop((context, vfs));
    collect_until(|| store.cached_inodes() == 0);
}

/// Calls a function whenever it is charged, and is otherwise what it is made of.
struct Charged<F>(MapFs, F);

impl<F: Fn() + Send + Sync + 'static> Driver for Charged<F> {
    fn statfs(&self) -> StatFs {
        self.0.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        (self.1)();
        self.0.charge(what)
    }
    fn release(&self, what: Charge) {
        self.0.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.0.data(ino)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.0.backing()
    }
}

/// An open directory may be listed while the tree goes. A name that is taken into the cache then goes with it.
#[test]
fn what_is_listed_while_the_tree_is_taken_down_goes_with_it() {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    store.create(ROOT, "f", FileKind::File, 0o644).expect("made");
    let last = Arc::new(Mutex::new(None::<Vfs>));
    let listed = {
        let last = last.clone();
        move || {
            let Some(vfs) = last.lock().expect("no panic").take() else { return };
            let dropped = std::thread::spawn(move || drop(vfs));
            // Long enough, unless it waits for this.
            (0..10_000).take_while(|_| !dropped.is_finished()).for_each(|_| std::thread::yield_now());
        }
    };
    let vfs = Vfs::new(Charged(driver, listed)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let root = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    *last.lock().expect("no panic") = Some(vfs);
    root.readdir_plus(&context, 0, |_, _| true).expect("lists");
    assert!(last.lock().expect("no panic").is_none(), "taken down meanwhile");
    drop((root, context));
    collect_until(|| store.cached_inodes() == 0);
}

/// What the store is being told of while the tree is taken down goes with the rest, and nobody hears that it was not done.
#[test]
fn what_the_store_is_told_of_beside_umount_is_done() {
    type Change = fn(&Vfs, &Context, At<'_>) -> Result<()>;
    let rename: Change = |vfs, context, d| vfs.rename(context, d, "a", d, "new", RenameFlags::empty());
    let replace: Change = |vfs, context, d| vfs.rename(context, d, "a", d, "b", RenameFlags::empty());
    let exchange: Change = |vfs, context, d| vfs.rename(context, d, "a", d, "b", RenameFlags::EXCHANGE);
    let cases: [(Call, Change, &[&str]); 5] = [
        (Call::Create, |vfs, context, d| vfs.mkdir(context, d, "new", 0o755).map(drop), &["a", "b", "new"]),
        (Call::Link, |vfs, context, d| vfs.link(context, d, "a", d, "new", FOLLOW).map(drop), &["a", "b", "new"]),
        (Call::Rename, rename, &["b", "new"]),
        (Call::Rename, replace, &["b"]),
        (Call::Rename, exchange, &["a", "b"]),
    ];
    for (call, change, then) in cases {
        let (vfs, context, _) = mounted(MapOptions::default());
        vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
        let driver = MapFs::new(MapOptions::default());
        let store = driver.handle();
        vfs.mount(&context, At::Cwd, "/m", driver).expect("mounted");
        let dir = vfs.mkdir(&context, At::Cwd, "/m/d", 0o755).expect("made");
        for path in ["/m/d/a", "/m/d/b"] {
            drop(vfs.open(&context, At::Cwd, path, NEW, 0o644).expect("made"));
        }
        // Nothing is left for umount to store, which may have to wait for the call.
        assert_eq!(vfs.sync(), Ok(()));
        let parked = store.park(call);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| change(&vfs, &context, At::Dir(&dir)));
            parked.reached();
            let umount = scope.spawn(|| vfs.umount(&context, At::Cwd, "/m"));
            let dev = |path| vfs.stat(&context, At::Cwd, path, FOLLOW).expect("there").dev;
            while dev("/m") != dev("/") {
                std::thread::yield_now();
            }
            // Long enough for it to close the tree, which is next; if it has not, this shows nothing.
            (0..10_000).take_while(|_| !umount.is_finished()).for_each(|_| std::thread::yield_now());
            drop(parked);
            assert_eq!((changer.join().expect("no panic"), umount.join().expect("no panic")), (Ok(()), Ok(())));
        });
        let left = store.node(dir.ino()).expect("there").names;
        assert!(left.keys().map(|name| &**name).eq(then.iter().map(|name| name.as_bytes())), "{call:?}: {left:?}");
        drop(dir);
        collect_until(|| store.cached_inodes() == 0);
    }
}

#[test]
fn everything_is_stored_when_the_tree_is_taken_down() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/f", NEW, 0o644).expect("made");
    file.write(b"x").expect("written");
    let gone = vfs.open(&context, At::Cwd, "/gone", NEW, 0o644).expect("made");
    vfs.unlink(&context, At::Cwd, "/gone").expect("removed");
    let (stat, root) = (file.stat(), vfs.stat(&context, At::Cwd, "/", FOLLOW).expect("there"));
    drop((context, vfs));
    assert_eq!(store.node(stat.ino).map(|node| (node.attr.mtime, node.attr.ctime)), Ok((stat.mtime, stat.ctime)));
    assert_eq!(store.node(ROOT).map(|node| node.attr.mtime), Ok(root.mtime));
    assert_eq!(store.nameless().len(), 1, "still open");
    drop((file, gone));
    collect_until(|| store.cached_inodes() == 0 && store.nameless().is_empty());
}

#[test]
fn nobody_waits_for_an_eviction_to_find_a_number() {
    let (vfs, context, _store) = mounted(MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    vfs.mount(&context, At::Cwd, "/m", driver).expect("mounted");
    vfs.open(&context, At::Cwd, "/m/f", NEW, 0o644).expect("made").write(b"x").expect("written");
    let parked = store.park(Call::Setattr);
    std::thread::scope(|scope| {
        let evictor = scope.spawn(|| vfs.evict(usize::MAX));
        parked.reached();
        assert!(vfs.iget(u64::MAX).is_none());
        drop(parked);
        evictor.join().expect("no panic").expect("evicted");
        let parked = store.park(Call::Setattr);
        let umounting = scope.spawn(|| vfs.umount(&context, At::Cwd, "/m"));
        parked.reached();
        assert!(vfs.iget(u64::MAX).is_none());
        drop(parked);
        umounting.join().expect("no panic").expect("taken down");
    });
}

#[test]
fn what_others_change_is_seen() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let stat = |path: &str| vfs.stat(&context, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    let d = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
    assert_eq!(stat("/d/f"), Err(Error::NoEntry));
    let f = store.create(d, "f", FileKind::File, 0o600).expect("made");
    assert_eq!(stat("/d/f"), Ok(f), "made");
    store.chmod(f, 0o644).expect("changed");
    assert_eq!(vfs.stat(&context, At::Cwd, "/d/f", FOLLOW).map(|stat| stat.mode), Ok(0o644));
    store.write(f, b"longer").expect("written");
    assert_eq!(vfs.stat(&context, At::Cwd, "/d/f", FOLLOW).map(|stat| stat.size), Ok(6));
    store.rename((d, b"f"), (ROOT, b"g"), RenameFlags::empty()).expect("moved");
    assert_eq!((stat("/d/f"), stat("/g")), (Err(Error::NoEntry), Ok(f)), "moved");
    store.link(f, d, "again").expect("linked");
    assert_eq!(vfs.stat(&context, At::Cwd, "/g", FOLLOW).map(|stat| stat.nlink), Ok(2));
    assert_eq!(stat("/d/again"), Ok(f));
    store.remove(ROOT, "g").expect("removed");
    assert_eq!(stat("/g"), Err(Error::NoEntry), "removed");
    assert_eq!(vfs.unlink(&context, At::Cwd, "/d/again"), Ok(()));
    let sub = store.create(d, "sub", FileKind::Directory, 0o755).expect("made");
    assert_eq!(vfs.stat(&context, At::Cwd, "/d", FOLLOW).map(|stat| stat.nlink), Ok(3), "a directory more");
    store.create(sub, "x", FileKind::File, 0o644).expect("made");
    assert_eq!(vfs.unlink(&context, At::Cwd, "/d/sub/x"), Ok(()), "a name never looked at");
    store.chmod(d, 0).expect("closed");
    let user = context.clone().with_credentials(Credentials::user(1, 1, &[]));
    assert_eq!(vfs.stat(&user, At::Cwd, "/d/sub", FOLLOW).err(), Some(Error::Access));
    assert_same(&seen(&vfs, &context), &stored(&store), "at the end");
}

#[test]
fn names_that_others_have_made_are_in_the_way() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for name in ["f", "g", "h"] {
        assert_eq!(vfs.stat(&context, At::Cwd, name, FOLLOW).err(), Some(Error::NoEntry));
    }
    let f = store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
    assert_eq!(vfs.mkdir(&context, At::Cwd, "/f", 0o755).err(), Some(Error::Exists));
    store.create(ROOT, "g", FileKind::File, 0o600).expect("made");
    let opened = vfs.open(&context, At::Cwd, "/g", OpenFlags::RDWR | OpenFlags::CREAT, 0o644);
    assert_eq!(opened.map(|file| file.stat().mode).ok(), Some(0o600), "opened, not made");
    store.remove(ROOT, "f").expect("removed");
    assert_eq!(vfs.unlink(&context, At::Cwd, "/f"), Err(Error::NoEntry));
    let made = vfs.mkdir(&context, At::Cwd, "/f", 0o755).expect("free again");
    assert_ne!(made.ino(), f);
    let h = store.create(ROOT, "h", FileKind::Directory, 0o700).expect("made");
    assert_eq!(vfs.rename(&context, At::Cwd, "/f", At::Cwd, "/h", RenameFlags::NOREPLACE), Err(Error::Exists));
    assert_eq!(vfs.rename(&context, At::Cwd, "/f", At::Cwd, "/h", RenameFlags::empty()), Ok(()));
    assert!(store.node(h).is_err(), "replaced and forgotten");
    assert_same(&seen(&vfs, &context), &stored(&store), "at the end");
}

/// Whatever the change counts say: who answers EEXIST says that the name is there.
#[test]
fn a_name_that_is_in_the_way_is_asked_for_again() {
    let (vfs, context, store) = mounted(MapOptions::default());
    drop(vfs.open(&context, At::Cwd, "/f", NEW, 0o600).expect("made"));
    let asked = |call, change: &dyn Fn() -> pando_vfs::Result<()>| {
        assert_eq!(vfs.stat(&context, At::Cwd, "/new", FOLLOW).err(), Some(Error::NoEntry));
        let before = store.calls(Call::Lookup);
        store.inject(Fault::Nth { call: Some(call), after: 0, error: Error::Exists });
        let changed = change();
        assert_eq!(vfs.stat(&context, At::Cwd, "/new", FOLLOW).is_ok(), changed.is_ok());
        (changed, store.calls(Call::Lookup) - before)
    };
    let refused = (Err(Error::Exists), 1);
    assert_eq!(asked(Call::Create, &|| vfs.mkdir(&context, At::Cwd, "/new", 0o755).map(drop)), refused);
    assert_eq!(asked(Call::Link, &|| vfs.link(&context, At::Cwd, "/f", At::Cwd, "/new", FOLLOW).map(drop)), refused);
    let noreplace = RenameFlags::NOREPLACE;
    assert_eq!(asked(Call::Rename, &|| vfs.rename(&context, At::Cwd, "/f", At::Cwd, "/new", noreplace)), refused);
    let open = || vfs.open(&context, At::Cwd, "/new", OpenFlags::RDWR | OpenFlags::CREAT, 0o600).map(drop);
    assert_eq!(asked(Call::Create, &open), (Ok(()), 1));
}

#[test]
fn a_directory_under_two_names_is_had_under_one() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let d = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
    store.link_directory(d, ROOT, "again").expect("damaged");
    let ino = |path| vfs.stat(&context, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    assert_eq!((ino("/d"), ino("/again"), ino("/d")), (Ok(d), Err(Error::Stale), Ok(d)));
}

#[test]
fn directories_that_others_move_have_one_place() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for path in ["/a", "/b", "/a/d", "/a/d/e"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    let ino = |path: &str| vfs.stat(&context, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    let (a, b, d, e) = (ino("/a").unwrap(), ino("/b").unwrap(), ino("/a/d").unwrap(), ino("/a/d/e").unwrap());
    let open = vfs.open(&context, At::Cwd, "/a/d", OpenFlags::DIRECTORY, 0).expect("opens");
    store.rename((a, b"d"), (b, b"moved"), RenameFlags::empty()).expect("moved");
    assert_eq!(ino("/b/moved/e"), Ok(e), "the new place is looked at first");
    assert_eq!(ino("/a/d"), Err(Error::NoEntry));
    assert_eq!(vfs.d_path(&context, open.dentry(), 100), Ok(b"/b/moved".to_vec()));
    assert_eq!(vfs.stat(&context, At::Dir(open.dentry()), "..", FOLLOW).map(|stat| stat.ino), Ok(b));
    // The places change roles: what was above is below.
    store.rename((d, b"e"), (ROOT, b"e"), RenameFlags::empty()).expect("moved");
    store.rename((b, b"moved"), (e, b"d"), RenameFlags::empty()).expect("moved");
    let below = vfs.stat(&context, At::Dir(open.dentry()), "e", FOLLOW);
    assert_eq!(below.err(), Some(Error::NoEntry));
    assert_eq!(ino("/e/d"), Ok(d));
    assert_eq!(vfs.d_path(&context, open.dentry(), 100), Ok(b"/e/d".to_vec()));
    evict_all(&vfs);
    assert_same(&seen(&vfs, &context), &stored(&store), "at the end");
}

#[test]
fn a_cached_place_never_closes_a_circle() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for path in ["/x", "/x/y"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    let x = vfs.open(&context, At::Cwd, "/x", OpenFlags::DIRECTORY, 0).expect("opens");
    let y = vfs.open(&context, At::Cwd, "/x/y", OpenFlags::DIRECTORY, 0).expect("opens");
    let (x_ino, y_ino) = (x.dentry().ino(), y.dentry().ino());
    store.rename((x_ino, b"y"), (ROOT, b"y"), RenameFlags::empty()).expect("moved");
    store.rename((ROOT, b"x"), (y_ino, b"x"), RenameFlags::empty()).expect("moved");
    // Seen from y, whose own move nobody has noticed yet.
    let found = vfs.stat(&context, At::Dir(y.dentry()), "x", FOLLOW).map(|stat| stat.ino);
    assert!(matches!(found, Err(Error::Stale)), "{found:?}");
    assert_eq!(vfs.stat(&context, At::Cwd, "/y/x", FOLLOW).map(|stat| stat.ino), Ok(x_ino));
    assert_eq!(vfs.d_path(&context, x.dentry(), 100), Ok(b"/y/x".to_vec()));
    let none = RenameFlags::empty();
    assert_eq!(vfs.rename(&context, At::Cwd, "/y", At::Cwd, "/y/x/y", none), Err(Error::Invalid));
}

#[test]
fn a_directory_that_others_have_emptied_can_be_removed() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for path in ["/d", "/over", "/moves"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    for dir in ["/d", "/over"] {
        let dir = vfs.mkdir(&context, At::Cwd, format!("{dir}/below"), 0o755).expect("made");
        vfs.open(&context, At::Dir(&dir), "f", NEW, 0o644).expect("made");
    }
    for name in ["d", "over"] {
        let dir = store.lookup(ROOT, name).expect("there").expect("there");
        let below = store.lookup(dir, "below").expect("there").expect("there");
        store.remove(below, "f").expect("removed");
        store.remove(dir, "below").expect("removed");
    }
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d"), Ok(()));
    assert_eq!(vfs.rename(&context, At::Cwd, "/moves", At::Cwd, "/over", RenameFlags::empty()), Ok(()));
    assert_eq!(names(&vfs, &context, "/"), ["over"]);
    assert_same(&seen(&vfs, &context), &stored(&store), "at the end");
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn extended_attributes_that_others_change_are_seen() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/f", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    let f = store.lookup(ROOT, "f").expect("a directory").expect("there");
    let get = || vfs.getxattr(&root, At::Cwd, "/f", "user.k", Walk::empty());
    assert_eq!(get(), Err(Error::NoData));
    store.set_xattr(f, b"user.k", Some(b"1")).expect("set");
    assert_eq!(get(), Ok(b"1".to_vec()));
    vfs.setxattr(&root, At::Cwd, "/f", "user.own", "2", XattrFlags::CREATE, Walk::empty()).expect("set");
    store.set_xattr(f, b"user.k", None).expect("removed");
    assert_eq!(get(), Err(Error::NoData));
    assert_eq!(vfs.listxattr(&root, At::Cwd, "/f", Walk::empty()), Ok(vec![b"user.own".to_vec()]));
    // And those of the directory itself.
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/", "user.k", Walk::empty()), Err(Error::NoData));
    store.set_xattr(ROOT, b"user.k", Some(b"3")).expect("set");
    assert!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()).is_ok());
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/", "user.k", Walk::empty()), Ok(b"3".to_vec()));
}

/// Somebody else makes the target after the cache was sure that there is none, and before the store is told.
#[test]
fn a_rename_that_may_not_replace_replaces_nothing_that_others_have_made() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/f", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    let f = store.lookup(ROOT, "f").expect("a directory");
    let parked = store.park(Call::Rename);
    let others = std::thread::scope(|scope| {
        let rename = scope.spawn(|| vfs.rename(&root, At::Cwd, "/f", At::Cwd, "/g", RenameFlags::NOREPLACE));
        parked.reached();
        let others = store.create(ROOT, "g", FileKind::File, 0o640).expect("made");
        drop(parked);
        assert_eq!(rename.join().expect("ends"), Err(Error::Exists));
        others
    });
    assert_eq!((store.lookup(ROOT, "f"), store.lookup(ROOT, "g")), (Ok(f), Ok(Some(others))));
    assert_eq!(vfs.stat(&root, At::Cwd, "/g", Walk::empty()).map(|stat| stat.ino), Ok(others));
    assert!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()).is_ok());
}
