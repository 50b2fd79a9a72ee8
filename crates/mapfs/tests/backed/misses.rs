//! Misses at the same time (P7), and beside what they must not hold up (P2).

use std::{sync::mpsc, time::Duration};

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{At, Error, FileKind, OpenFlags, Walk, probe::waiting_for_answers};

use crate::support::{evict_down_to, mounted};

const THREADS: usize = 8;

/// So many threads want the same name at the same time: the store is asked once. `one` says what each is told.
fn together<T: Send>(fault: Option<Error>, one: impl Fn(pando_vfs::Result<pando_vfs::Stat>) -> T + Sync) -> Vec<T> {
    let (vfs, root, store) = mounted(MapOptions::default());
    store.create(MapHandle::ROOT, "f", FileKind::File, 0o640).expect("made");
    // A walk through the directory: what has changed underneath is known from here on. (Or all would wait for that first,
    // and who has not woken up yet would be taken for one who waits for the name.) The name is not: nobody has asked for it.
    assert_eq!(vfs.stat(&root, At::Cwd, "/nothing", Walk::empty()).err(), Some(Error::NoEntry));
    let parked = store.park(Call::Lookup);
    if let Some(error) = fault {
        store.inject(Fault::Nth { call: Some(Call::Lookup), after: 0, error });
    }
    let before = store.calls(Call::Lookup);
    let told = std::thread::scope(|scope| {
        let look = || one(vfs.stat(&root, At::Cwd, "/f", Walk::empty()));
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(look)).collect();
        parked.reached();
        while waiting_for_answers(&vfs) < THREADS - 1 {
            std::thread::yield_now();
        }
        drop(parked);
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
    });
    assert_eq!(store.calls(Call::Lookup), before + 1);
    told
}

#[test]
fn one_asks_and_all_get_one_inode() {
    let found = together(None, |stat| stat.map(|stat| (stat.ino, stat.mode)));
    assert!(found[0].is_ok() && found.iter().all(|one| *one == found[0]), "{found:?}");
}

#[test]
fn one_asks_and_all_get_its_error() {
    assert_eq!(together(Some(Error::Quota), |stat| stat.err()), [Some(Error::Quota); THREADS]);
}

/// While the store takes its time over one name, others are made and removed in the same directory, also those that share
/// the name's lock: there are more of them than locks.
#[test]
fn a_slow_answer_holds_up_no_other_name() {
    const NAMES: usize = 2000;
    let (vfs, root, store) = mounted(MapOptions::default());
    let parked = store.park(Call::Lookup);
    std::thread::scope(|scope| {
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
        // Only a hang takes so long: then the slow one goes on, and the test ends.
        let held_up = all_done.recv_timeout(Duration::from_secs(60)).is_err();
        drop(parked);
        assert!(!held_up, "somebody waits for a name that is not theirs");
        assert_eq!(slow.join().expect("ends"), Some(Error::NoEntry));
    });
}

/// What happens to the inode, by another name, while it is asked for is not undone by the old answer.
#[test]
fn an_answer_from_before_an_eviction_does_not_count() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let cwd = At::Cwd;
    drop(vfs.open(&root, cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    vfs.mkdir(&root, cwd, "/d", 0o755).expect("made");
    drop(vfs.link(&root, cwd, "/a", cwd, "/d/b", Walk::empty()).expect("linked"));
    evict_down_to(&vfs, &store, 1);
    vfs.stat(&root, cwd, "/d", Walk::empty()).expect("there");
    let parked = store.park_answer();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| vfs.stat(&root, cwd, "/a", Walk::empty()).map(|stat| stat.mode));
        parked.reached();
        vfs.chmod(&root, cwd, "/d/b", 0o640, Walk::empty()).expect("changed");
        evict_down_to(&vfs, &store, 1);
        drop(parked);
        assert_eq!(late.join().expect("ends"), Ok(0o640));
    });
}

/// What happens to the name itself, which a listing takes into the cache meanwhile, is not undone either.
#[test]
fn an_answer_from_before_a_removal_does_not_count() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    evict_down_to(&vfs, &store, 1);
    let parked = store.park_answer();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| vfs.stat(&root, At::Cwd, "/a", Walk::empty()).err());
        parked.reached();
        let dir = vfs.open(&root, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
        dir.readdir_plus(&root, 0, |_, _| true).expect("lists");
        vfs.unlink(&root, At::Cwd, "/a").expect("removed");
        // So many absent names that the cache forgets that this is one.
        for i in 0..5000 {
            assert_eq!(vfs.stat(&root, At::Cwd, format!("/{i}"), Walk::empty()).err(), Some(Error::NoEntry));
        }
        drop(parked);
        assert_eq!(late.join().expect("ends"), Some(Error::NoEntry));
    });
}
