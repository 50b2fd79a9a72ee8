//! A store that fails. The caller gets the error, nothing has changed, and the next operation
//! succeeds.

use pando_mapfs::{Call, Fault, MapFs, MapHandle, MapOptions};
use pando_vfs::{At, Error, FileKind, OpenFlags, RenameFlags, Walk};

use crate::{
    EXACT_REPORTS,
    random::{carry_out, op},
    support::{Rng, assert_same, evict_down_to, mounted, seed, seen, stored},
};

const FAILURES: usize = 1000;

#[test]
fn each_kind_of_call_reports_its_failure() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let cwd = At::Cwd;
    let new = OpenFlags::RDWR | OpenFlags::CREAT;
    let file = vfs.open(&root, cwd, "/f", new, 0o644).expect("made");
    vfs.mkdir(&root, cwd, "/d", 0o755).expect("made");
    let fails = |call: Call, what: &dyn Fn() -> pando_vfs::Result<()>| {
        let tree = stored(&store);
        store.inject(Fault::Nth { call: Some(call), after: 0, error: Error::Quota });
        let failed_before = store.calls_failed();
        assert_eq!(what(), Err(Error::Quota), "{call:?}");
        assert_eq!(store.calls_failed(), failed_before + 1, "{call:?}");
        assert_same(&stored(&store), &tree, "the store");
        assert_same(&seen(&vfs, &root), &tree, "the namespace");
        assert_eq!(what(), Ok(()), "{call:?} the second time");
    };
    fails(Call::Lookup, &|| match vfs.stat(&root, cwd, "/nothing", Walk::empty()) {
        Err(Error::NoEntry) => Ok(()),
        other => other.map(drop),
    });
    fails(Call::Create, &|| vfs.mkdir(&root, cwd, "/made", 0o755).map(drop));
    fails(Call::Create, &|| vfs.open(&root, cwd, "/opened", new, 0o644).map(drop));
    fails(Call::Link, &|| vfs.link(&root, cwd, "/f", cwd, "/linked", Walk::empty()).map(drop));
    fails(Call::Rename, &|| vfs.rename(&root, cwd, "/linked", cwd, "/opened", RenameFlags::empty()));
    fails(Call::Rename, &|| vfs.rename(&root, cwd, "/d", cwd, "/made/d", RenameFlags::empty()));
    fails(Call::Remove, &|| vfs.unlink(&root, cwd, "/opened"));
    fails(Call::Remove, &|| vfs.rmdir(&root, cwd, "/made/d"));
    fails(Call::Setattr, &|| vfs.chmod(&root, cwd, "/f", 0o600, Walk::empty()));
    fails(Call::Write, &|| file.write(b"bytes").map(drop));
    fails(Call::Write, &|| file.truncate(3));
    fails(Call::Read, &|| file.pread(&mut [0; 9], 0).map(drop));
    fails(Call::Sync, &|| file.fsync());
    fails(Call::Sync, &|| vfs.sync());
    fails(Call::SetXattr, &|| {
        vfs.setxattr(&root, cwd, "/f", "user.k", "v", pando_vfs::XattrFlags::empty(), Walk::empty())
    });
    fails(Call::Scan, &|| {
        let dir = vfs.open(&root, cwd, "/", OpenFlags::DIRECTORY, 0)?;
        dir.readdir(0, |_| true)
    });
    assert_eq!(vfs.stat(&root, cwd, "/f", Walk::empty()).map(|stat| stat.kind), Ok(FileKind::File));
}

/// Waiting for the store or for a file's data under a guard panics, since it would delay
/// reclamation for all threads.
#[test]
#[cfg(debug_assertions)]
fn waiting_under_a_guard_panics() {
    let (vfs, root, _store) = mounted(MapOptions::default());
    let cwd = At::Cwd;
    let file = vfs.open(&root, cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
    let dir = vfs.open(&root, cwd, "/", OpenFlags::DIRECTORY, 0).expect("opened");
    let panics = |wait: &dyn Fn() -> pando_vfs::Result<()>, what: &str| {
        let _guard = pando_sync::pin();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).expect_err(what);
        let said = panic.downcast::<String>().expect("a message");
        assert_eq!(*said, format!("{what} may wait, and this thread holds a reclamation guard"));
    };
    panics(&|| file.pread(&mut [0; 9], 0).map(drop), "a file's data");
    panics(&|| file.pwrite(b"bytes", 0).map(drop), "a file's data");
    assert!(vfs.stat(&root, cwd, "/d", Walk::empty()).is_err(), "it is known not to be there");
    panics(&|| vfs.mkdir(&root, cwd, "/d", 0o755).map(drop), "a backing");
    panics(&|| dir.readdir(0, |_| true), "a backing");
    panics(&|| vfs.listxattr(&root, cwd, "/f", Walk::empty()).map(drop), "a backing");
}

#[test]
fn failed_eviction_keeps_dirty_times() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let file = vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
    file.write(b"x").expect("written");
    let stat = file.stat();
    drop(file);
    store.inject(Fault::Nth { call: Some(Call::Setattr), after: 0, error: Error::Io });
    assert_eq!(vfs.evict(usize::MAX), Err(Error::Io));
    assert_eq!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()), Ok(stat));
    evict_down_to(&vfs, &store, 1);
    assert_eq!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()), Ok(stat));
}

