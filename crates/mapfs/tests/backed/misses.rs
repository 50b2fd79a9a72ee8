//! Misses at the same time (P7), and beside what they must not hold up (P2).

use std::{sync::mpsc, thread, time::Duration};

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{At, Error, FileKind, OpenFlags, Result, Stat, Walk, introspection::waiting_for_answers};

use crate::support::{evict_down_to, mounted};

const THREADS: usize = 8;

/// So many threads want the same name at the same time: what each is told (with none, it panics), and how often the store is
/// asked.
fn together(fault: Option<Fault>) -> (Vec<Option<Result<Stat>>>, u64) {
    let (vfs, root, store) = mounted(MapOptions::default());
    store.create(MapHandle::ROOT, "f", FileKind::File, 0o640).expect("made");
    // A walk through the directory: what has changed underneath is known from here on. (Or all would wait for that first,
    // and who has not woken up yet would be taken for one who waits for the name.) The name is not: nobody has asked for it.
    assert_eq!(vfs.stat(&root, At::Cwd, "/nothing", Walk::empty()).err(), Some(Error::NoEntry));
    let parked = store.park(Call::Lookup);
    fault.into_iter().for_each(|fault| store.inject(fault));
    let before = store.calls(Call::Lookup);
    let told = thread::scope(|scope| {
        let look = || vfs.stat(&root, At::Cwd, "/f", Walk::empty());
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(look)).collect();
        parked.reached();
        while waiting_for_answers(&vfs) < THREADS - 1 {
            thread::yield_now();
        }
        drop(parked);
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    (told, store.calls(Call::Lookup) - before)
}

#[test]
fn one_asks_and_all_get_one_inode() {
    let (found, asked) = together(None);
    assert!(matches!(found[0], Some(Ok(_))) && found.iter().all(|one| *one == found[0]), "{found:?}");
    assert_eq!(asked, 1);
}

#[test]
fn one_asks_and_all_get_its_error() {
    let error = Error::Quota;
    let told = together(Some(Fault::Nth { call: Some(Call::Lookup), after: 0, error }));
    assert_eq!(told, (vec![Some(Err(error)); THREADS], 1));
}

/// The others are not left waiting: one of them asks next.
#[test]
fn p14_one_asks_and_panics() {
    let (told, asked) = together(Some(Fault::Panic { call: Call::Lookup }));
    let found: Vec<_> = told.into_iter().flatten().collect();
    assert!(found.len() == THREADS - 1 && found[0].is_ok() && found.iter().all(|one| *one == found[0]), "{found:?}");
    assert_eq!(asked, 2);
}

/// While the store takes its time over one name, others are made and removed in the same directory, also those that share
/// the name's lock: there are more of them than locks.
#[test]
fn a_slow_answer_holds_up_no_other_name() {
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
    // In use: nothing leaves the cache but the inode.
    let _used = vfs.lookup(&root, cwd, "/d", Walk::empty()).expect("there");
    let parked = store.park_answer(Call::Lookup);
    thread::scope(|scope| {
        let late = scope.spawn(|| vfs.stat(&root, cwd, "/a", Walk::empty()).map(|stat| stat.mode));
        parked.reached();
        vfs.chmod(&root, cwd, "/d/b", 0o640, Walk::empty()).expect("changed");
        evict_down_to(&vfs, &store, 2);
        drop(parked);
        assert_eq!(late.join().expect("ends"), Ok(0o640));
    });
}

/// Nor what others do to the name, if somebody else has looked for what they have changed before the answer is there: nobody
/// would look again.
#[test]
fn an_answer_from_before_others_change_the_name_does_not_count() {
    for was_there in [false, true] {
        let (vfs, root, store) = mounted(MapOptions::default());
        let create = || store.create(MapHandle::ROOT, "f", FileKind::File, 0o640);
        let ino = was_there.then(|| create().expect("made"));
        let stat = |path| vfs.stat(&root, At::Cwd, path, Walk::empty()).map(|stat| stat.ino);
        assert_eq!(stat("/nothing"), Err(Error::NoEntry));
        let parked = store.park_answer(Call::Lookup);
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

/// So many names are known to be absent, and no more: else who asks for more and more of them fills the memory.
#[test]
fn absent_names_are_forgotten_when_they_are_many() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let asked = |name: u32| {
        let before = store.calls(Call::Lookup);
        assert_eq!(vfs.stat(&root, At::Cwd, format!("/{name}"), Walk::empty()).err(), Some(Error::NoEntry));
        store.calls(Call::Lookup) - before
    };
    let most = (0..).find(|name| asked(*name) == 1 && asked(0) == 1).expect("it ends");
    assert!((1000..10_000).contains(&most) && asked(most) == 0, "{most}");
}

/// What happens to the name itself, which a listing takes into the cache meanwhile, is not undone either.
#[test]
fn an_answer_from_before_a_removal_does_not_count() {
    let (vfs, root, store) = mounted(MapOptions::default());
    drop(vfs.open(&root, At::Cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made"));
    evict_down_to(&vfs, &store, 1);
    let parked = store.park_answer(Call::Lookup);
    thread::scope(|scope| {
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
