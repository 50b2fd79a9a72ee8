//! A directory is removed, or gets a name, but not both.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{Ack, Backing, Change, CommitError, Error, FileKind, RenameFlags};

use crate::{
    machine::{Image, Machine},
    support::create,
};

const ROOT: u64 = 1;

fn rename(store: &KvFs, from: (u64, &[u8]), to: (u64, &[u8]), ino: u64) -> Result<Ack, CommitError> {
    store.commit(&Change::Rename { from, to, flags: RenameFlags::empty(), ino, target: None, whiteout: None })
}

/// Below the namespace, which has locks of its own.
///
/// Seen to fail: the names that were added are not counted.
#[test]
fn directory_is_removed_or_gets_a_name() {
    let machine = Machine::new(&Image::default());
    let engine = Embedded::create(Arc::new(machine.clone())).expect("made");
    let store = KvFs::new(Box::new(engine), Box::new(machine), StoreOptions::new()).expect("a store");
    let other = create(&store, ROOT, b"other", FileKind::File).expect("made");
    let mut won = [0; 2];
    for round in 0..3000 {
        let dir = create(&store, ROOT, b"d", FileKind::Directory).expect("made");
        let barrier = Barrier::new(2);
        let (named, removed) = thread::scope(|scope| {
            let naming = scope.spawn(|| {
                barrier.wait();
                match round % 2 {
                    0 => create(&store, dir, b"f", FileKind::File).map(drop),
                    _ => rename(&store, (ROOT, b"other"), (dir, b"f"), other).map(drop),
                }
            });
            barrier.wait();
            let removed = store.commit(&Change::Remove { dir: ROOT, name: b"d", ino: dir });
            (naming.join().expect("no panic"), removed)
        });
        let names = [Ok(()), Err(CommitError::Refused(Error::NoEntry))];
        let removals = [Err(CommitError::Refused(Error::NotEmpty)), Ok(Ack::Done)];
        let place = (0..2).find(|place| (&named, &removed) == (&names[*place], &removals[*place]));
        let place = place.unwrap_or_else(|| panic!("round {round}: {named:?} {removed:?}"));
        won[place] += 1;
        if place == 0 {
            match round % 2 {
                0 => drop(store.commit(&Change::Remove { dir, name: b"f", ino: 0 }).expect("removed")),
                _ => drop(rename(&store, (dir, b"f"), (ROOT, b"other"), other).expect("moved back")),
            }
            store.commit(&Change::Remove { dir: ROOT, name: b"d", ino: dir }).expect("empty");
        }
        store.forget(dir);
    }
    println!("{won:?}");
}