#[test]
fn times_of_foreign_removals_are_not_stored() {
    let (vfs, root, store) = mounted(MapOptions::default());
    vfs.mkdir(&root, At::Cwd, "/m", 0o755).expect("made");
    let driver = MapFs::new(MapOptions::default());
    let mounted = driver.handle();
    vfs.mount(&root, At::Cwd, "/m", driver).expect("mounted");
    for error in [Error::Stale, Error::NoEntry] {
        let gone = |path, store: &MapHandle| {
            let file = vfs.open(&root, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("opens");
            file.write(b"x").expect("written");
            store.inject(Fault::Nth { call: Some(Call::Setattr), after: 0, error });
            file
        };
        assert_eq!(gone("/f", &store).fsync(), Ok(()), "{error}");
        gone("/f", &store);
        assert_eq!(vfs.sync(), Ok(()), "{error}");
        gone("/m/f", &mounted);
    }
    assert_eq!(vfs.umount(&root, At::Cwd, "/m"), Ok(()));
}

#[test]
fn after_any_failure_cache_and_store_agree() {
    let mut rng = Rng(seed());
    let (vfs, root, store) = mounted(MapOptions::default());
    let mut failures = 0;
    let mut tree = stored(&store);
    while failures < FAILURES {
        let op = op(&mut rng);
        let failed_before = store.calls_failed();
        // Most operations make one or two calls, and some more after an eviction.
        store.inject(Fault::Nth { call: None, after: rng.below(5), error: Error::Quota });
        if rng.below(4) == 0 {
            let evicted = vfs.evict(1 + rng.below(30) as usize);
            assert!(evicted.is_ok() || evicted == Err(Error::Quota), "{evicted:?}");
        }
        let in_eviction = store.calls_failed() > failed_before;
        let result = carry_out(&vfs, &root, &op);
        let failed = !in_eviction && store.calls_failed() > failed_before;
        store.clear_faults();
        if failed {
            failures += 1;
            assert_eq!(result, Err(Error::Quota), "{op:?}");
            assert_same(&stored(&store), &tree, &format!("{op:?} has failed"));
        } else {
            assert_ne!(result, Err(Error::Quota), "{op:?}");
            tree = stored(&store);
        }
        if failed || in_eviction {
            assert_same(&seen(&vfs, &root), &tree, &format!("after {op:?}"));
        }
    }
    evict_down_to(&vfs, &store, 1);
    assert_same(&seen(&vfs, &root), &tree, "at the end");
}

/// Others have changed something, and the refresh finds an inode removed. The name does not exist
/// then, and this is no error.
#[test]
fn foreign_removal_during_refresh_is_no_error() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made"));
    let f = vfs.stat(&root, At::Cwd, "/f", Walk::empty()).expect("there").ino;
    let first = if EXACT_REPORTS { Call::Getattr } else { Call::Lookup };
    for call in [first, Call::Xattrs] {
        for error in [Error::Stale, Error::NoEntry] {
            assert_eq!(vfs.listxattr(&root, At::Cwd, "/f", Walk::empty()), Ok(Vec::new()));
            store.chmod(f, 0o600).expect("changed");
            let failed_before = store.calls_failed();
            store.inject(Fault::Nth { call: Some(call), after: 0, error });
            assert_eq!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()).map(|stat| stat.ino), Ok(f), "{call:?} {error}");
            assert_eq!(store.calls_failed(), failed_before + 1, "{call:?}");
        }
    }
}

/// An eviction fails halfway. Inodes that are used again afterwards must not be forgotten.
#[test]
fn reloaded_inode_is_not_forgotten() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let new = OpenFlags::RDWR | OpenFlags::CREAT;
    let names = ["/f", "/g"];
    for name in names {
        vfs.open(&root, At::Cwd, name, new, 0o644).expect("made").write(b"kept").expect("written");
    }
    store.inject(Fault::Nth { call: Some(Call::Setattr), after: 1, error: Error::Io });
    assert_eq!((vfs.evict(usize::MAX), store.cached_inodes()), (Err(Error::Io), 2));
    // A listing loads the evicted inode again.
    let dir = vfs.open(&root, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    dir.readdir_plus(&root, 0, |_, _| true).expect("lists");
    for name in names {
        let file = vfs.open(&root, At::Cwd, name, OpenFlags::RDWR, 0).expect("opens");
        vfs.unlink(&root, At::Cwd, name).expect("removed");
        assert_eq!(file.pread(&mut [0; 9], 0), Ok(4), "{name}");
    }
    drop(dir);
    evict_down_to(&vfs, &store, 1);
}

/// The root of a store exists even with a limit of no inodes.
#[test]
fn full_store_reports_no_free_inodes() {
    let (vfs, root, _) = mounted(MapOptions { inodes: Some(0), ..MapOptions::default() });
    let statfs = vfs.statfs(&root, At::Cwd, "/").expect("statfs");
    assert_eq!((statfs.files, statfs.ffree), (0, 0));
}
