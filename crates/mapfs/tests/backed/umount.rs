//! A tree is taken down: all is stored, and nothing is left in the cache.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use pando_mapfs::{Call, Fault, MapFs, MapHandle, MapOptions};
use pando_vfs::{At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Result, Vfs, Walk};

use crate::support::{Used, Watched, collect_until, mounted, mounted_below};

const FOLLOW: Walk = Walk::empty();
const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT).union(OpenFlags::EXCL);
const ROOT: u64 = MapHandle::ROOT;

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

/// An open directory may be listed while the tree goes. A name that is taken into the cache then goes with it.
#[test]
fn what_is_listed_while_the_tree_is_taken_down_goes_with_it() {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    store.create(ROOT, "f", FileKind::File, 0o644).expect("made");
    let last = Arc::new(Mutex::new(None::<Vfs>));
    let listed = {
        let last = last.clone();
        move |used| {
            if used != Used::Charge {
                return;
            }
            let Some(vfs) = last.lock().expect("no panic").take() else { return };
            let dropped = std::thread::spawn(move || drop(vfs));
            // Long enough, unless it waits for this.
            (0..10_000).take_while(|_| !dropped.is_finished()).for_each(|_| std::thread::yield_now());
        }
    };
    let vfs = Vfs::new(Watched(driver, listed)).expect("a new tree");
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
        let (vfs, context, store) = mounted_below();
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

/// Who removes something while the tree is taken down, which is closed already, hears that it is removed if it is.
#[test]
fn what_is_removed_while_the_tree_goes_is_said_to_be() {
    type Remove = fn(&Vfs, &Context, At<'_>) -> Result<()>;
    let removals: [(FileKind, Remove); 2] = [
        (FileKind::File, |vfs, context, d| vfs.unlink(context, d, "name")),
        (FileKind::Directory, |vfs, context, d| vfs.rmdir(context, d, "name")),
    ];
    for (kind, remove) in removals {
        let (vfs, context, _) = mounted(MapOptions::default());
        vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
        let driver = MapFs::new(MapOptions::default());
        let store = driver.handle();
        store.create(ROOT, "name", kind, 0o755).expect("made");
        let closed = Arc::new(Mutex::new(None::<Box<dyn FnMut() -> bool + Send>>));
        let visited = closed.clone();
        let visit = move |used| {
            if used != Used::Backing {
                return;
            }
            // The remover comes here, too.
            let Ok(mut closed) = visited.try_lock() else { return };
            if closed.as_mut().is_some_and(|closed| closed()) {
                *closed = None;
            }
        };
        vfs.mount(&context, At::Cwd, "/m", Watched(driver, visit)).expect("mounted");
        let dir = vfs.lookup(&context, At::Cwd, "/m", FOLLOW).expect("there");
        vfs.lookup(&context, At::Cwd, "/m/name", FOLLOW).expect("there");

        let removing = Arc::new(Mutex::new(None));
        *closed.lock().expect("no panic") = Some(Box::new({
            let (vfs, context, store, removing) = (vfs.clone(), context.clone(), store.clone(), removing.clone());
            move || {
                let dev = |path| vfs.stat(&context, At::Cwd, path, FOLLOW).expect("there").dev;
                if thread::current().name() != Some("umount") || dev("/m") != dev("/") {
                    return false;
                }
                // It is not mounted any more: who comes to the backing now has closed it, and is about to empty it.
                let (vfs, context, dir) = (vfs.clone(), context.clone(), dir.clone());
                let parked = store.park_answer(Call::Remove);
                let remover = thread::spawn(move || remove(&vfs, &context, At::Dir(&dir)));
                while store.calls(Call::Remove) == 0 && !remover.is_finished() {
                    thread::yield_now();
                }
                *removing.lock().expect("no panic") = Some((parked, remover));
                true
            }
        }));
        let told = thread::scope(|scope| {
            let umount = thread::Builder::new().name("umount".into());
            let umount = umount.spawn_scoped(scope, || vfs.umount(&context, At::Cwd, "/m")).expect("a thread");
            let (parked, remover) = loop {
                thread::yield_now();
                if let Some(removing) = removing.lock().expect("no panic").take() {
                    break removing;
                }
            };
            // Long enough for it to empty the tree, which is next; if it has not, this shows nothing.
            (0..10_000).take_while(|_| !umount.is_finished()).for_each(|_| thread::yield_now());
            drop(parked);
            assert_eq!(umount.join().expect("no panic"), Ok(()));
            remover.join().expect("no panic")
        });
        let is_removed = store.lookup(ROOT, "name") == Ok(None);
        assert_eq!(told.is_ok(), is_removed, "{kind:?}: {told:?}");
        drop(vfs);
        collect_until(|| store.cached_inodes() == 0);
    }
}

/// Who takes a tree away hears of what cannot be stored, and has the tree still.
#[test]
fn a_tree_that_cannot_be_stored_stays() {
    let (vfs, context, store) = mounted_below();
    vfs.open(&context, At::Cwd, "/m/f", NEW, 0o644).expect("made").write(b"x").expect("written");
    store.inject(Fault::Nth { call: Some(Call::Setattr), after: 0, error: Error::Io });
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Err(Error::Io));
    assert_eq!(vfs.stat(&context, At::Cwd, "/m/f", FOLLOW).map(|stat| stat.size), Ok(1));
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
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
