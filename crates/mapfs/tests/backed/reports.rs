//! Reports of single names and inodes cost one request each, and none is lost.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{
    At, ChangeByOthers, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Result, Subscriber, Vfs, Walk,
};

use crate::support::{assert_same, mounted, seen, stored};

const ROOT: u64 = MapHandle::ROOT;
const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT).union(OpenFlags::EXCL);
const ALL_CALLS: [Call; 3] = [Call::Lookup, Call::Getattr, Call::Scan];

fn mode(vfs: &Vfs, context: &Context, path: &str) -> Result<u32> {
    vfs.stat(context, At::Cwd, path, Walk::empty()).map(|stat| stat.mode)
}

fn calls(store: &MapHandle) -> [u64; 3] {
    ALL_CALLS.map(|call| store.calls(call))
}

/// Seen to fail: a report of a name makes the directory read again.
#[test]
fn a_report_costs_one_request() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let files: Vec<u64> =
        (0..100).map(|n| store.create(ROOT, n.to_string(), FileKind::File, 0o600).expect("made")).collect();
    let mode = |n: usize| mode(&vfs, &context, &format!("/{n}"));
    let all = || (0..100).map(mode).collect::<Vec<_>>();
    assert_eq!(all(), vec![Ok(0o600); 100]);
    assert_eq!(vfs.stat(&context, At::Cwd, "/", Walk::empty()).map(|stat| stat.nlink), Ok(2));

    let before = calls(&store);
    store.chmod(files[50], 0o640).expect("changed");
    let mut expected = vec![Ok(0o600); 100];
    expected[50] = Ok(0o640);
    assert_eq!(all(), expected);
    assert_eq!(calls(&store), [before[0], before[1] + 1, before[2]], "one inode");

    let before = calls(&store);
    store.remove(ROOT, "51").expect("removed");
    expected[51] = Err(Error::NoEntry);
    assert_eq!(all(), expected);
    assert_eq!(calls(&store), [before[0] + 1, before[1] + 1, before[2]], "one name, and the directory itself");

    let before = calls(&store);
    store.create(ROOT, "51", FileKind::File, 0o644).expect("made");
    expected[51] = Ok(0o644);
    assert_eq!(all(), expected);
    assert_eq!(calls(&store), [before[0] + 1, before[1] + 1, before[2]], "a name that did not exist");
}

/// Seen to fail: the report is forgotten with the error.
#[test]
fn a_request_that_fails_is_repeated() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let f = store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
    assert_eq!(mode(&vfs, &context, "/f"), Ok(0o600));
    store.chmod(f, 0o640).expect("changed");
    store.inject(Fault::Nth { call: Some(Call::Getattr), after: 0, error: Error::Quota });
    assert_eq!(mode(&vfs, &context, "/f"), Err(Error::Quota));
    assert_eq!(mode(&vfs, &context, "/f"), Ok(0o640));
}

/// A thread that asks while another one is asking waits for the answer.
///
/// Seen to fail: it gets the attributes from before the report.
#[test]
fn nothing_older_than_a_report_is_shown_while_its_answer_is_awaited() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let dir = store.create(ROOT, "dir", FileKind::Directory, 0o700).expect("made");
    store.create(dir, "f", FileKind::File, 0o600).expect("made");
    let stranger = Context::new(&vfs, Credentials::user(1, 1, &[]));
    let asks: [&(dyn Fn() -> bool + Sync); 3] = [
        &|| mode(&vfs, &context, "/dir") == Ok(0o755),
        &|| vfs.open(&context, At::Cwd, "/dir", OpenFlags::RDONLY, 0).map(|dir| dir.stat().mode) == Ok(0o755),
        &|| mode(&vfs, &stranger, "/dir/f") == Ok(0o600),
    ];
    assert_eq!((mode(&vfs, &context, "/dir/f"), mode(&vfs, &stranger, "/dir/f")), (Ok(0o600), Err(Error::Access)));
    for is_new in asks {
        store.chmod(dir, 0o700).expect("changed");
        assert!(!is_new());
        store.chmod(dir, 0o755).expect("changed");
        let parked = store.park(Call::Getattr);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| mode(&vfs, &context, "/dir"));
            parked.reached();
            let second = scope.spawn(is_new);
            std::thread::sleep(Duration::from_millis(50));
            drop(parked);
            assert_eq!(first.join().expect("no panic"), Ok(0o755));
            assert!(second.join().expect("no panic"), "the second thread sees the report, too");
        });
    }
}

