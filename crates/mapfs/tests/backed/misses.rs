//! Concurrent misses (P7), and their independence from other names (P2).

use std::{sync::mpsc, thread, time::Duration};

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{At, Error, FileKind, OpenFlags, Result, Stat, Walk, introspection::waiting_for_loads};

use crate::support::{evict_down_to, mounted};

const THREADS: usize = 8;

/// `THREADS` threads want the same name at the same time. Returns the result of each, or `None` if
/// it panicked, and the number of look-ups in the store.
fn together(fault: Option<Fault>) -> (Vec<Option<Result<Stat>>>, u64) {
    let (vfs, root, store) = mounted(MapOptions::default());
    store.create(MapHandle::ROOT, "f", FileKind::File, 0o640).expect("made");
    // This walk notices the foreign change of the directory. Otherwise all threads would first wait
    // for that refresh, and a thread that has not woken up yet would be taken for one that waits
    // for the name. The name itself has not been looked up yet.
    assert_eq!(vfs.stat(&root, At::Cwd, "/nothing", Walk::empty()).err(), Some(Error::NoEntry));
    let parked = store.park(Call::Lookup);
    fault.into_iter().for_each(|fault| store.inject(fault));
    let before = store.calls(Call::Lookup);
    let results = thread::scope(|scope| {
        let look = || vfs.stat(&root, At::Cwd, "/f", Walk::empty());
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(look)).collect();
        parked.reached();
        while waiting_for_loads(&vfs) < THREADS - 1 {
            thread::yield_now();
        }
        drop(parked);
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    (results, store.calls(Call::Lookup) - before)
}

#[test]
fn concurrent_misses_share_one_load() {
    let (found, asked) = together(None);
    assert!(matches!(found[0], Some(Ok(_))) && found.iter().all(|one| *one == found[0]), "{found:?}");
    assert_eq!(asked, 1);
}

#[test]
fn concurrent_misses_share_the_error() {
    let error = Error::Quota;
    let results = together(Some(Fault::Nth { call: Some(Call::Lookup), after: 0, error }));
    assert_eq!(results, (vec![Some(Err(error)); THREADS], 1));
}

/// The other threads do not wait forever: one of them asks next.
#[test]
fn p14_panicking_load_is_retried() {
    let (results, asked) = together(Some(Fault::Panic { call: Call::Lookup }));
    let found: Vec<_> = results.into_iter().flatten().collect();
    assert!(found.len() == THREADS - 1 && found[0].is_ok() && found.iter().all(|one| *one == found[0]), "{found:?}");
    assert_eq!(asked, 2);
}

/// While the look-up of one name takes long, other names are made and removed in the same
/// directory, even those with the same name lock: there are more names than locks.
#[test]
fn slow_load_does_not_block_other_names() {
    const NAMES: usize = 2000;
    let (vfs, root, store) = mounted(MapOptions::default());
    let parked = store.park(Call::Lookup);
    thread::scope(|scope| {
        let slow = scope.spawn(|| vfs.stat(&root, At::Cwd, "/slow", Walk::empty()).err());
        parked.reached();
        let (done, all_done) = mpsc::channel();
        let (vfs, root) = (&vfs, &root);
        scope.spawn(move || {
            for i in 0..NAMES {
                let name = format!("/n{i}");
                vfs.mknod(root, At::Cwd, &name, FileKind::File.to_mode() | 0o600, 0).expect("made");
                vfs.unlink(root, At::Cwd, &name).expect("removed");
            }
            done.send(()).expect("awaited");
        });
        // Only a hang takes this long. Then the slow look-up continues, and the test ends.
        let held_up = all_done.recv_timeout(Duration::from_secs(60)).is_err();
        drop(parked);
        assert!(!held_up, "somebody waits for a name that is not theirs");
        assert_eq!(slow.join().expect("ends"), Some(Error::NoEntry));
    });
}

/// The inode is changed through another name and evicted during its load. The old attributes must
/// not replace the new ones.
#[test]
fn load_from_before_an_eviction_is_discarded() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let cwd = At::Cwd;
    drop(vfs.open(&root, cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    vfs.mkdir(&root, cwd, "/d", 0o755).expect("made");
    drop(vfs.link(&root, cwd, "/a", cwd, "/d/b", Walk::empty()).expect("linked"));
    evict_down_to(&vfs, &store, 1);
    // In use, so that only the inode leaves the cache.
    let _used = vfs.lookup(&root, cwd, "/d", Walk::empty()).expect("there");
    let parked = store.park_reply(Call::Lookup);
    thread::scope(|scope| {
        let late = scope.spawn(|| vfs.stat(&root, cwd, "/a", Walk::empty()).map(|stat| stat.mode));
        parked.reached();
        vfs.chmod(&root, cwd, "/d/b", 0o640, Walk::empty()).expect("changed");
        evict_down_to(&vfs, &store, 2);
        drop(parked);
        assert_eq!(late.join().expect("ends"), Ok(0o640));
    });
}

/// Others change the name during the load, and another thread notices their change before the load
/// ends. The old result must not be cached, since no thread would look again.
#[test]
fn load_from_before_a_foreign_change_is_discarded() {
    for was_there in [false, true] {
        let (vfs, root, store) = mounted(MapOptions::default());
        let create = || store.create(MapHandle::ROOT, "f", FileKind::File, 0o640);
        let ino = was_there.then(|| create().expect("made"));
        let stat = |path| vfs.stat(&root, At::Cwd, path, Walk::empty()).map(|stat| stat.ino);
        assert_eq!(stat("/nothing"), Err(Error::NoEntry));
        let parked = store.park_reply(Call::Lookup);
        thread::scope(|scope| {
            let late = scope.spawn(|| stat("/f"));
            parked.reached();
            let now = match ino {
                Some(_) => store.remove(MapHandle::ROOT, "f").map_or_else(Err, |()| Err(Error::NoEntry)),
                None => Ok(create().expect("made")),
            };
            assert_eq!(stat("/nothing"), Err(Error::NoEntry));
            drop(parked);
            late.join().expect("ends").ok();
            assert_eq!(stat("/f"), now);
        });
    }
}

/// The number of negative dentries is bounded. Otherwise a caller that looks up more and more
/// missing names would fill the memory.
#[test]
fn negative_dentries_are_bounded() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let asked = |name: u32| {
        let before = store.calls(Call::Lookup);
        assert_eq!(vfs.stat(&root, At::Cwd, format!("/{name}"), Walk::empty()).err(), Some(Error::NoEntry));
        store.calls(Call::Lookup) - before
    };
    let most = (0..).find(|name| asked(*name) == 1 && asked(0) == 1).expect("it ends");
    assert!((1000..10_000).contains(&most) && asked(most) == 0, "{most}");
}

/// The name is removed during its load, after a listing has loaded it. The old binding must not be
/// restored.
#[test]
fn load_from_before_a_removal_is_discarded() {
    // So the listing needs no look-up, and does not wait for the one that is parked.
    let (vfs, root, store) = mounted(MapOptions { scans_add_attributes: true, ..MapOptions::default() });
    drop(vfs.open(&root, At::Cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    evict_down_to(&vfs, &store, 1);
    let parked = store.park_reply(Call::Lookup);
    thread::scope(|scope| {
        let late = scope.spawn(|| vfs.stat(&root, At::Cwd, "/a", Walk::empty()).err());
        parked.reached();
        let dir = vfs.open(&root, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
        dir.readdir_plus(&root, 0, |_, _| true).expect("lists");
        vfs.unlink(&root, At::Cwd, "/a").expect("removed");
        // So many negative dentries that the cache drops the one of this name.
        for i in 0..5000 {
            assert_eq!(vfs.stat(&root, At::Cwd, format!("/{i}"), Walk::empty()).err(), Some(Error::NoEntry));
        }
        drop(parked);
        assert_eq!(late.join().expect("ends"), Some(Error::NoEntry));
    });
}
