//! Changes that others make in the store are noticed, and nothing is lost or replaced because of
//! them.

use pando_mapfs::{Call, Fault, MapFs, MapHandle, MapOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    Access, At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Vfs, Walk, XattrFlags,
    trace::{TraceOp, TraceOptions},
};

use crate::support::{
    Rng, assert_same, collect_until, evict_all, evict_down_to, mounted, names, seed, seen, stored, with_reports,
};

const FOLLOW: Walk = Walk::empty();
const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT).union(OpenFlags::EXCL);
const ROOT: u64 = MapHandle::ROOT;

#[test]
fn foreign_changes_are_noticed() {
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

/// Including changes that they make during the refresh after an earlier change.
#[test]
fn foreign_changes_during_a_refresh_are_noticed() {
    let (vfs, context, store) = with_reports(false, MapOptions::default());
    let f = store.create(ROOT, "f", FileKind::File, 0o640).expect("made");
    let mode = || vfs.stat(&context, At::Cwd, "/f", FOLLOW).map(|stat| stat.mode);
    assert_eq!(mode(), Ok(0o640));
    store.create(ROOT, "other", FileKind::File, 0o640).expect("made");
    let parked = store.park_reply(Call::Lookup);
    std::thread::scope(|scope| {
        let noticing = scope.spawn(mode);
        parked.reached();
        store.chmod(f, 0o600).expect("changed");
        drop(parked);
        noticing.join().expect("no panic").expect("there");
    });
    assert_eq!(mode(), Ok(0o600));
}

/// A report for a large directory drops the names that are not in use. What is in use is shown as
/// the store has it.
///
/// Seen to fail: all names are requested again; an inode that only a server counts keeps its name;
/// its extended attributes are not requested again; an open file that a server counts loses its
/// name.
#[test]
fn report_of_a_large_directory_drops_its_idle_names() {
    /// More than are requested again.
    const FILES: usize = 5000;
    let (vfs, context, store) = with_reports(false, MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    let path = |i: usize| format!("/d/f{i}");
    for i in 0..FILES {
        drop(vfs.open(&context, At::Cwd, path(i), NEW, 0o640).expect("made"));
    }
    vfs.link(&context, At::Cwd, path(0), At::Cwd, "/d/link", FOLLOW).expect("linked");
    vfs.mkdir(&context, At::Cwd, "/d/sub", 0o755).expect("made");
    let mut within = context.clone();
    vfs.chdir(&mut within, At::Cwd, "/d/sub").expect("there");
    let open = |i| vfs.open(&context, At::Cwd, path(i), OpenFlags::RDONLY, 0).expect("there");
    let (used, counted) = ([3, FILES / 2, FILES - 1], [7, FILES - 2]);
    let files = used.map(open);
    vfs.exports().remember(files[0].dentry(), 1).expect("the only tree");
    let numbers = counted.map(|i| {
        let file = open(i);
        vfs.setxattr(&context, At::Cwd, path(i), "user.x", b"old", XattrFlags::empty(), FOLLOW).expect("set");
        vfs.exports().remember(file.dentry(), 1).expect("the only tree");
        file.dentry().ino()
    });
    vfs.sync().expect("times are stored");
    let changed = files.iter().map(|file| file.dentry().ino()).chain([numbers[1]]);
    changed.for_each(|ino| store.chmod(ino, 0o600).expect("changed"));
    store.set_xattr(numbers[0], b"user.x", Some(b"new")).expect("changed");
    store.remove(store.lookup(ROOT, "d").expect("there").expect("there"), "f5").expect("removed");

    let mode = |i: usize| vfs.stat(&context, At::Cwd, path(i), FOLLOW).map(|stat| stat.mode);
    let calls = store.calls(Call::Lookup);
    assert_eq!((mode(5), mode(6)), (Err(Error::NoEntry), Ok(0o640)));
    // The names in the root. The names in use in "d", and the three of these that have changed
    // again. The two that were asked for.
    assert_eq!(store.calls(Call::Lookup) - calls, 1 + 4 + 2);
    // Also the root, both directories, "f6", and "f0" if it was in use as "link".
    collect_until(|| store.cached_inodes() <= 5 + (used.len() + counted.len()) as u64);
    assert_eq!(vfs.getcwd(&within, 4096), Ok(b"/d/sub".to_vec()));
    assert_eq!(vfs.getxattr(&context, At::Cwd, path(7), "user.x", FOLLOW).as_deref(), Ok(&b"new"[..]));
    for (ino, mode) in numbers.into_iter().zip([0o640, 0o600]) {
        let known = vfs.exports().ilookup(ino).expect("counted");
        assert_eq!(vfs.getattr(&known).map(|stat| stat.mode), Ok(mode));
        vfs.exports().forget(ino, 1);
    }
    for (i, file) in used.into_iter().zip(files) {
        assert_eq!((vfs.getattr(file.dentry()).map(|stat| stat.mode), mode(i)), (Ok(0o600), Ok(0o600)));
        assert_eq!(vfs.d_path(&context, file.dentry(), 4096).as_deref(), Ok(path(i).as_bytes()));
    }
    assert_same(&seen(&vfs, &context), &stored(&store), "at the end");
}

#[test]
fn foreign_names_cause_eexist() {
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

/// Whatever the change counts say: a store that returns EEXIST says that the name exists.
#[test]
fn eexist_drops_the_negative_dentry() {
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
fn directory_with_two_names_is_stale_under_one() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let d = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
    store.link_directory(d, ROOT, "again").expect("damaged");
    let ino = |path| vfs.stat(&context, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    assert_eq!((ino("/d"), ino("/again"), ino("/d")), (Ok(d), Err(Error::Stale), Ok(d)));
}

/// Also for threads that have walked the path before: within the backed tree, from it into one in
/// memory, and from one in memory into it.
///
/// Seen to fail: each of the three prefixes cached.
#[test]
fn prefixes_through_backed_trees_are_not_cached() {
    let memory = || MemFs::new(MemOptions::default());
    let way = |vfs: &Vfs, store: &MapHandle, top: &str, below: &str| {
        let root = Context::new(vfs, Credentials::root());
        let user = root.clone().with_credentials(Credentials::user(1, 1, &[]));
        let ino = |path: &str| vfs.stat(&user, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
        let is_there = |path: &str| (0..6).all(|_| ino(path).is_ok());
        let (a, file) = (ino(&format!("{top}/a")).expect("there"), format!("{top}/a/{below}/f"));
        drop(vfs.open(&root, At::Cwd, &file, NEW, 0o644).expect("made"));
        assert!(is_there(&file));
        store.chmod(a, 0).expect("closed");
        assert_eq!(ino(&file), Err(Error::Access), "{file}");
        store.chmod(a, 0o755).expect("opened");
        assert!(is_there(&file));
        store.rename((ROOT, b"a"), (ROOT, b"z"), RenameFlags::empty()).expect("moved");
        assert_eq!(ino(&file), Err(Error::NoEntry), "{file}");
        store.rename((ROOT, b"z"), (ROOT, b"a"), RenameFlags::empty()).expect("moved back");
    };
    let make = |vfs: &Vfs, root: &Context, paths: &[&str]| {
        for path in paths {
            vfs.mkdir(root, At::Cwd, path, 0o755).expect("made");
        }
    };
    let (vfs, root, store) = mounted(MapOptions::default());
    make(&vfs, &root, &["/a", "/a/b", "/a/m"]);
    vfs.mount(&root, At::Cwd, "/a/m", memory()).expect("mounted");
    way(&vfs, &store, "", "b");
    way(&vfs, &store, "", "m");
    let vfs = Vfs::new(memory()).expect("a new tree");
    let (root, driver) = (Context::new(&vfs, Credentials::root()), MapFs::new(MapOptions::default()));
    let store = driver.handle();
    make(&vfs, &root, &["/m"]);
    vfs.mount(&root, At::Cwd, "/m", driver).expect("mounted");
    make(&vfs, &root, &["/m/a", "/m/a/b"]);
    way(&vfs, &store, "/m", "b");
}

#[test]
fn foreign_directory_moves_leave_one_place() {
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
    // The directories change roles: the upper one is now below the other.
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
fn foreign_moves_never_cause_a_cycle() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for path in ["/x", "/x/y"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    let x = vfs.open(&context, At::Cwd, "/x", OpenFlags::DIRECTORY, 0).expect("opens");
    let y = vfs.open(&context, At::Cwd, "/x/y", OpenFlags::DIRECTORY, 0).expect("opens");
    let (x_ino, y_ino) = (x.dentry().ino(), y.dentry().ino());
    store.rename((x_ino, b"y"), (ROOT, b"y"), RenameFlags::empty()).expect("moved");
    store.rename((ROOT, b"x"), (y_ino, b"x"), RenameFlags::empty()).expect("moved");
    // Looked up from y, whose own move has not been noticed yet.
    let found = vfs.stat(&context, At::Dir(y.dentry()), "x", FOLLOW).map(|stat| stat.ino);
    assert!(matches!(found, Err(Error::Stale)), "{found:?}");
    assert_eq!(vfs.stat(&context, At::Cwd, "/y/x", FOLLOW).map(|stat| stat.ino), Ok(x_ino));
    assert_eq!(vfs.d_path(&context, x.dentry(), 100), Ok(b"/y/x".to_vec()));
    let none = RenameFlags::empty();
    assert_eq!(vfs.rename(&context, At::Cwd, "/y", At::Cwd, "/y/x/y", none), Err(Error::Invalid));
}

#[test]
fn directory_emptied_by_others_can_be_removed() {
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
fn foreign_xattr_changes_are_noticed() {
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
    // Including those of the directory itself.
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/", "user.k", Walk::empty()), Err(Error::NoData));
    store.set_xattr(ROOT, b"user.k", Some(b"3")).expect("set");
    assert!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()).is_ok());
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/", "user.k", Walk::empty()), Ok(b"3".to_vec()));
}

/// Another machine makes the target after the cache was sure that there is none, and before the
/// rename is committed.
#[test]
fn noreplace_respects_a_foreign_target() {
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

/// The store has made a directory, others have removed it before the maker published it, and its
/// parent was removed after it. The maker must forget the inode.
#[test]
fn create_removed_with_its_directory_is_forgotten() {
    let shown = (0..100).any(|number| {
        let (vfs, context, store) = mounted(MapOptions::default());
        let dir = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
        let name = format!("x{number}");
        let parked = store.park_reply(Call::Create);
        let gone_meanwhile = std::thread::scope(|scope| {
            let maker = scope.spawn(|| vfs.mkdir(&context, At::Dir(&dir), &name, 0o755).map(drop));
            parked.reached();
            store.remove(dir.ino(), &name).expect("removed");
            let remover = scope.spawn(|| vfs.rmdir(&context, At::Cwd, "/d"));
            // The remover may have to wait for the maker, since both names may have the same lock.
            (0..100_000).take_while(|_| !remover.is_finished()).for_each(|_| std::thread::yield_now());
            let gone = remover.is_finished();
            drop(parked);
            assert_eq!(remover.join().expect("no panic"), Ok(()));
            gone.then(|| assert_eq!(maker.join().expect("no panic"), Err(Error::NoEntry))).is_some()
        });
        drop(dir);
        evict_down_to(&vfs, &store, 1);
        assert_eq!(store.inodes(), 1);
        gone_meanwhile
    });
    assert!(shown, "names of one directory have different locks");
}

/// No thread here holds the directory while others move it. The path that the trace has cached for
/// it must not be used.
#[test]
fn traced_path_follows_foreign_moves() {
    let (vfs, context, store) = mounted(MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/a", 0o755).expect("made");
    let ops = [TraceOp::Access].into_iter().collect();
    let mut tracer = vfs.trace(TraceOptions { ops, ..TraceOptions::default() }).expect("begins");
    let mut traced = |path| {
        let dir = vfs.lookup(&context, At::Cwd, path, FOLLOW).expect("there");
        vfs.access(&context, At::Dir(&dir), ".", Access::EXEC, FOLLOW).expect("allowed");
        let mut paths = Vec::new();
        tracer.poll(usize::MAX, |event| paths.push(String::from_utf8_lossy(&event.path).into_owned()));
        paths
    };
    assert_eq!(traced("/a"), ["/a/."]);
    evict_down_to(&vfs, &store, 1);
    store.rename((ROOT, b"a"), (ROOT, b"b"), RenameFlags::empty()).expect("moved");
    assert_eq!(traced("/b"), ["/b/."]);
}

/// One change by others does not cost a call for each cached name.
///
/// Seen to fail: a look-up for each name.
#[test]
fn refresh_asks_for_all_names_in_one_call() {
    let (vfs, context, store) = with_reports(false, MapOptions::default());
    let files: Vec<u64> =
        (0..200).map(|n| store.create(ROOT, n.to_string(), FileKind::File, 0o600).expect("made")).collect();
    let modes = || {
        let mode = |n| vfs.stat(&context, At::Cwd, format!("/{n}"), FOLLOW).expect("there").mode;
        (0..files.len()).map(mode).collect::<Vec<_>>()
    };
    assert_eq!(modes(), [0o600; 200]);
    store.chmod(files[50], 0o640).expect("changed");
    store.remove(ROOT, "51").expect("removed");
    store.rename((ROOT, b"52"), (ROOT, b"51"), RenameFlags::empty()).expect("moved");
    let before = store.calls(Call::Lookup);
    assert_eq!(vfs.stat(&context, At::Cwd, "/52", FOLLOW).err(), Some(Error::NoEntry));
    // All names; then each of the three that have changed; then the name that was asked for.
    assert_eq!(store.calls(Call::Lookup) - before, 5);
    assert_same(&seen(&vfs, &context), &stored(&store), "afterwards");
}

/// No walk leads to the inode of an open file.
///
/// Seen to fail: the directory of its name is not checked; a file whose name others have moved is
/// never asked for again.
#[test]
fn open_file_shows_changes_by_others() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let e = vfs.mkdir(&context, At::Cwd, "/e", 0o755).expect("made");
    let file = vfs.open(&context, At::Cwd, "/f", NEW, 0o600).expect("made");
    let f = file.dentry().ino();
    let mode = || vfs.getattr(file.dentry()).map(|stat| stat.mode);
    let calls = || Call::ALL.map(|call| store.calls(call));
    store.chmod(f, 0o640).expect("changed");
    assert_eq!(mode(), Ok(0o640));
    let before = calls();
    assert_eq!((mode(), calls()), (Ok(0o640), before), "nothing is asked without a change");
    store.rename((ROOT, b"f"), (e.ino(), b"g"), RenameFlags::empty()).expect("moved");
    store.chmod(f, 0o644).expect("changed");
    assert_eq!(mode(), Ok(0o644));
    store.chmod(f, 0o664).expect("changed");
    assert_eq!(mode(), Ok(0o664), "its name has left the cache");
    store.chmod(e.ino(), 0o711).expect("changed");
    assert_eq!(vfs.getattr(&e).map(|stat| stat.mode), Ok(0o711));
    store.remove(e.ino(), "g").expect("removed");
    assert_eq!(mode(), Ok(0o664), "removed, and still open");
}

/// Others undo a change while its acknowledgement is under way, and a walk meanwhile reads the
/// directory again. The change then publishes a name that is out of date.
///
/// Seen to fail: the published name stays; a report of a locked name is taken for done.
#[test]
fn change_that_others_undo_before_it_is_published_is_noticed() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let d = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
    let stat = |path: &str| vfs.stat(&context, At::Cwd, path, FOLLOW).map(drop);
    assert_eq!((stat("/d/f"), stat("/d/x")), (Err(Error::NoEntry), Err(Error::NoEntry)));
    std::thread::scope(|scope| {
        let reply = store.park_reply(Call::Create);
        let making = scope.spawn(|| vfs.mkdir(&context, At::Cwd, "/d/f", 0o755).map(drop));
        reply.reached();
        store.remove(d, "f").expect("removed");
        let reading = scope.spawn(|| stat("/d/x"));
        // It has to wait for the maker if the directory and the name have the same lock.
        (0..100_000).take_while(|_| !reading.is_finished()).for_each(|_| std::thread::yield_now());
        drop(reply);
        assert_eq!(reading.join().expect("no panic"), Err(Error::NoEntry));
        assert_eq!(making.join().expect("no panic"), Ok(()));
    });
    assert_eq!(stat("/d/f"), Err(Error::NoEntry), "removed by others");
    assert_eq!(vfs.mkdir(&context, At::Cwd, "/d/f", 0o755).map(drop), Ok(()));
    std::thread::scope(|scope| {
        let reply = store.park_reply(Call::Remove);
        let removing = scope.spawn(|| vfs.rmdir(&context, At::Cwd, "/d/f"));
        reply.reached();
        store.create(d, "f", FileKind::File, 0o600).expect("made");
        let reading = scope.spawn(|| stat("/d/x"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(reply);
        assert_eq!(removing.join().expect("no panic"), Ok(()));
        assert_eq!(reading.join().expect("no panic"), Err(Error::NoEntry));
    });
    assert_eq!(stat("/d/f"), Ok(()), "made by others");
}

/// The path-prefix cache knows `/a`, which is in memory, and leads to the root of the mounted tree.
///
/// Seen to fail: nothing asks whether that root has changed.
#[test]
fn changes_of_a_mounted_root_are_noticed() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/a", 0o755).expect("made");
    vfs.mkdir(&context, At::Cwd, "/a/m", 0o755).expect("made");
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    vfs.mount(&context, At::Cwd, "/a/m", driver).expect("mounted");
    for mode in [0o700, 0o711, 0o755] {
        store.chmod(ROOT, mode).expect("changed");
        assert_eq!(vfs.stat(&context, At::Cwd, "/a/m", FOLLOW).map(|stat| stat.mode), Ok(mode));
        let root = vfs.lookup(&context, At::Cwd, "/a/m", FOLLOW).expect("there");
        store.chmod(ROOT, mode | 0o1000).expect("changed");
        let stat = vfs.stat(&context, At::Dir(&root), "", Walk::EMPTY_PATH);
        assert_eq!(stat.map(|stat| stat.mode), Ok(mode | 0o1000), "an empty path");
    }
}

/// Seen to fail: the directory cannot be used while one of its names cannot be looked up.
#[test]
fn name_that_cannot_be_looked_up_is_dropped_in_a_refresh() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let f = store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
    store.create(ROOT, "g", FileKind::File, 0o600).expect("made");
    let stat = |path: &str| vfs.stat(&context, At::Cwd, path, FOLLOW).map(|stat| stat.mode);
    assert_eq!((stat("/f"), stat("/g")), (Ok(0o600), Ok(0o600)));
    store.chmod(f, 0o640).expect("changed");
    // The first look-up is that of all names.
    store.inject(Fault::Nth { call: Some(Call::Lookup), after: 1, error: Error::Io });
    assert_eq!((stat("/g"), stat("/f")), (Ok(0o600), Ok(0o640)));
}

/// While threads change the tree, look things up and evict, another user changes the same names in
/// the store. Then the cache shows what the store has.
#[test]
fn changes_here_and_by_others_at_once_leave_the_cache_right() {
    const ROUNDS: usize = 30;
    const STEPS: usize = 200;
    for round in 0..ROUNDS {
        let (vfs, context, store) = mounted(MapOptions::default());
        let d = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
        let path = |rng: &mut Rng| format!("{}/{}", ["", "/d"][rng.below(2) as usize], rng.below(4));
        let seed = seed() + round as u64;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (vfs, context) = (&vfs, &context);
                scope.spawn(move || {
                    let mut rng = Rng(seed << 2 | thread);
                    for _ in 0..STEPS {
                        let (one, two) = (path(&mut rng), path(&mut rng));
                        // Any of these may fail.
                        match rng.below(8) {
                            0 | 1 => drop(vfs.open(context, At::Cwd, &one, NEW, 0o600)),
                            2 => drop(vfs.unlink(context, At::Cwd, &one)),
                            3 => drop(vfs.rename(context, At::Cwd, &one, At::Cwd, &two, RenameFlags::empty())),
                            4 => drop(vfs.chmod(context, At::Cwd, &one, 0o640, FOLLOW)),
                            5 => drop(vfs.link(context, At::Cwd, &one, At::Cwd, &two, FOLLOW)),
                            6 => drop(vfs.evict(rng.below(4) as usize)),
                            _ => drop(vfs.stat(context, At::Cwd, &one, FOLLOW)),
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut rng = Rng(seed << 2 | 2);
                for _ in 0..STEPS {
                    let dir = [ROOT, d][rng.below(2) as usize];
                    let (name, other) = (rng.below(4).to_string(), rng.below(4).to_string());
                    match rng.below(5) {
                        0 => drop(store.create(dir, &name, FileKind::File, 0o604)),
                        1 => drop(store.remove(dir, &name)),
                        2 => drop(store.rename((ROOT, name.as_bytes()), (d, other.as_bytes()), RenameFlags::empty())),
                        3 => drop(store.rename((d, name.as_bytes()), (ROOT, other.as_bytes()), RenameFlags::EXCHANGE)),
                        _ => {
                            if let Ok(Some(ino)) = store.lookup(dir, &name) {
                                let _ = store.chmod(ino, 0o444);
                            }
                        }
                    }
                }
            });
        });
        assert_same(&seen(&vfs, &context), &stored(&store), &format!("round {round}"));
    }
}