/// Others change what a thread is loading. The answer that it gets is from before.
///
/// Seen to fail: the number of reports is not compared after the load, for names and for inodes.
#[test]
fn reports_during_a_load_are_not_lost() {
    type Change = fn(&MapHandle, u64) -> Result<()>;
    let changes: [(Change, Result<u32>); 3] = [
        (|store, f| store.chmod(f, 0o640), Ok(0o640)),
        (|store, _| store.remove(ROOT, "f"), Err(Error::NoEntry)),
        (|store, _| store.rename((ROOT, b"g"), (ROOT, b"f"), RenameFlags::empty()), Ok(0o444)),
    ];
    for (change, expected) in changes {
        let (vfs, context, store) = mounted(MapOptions::default());
        let f = store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
        store.create(ROOT, "g", FileKind::File, 0o444).expect("made");
        let parked = store.park_reply(Call::Lookup);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| mode(&vfs, &context, "/f"));
            parked.reached();
            change(&store, f).expect("changed");
            drop(parked);
            let _ = loading.join().expect("no panic");
        });
        assert_eq!(mode(&vfs, &context, "/f"), expected);
    }
}

/// The attributes of a directory that is being loaded change with its names.
///
/// Seen to fail: the report of a name is not counted as one of its directory.
#[test]
fn a_name_that_others_make_in_a_directory_during_its_load_shows() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let d = store.create(ROOT, "d", FileKind::Directory, 0o755).expect("made");
    let nlink = || vfs.stat(&context, At::Cwd, "/d", Walk::empty()).map(|stat| stat.nlink);
    let parked = store.park_reply(Call::Lookup);
    std::thread::scope(|scope| {
        let loading = scope.spawn(nlink);
        parked.reached();
        store.create(d, "sub", FileKind::Directory, 0o755).expect("made");
        drop(parked);
        let _ = loading.join().expect("no panic");
    });
    assert_eq!(nlink(), Ok(3));
}

/// As above, with a name that does not exist when it is looked up.
#[test]
fn a_name_that_others_make_during_a_load_is_found() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let parked = store.park_reply(Call::Lookup);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| mode(&vfs, &context, "/f"));
        parked.reached();
        store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
        drop(parked);
        let _ = loading.join().expect("no panic");
    });
    assert_eq!(mode(&vfs, &context, "/f"), Ok(0o600));
}

/// The name is locked while the tree changes it, so the report cannot drop it.
///
/// Seen to fail: the number of reports of inodes is not compared after a create.
#[test]
fn reports_during_a_change_are_not_lost() {
    type Change = fn(&MapHandle, u64) -> Result<()>;
    let changes: [Change; 3] = [
        |store, f| store.chmod(f, 0o640),
        |store, _| store.remove(ROOT, "f"),
        |store, f| store.rename((ROOT, b"f"), (ROOT, b"g"), RenameFlags::empty()).and_then(|()| store.chmod(f, 0o400)),
    ];
    for change in changes {
        let (vfs, context, store) = mounted(MapOptions::default());
        let parked = store.park_reply(Call::Create);
        std::thread::scope(|scope| {
            let making = scope.spawn(|| vfs.open(&context, At::Cwd, "/f", NEW, 0o600).map(drop));
            parked.reached();
            let f = store.lookup(ROOT, "f").expect("found").expect("made");
            change(&store, f).expect("changed");
            drop(parked);
            making.join().expect("no panic").expect("made");
        });
        assert_same(&seen(&vfs, &context), &stored(&store), "after the change");
    }
}

#[test]
fn subscribers_are_told_after_the_cache() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let subscriber: Arc<Subscriber> = Arc::new({
        let told = told.clone();
        move |change: ChangeByOthers<'_>| told.lock().expect("no panic").push(format!("{change:?}"))
    });
    vfs.subscribe(&subscriber);
    let f = store.create(ROOT, "f", FileKind::File, 0o600).expect("made");
    store.chmod(f, 0o640).expect("changed");
    let take = || std::mem::take(&mut *told.lock().expect("no panic"));
    assert_eq!(take(), [format!("Name {{ dir: {ROOT}, name: {:?} }}", b"f"), format!("Inode({f})")]);
    // The tree's own changes are not reported.
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    assert_eq!(take(), [""; 0]);
    drop(subscriber);
    store.create(ROOT, "g", FileKind::File, 0o600).expect("made");
    assert_eq!(take(), [""; 0]);
}

/// Reports may come at any time, also of inodes and names that nobody knows, and after the end.
#[test]
fn reports_of_anything_do_no_harm() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = store.create(ROOT, "file", FileKind::File, 0o600).expect("made");
    let dir = store.create(ROOT, "dir", FileKind::Directory, 0o755).expect("made");
    assert_eq!(mode(&vfs, &context, "/file"), Ok(0o600));
    for inode in [ROOT, file, dir, 12345, u64::MAX] {
        for name in [&b"file"[..], b"", b"."] {
            store.report(&[(inode, name)], &[inode]);
            assert_same(&seen(&vfs, &context), &stored(&store), "after a report");
        }
    }
    drop((vfs, context));
    store.report(&[(ROOT, b"file")], &[ROOT, file]);
}
