//! The shutdown of a tree: everything is stored, and nothing is left in the cache.

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

/// A removed directory whose cached entries were removed by others holds itself.
#[test]
fn shutdown_frees_entries_removed_by_others() {
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

/// An open directory may be listed while its tree is shut down. A name that is cached meanwhile is
/// freed with the tree.
#[test]
fn entries_listed_during_shutdown_are_freed() {
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
            // Long enough, unless the shutdown waits for this call.
            (0..10_000).take_while(|_| !dropped.is_finished()).for_each(|_| std::thread::yield_now());
        }
    };
    let vfs = Vfs::new(Watched(driver, listed)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let root = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    *last.lock().expect("no panic") = Some(vfs);
    root.readdir_plus(&context, 0, |_, _| true).expect("lists");
    assert!(last.lock().expect("no panic").is_none(), "shut down meanwhile");
    drop((root, context));
    collect_until(|| store.cached_inodes() == 0);
}

/// A change that is being committed during the umount succeeds, and its result is removed with the
/// rest.
#[test]
fn changes_committed_during_umount_succeed() {
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
        // Nothing is left for the umount to store. Otherwise it might have to wait for the call.
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
            // Long enough for the umount to close the tree, which is its next step. If it has not,
            // this run shows nothing.
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

/// A thread removes a name while the tree is being shut down and already closed. It gets success
/// exactly if the name was removed.
#[test]
fn removal_during_umount_reports_its_outcome() {
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
            // The remover calls this too.
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
                // The tree is no longer mounted. The thread that asks for the backing now has
                // closed the tree, and is about to empty it.
                let (vfs, context, dir) = (vfs.clone(), context.clone(), dir.clone());
                let parked = store.park_reply(Call::Remove);
                let remover = thread::spawn(move || remove(&vfs, &context, At::Dir(&dir)));
                while store.calls(Call::Remove) == 0 && !remover.is_finished() {
                    thread::yield_now();
                }
                *removing.lock().expect("no panic") = Some((parked, remover));
                true
            }
        }));
        let outcome = thread::scope(|scope| {
            let umount = thread::Builder::new().name("umount".into());
            let umount = umount.spawn_scoped(scope, || vfs.umount(&context, At::Cwd, "/m")).expect("a thread");
            let (parked, remover) = loop {
                thread::yield_now();
                if let Some(removing) = removing.lock().expect("no panic").take() {
                    break removing;
                }
            };
            // Long enough for the umount to empty the tree, which is its next step. If it has not,
            // this run shows nothing.
            (0..10_000).take_while(|_| !umount.is_finished()).for_each(|_| thread::yield_now());
            drop(parked);
            assert_eq!(umount.join().expect("no panic"), Ok(()));
            remover.join().expect("no panic")
        });
        let is_removed = store.lookup(ROOT, "name") == Ok(None);
        assert_eq!(outcome.is_ok(), is_removed, "{kind:?}: {outcome:?}");
        drop(vfs);
        collect_until(|| store.cached_inodes() == 0);
    }
}

/// A umount that cannot store something returns the error and keeps the tree mounted.
#[test]
fn failed_umount_keeps_the_tree() {
    let (vfs, context, store) = mounted_below();
    vfs.open(&context, At::Cwd, "/m/f", NEW, 0o644).expect("made").write(b"x").expect("written");
    store.inject(Fault::Nth { call: Some(Call::Setattr), after: 0, error: Error::Io });
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Err(Error::Io));
    assert_eq!(vfs.stat(&context, At::Cwd, "/m/f", FOLLOW).map(|stat| stat.size), Ok(1));
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
}

#[test]
fn shutdown_stores_everything() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/f", NEW, 0o644).expect("made");
    file.write(b"x").expect("written");
    let gone = vfs.open(&context, At::Cwd, "/gone", NEW, 0o644).expect("made");
    vfs.unlink(&context, At::Cwd, "/gone").expect("removed");
    let (stat, root) = (file.stat(), vfs.stat(&context, At::Cwd, "/", FOLLOW).expect("there"));
    drop((context, vfs));
    assert_eq!(store.node(stat.ino).map(|node| (node.attr.mtime, node.attr.ctime)), Ok((stat.mtime, stat.ctime)));
    assert_eq!(store.node(ROOT).map(|node| node.attr.mtime), Ok(root.mtime));
    assert_eq!(store.unnamed_inodes().len(), 1, "still open");
    drop((file, gone));
    collect_until(|| store.cached_inodes() == 0 && store.unnamed_inodes().is_empty());
}
