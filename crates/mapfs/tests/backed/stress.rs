//! Many threads on a store that is slow and sometimes fails, with concurrent evictions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use pando_mapfs::{Call, Delay, Fault, MapOptions, Message, Wait};
use pando_vfs::{At, Error, FileKind, OpenFlags, RenameFlags, Walk};

use crate::{
    random::run_beside,
    support::{assert_same, evict_down_to, mounted, names, seed, seen, stored},
};

const THREADS: u64 = 8;
const OPERATIONS: usize = 1500;

#[test]
fn cache_and_store_agree_after_stress() {
    let seed = seed();
    let delays = vec![
        Delay { call: None, wait: Wait::Spin(Duration::from_micros(5)) },
        Delay { call: Some(Call::Lookup), wait: Wait::Sleep(Duration::from_micros(20)) },
    ];
    let faults = vec![
        Fault::Random { call: None, one_in: 20, seed, error: Error::Quota },
        Fault::Lost { message: Message::Reply, call: None, one_in: 20, seed },
    ];
    let scans_add_attributes = seed.is_multiple_of(2);
    let (vfs, root, store) =
        mounted(MapOptions { delays, faults, inodes: Some(10_000), scans_add_attributes, ..MapOptions::default() });
    run_beside(
        (&vfs, &root),
        seed,
        THREADS,
        // EIO says that a change whose reply was lost is not in effect.
        &[Error::Stale, Error::TryAgain],
        |done| done == OPERATIONS,
        || {
            let evicted = vfs.evict(64);
            assert!(evicted.is_ok() || evicted == Err(Error::Quota), "{evicted:?}");
        },
    );
    assert!(store.calls_failed() > 50, "only {} failures", store.calls_failed());
    store.clear_faults();
    store.set_delays(Vec::new());
    assert_same(&seen(&vfs, &root), &stored(&store), "after the storm");
    evict_down_to(&vfs, &store, 1);
    assert_same(&seen(&vfs, &root), &stored(&store), "loaded anew");
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.last().cloned() {
        let before = todo.len();
        for name in names(&vfs, &root, &format!("{dir}/")) {
            let path = format!("{dir}/{name}");
            let stat = vfs.stat(&root, At::Cwd, &path, Walk::NOFOLLOW).expect("there");
            if stat.kind == FileKind::Directory {
                todo.push(path);
            } else {
                vfs.unlink(&root, At::Cwd, &path).expect("removed");
            }
        }
        if todo.len() == before {
            todo.pop();
            if !dir.is_empty() {
                vfs.rmdir(&root, At::Cwd, &dir).expect("empty");
            }
        }
    }
    evict_down_to(&vfs, &store, 1);
    assert_eq!(store.inodes(), 1, "nothing is left but the root");
}

/// Each thread moves and removes its own links while they are evicted. Each link is found, whatever
/// is evicted.
#[test]
fn moving_links_are_found_during_evictions() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/f", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    store.set_delays(vec![Delay { call: None, wait: Wait::Spin(Duration::from_micros(20)) }]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let evictor = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                vfs.evict(64).expect("evicted");
            }
        });
        let work = |id: u64| {
            let [old, new] = ["old", "new"].map(|name| format!("/{name}{id}"));
            for _ in 0..OPERATIONS {
                vfs.link(&root, At::Cwd, "/f", At::Cwd, &old, Walk::empty()).expect("linked");
                vfs.rename(&root, At::Cwd, &old, At::Cwd, &new, RenameFlags::empty()).expect("moved");
                vfs.unlink(&root, At::Cwd, &new).expect("removed");
            }
        };
        let threads: Vec<_> = (0..4).map(|id| scope.spawn(move || work(id))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        evictor.join().expect("evicts");
        assert!(results.iter().all(Result::is_ok), "a thread has failed");
    });
    assert_same(&seen(&vfs, &root), &stored(&store), "at the end");
}
