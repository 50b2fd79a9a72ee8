//! An embedded engine is made smaller. It keeps all records, also if the machine crashes meanwhile,
//! or if the storage fails.

use std::sync::Arc;

use pando_kv::{Embedded, Engine, Error, MemoryStorage, Outcome, Transaction};
use rustix::io::Errno;

use crate::{
    disk::{Call, Disk, Fault},
    support::{Records, Rng, commit, records, seed},
};

/// An engine with many records, of which most were removed again.
fn filled(random: &mut Rng) -> (Arc<Disk>, Embedded, Records) {
    let disk = Arc::new(Disk::default());
    let engine = Embedded::create(disk.clone()).expect("made");
    let mut model = Records::new();
    for round in 0..8 {
        let mut transaction = Transaction::new();
        for key in 0..100_u32 {
            match random.below(3) {
                0 => transaction.put(key.to_be_bytes(), vec![round; random.below(3000) as usize]),
                _ => transaction.remove(key.to_be_bytes()),
            }
        }
        commit(&mut model, &transaction);
        assert_eq!(engine.commit(&transaction).expect("no failure"), Outcome::Committed);
    }
    (disk, engine, model)
}

#[test]
fn records_survive_crashes() {
    let mut random = Rng(seed());
    let rounds = pandofs_testkit::number("PANDO_CRASH_ROUNDS").unwrap_or(20).div_ceil(4);
    let mut all = 0;
    for _ in 0..rounds {
        let (disk, mut engine, model) = filled(&mut random);
        let before = disk.bytes().len();
        disk.crash(Rng(random.next()), 2);
        engine.compact().expect("no failure");
        assert!(records(&*engine.snapshot().expect("readable")) == model);
        drop(engine);
        assert!(disk.bytes().len() < before, "{} of {before} bytes", disk.bytes().len());
        let images = disk.take_images();
        all += images.len();
        for (_, image) in images {
            let opened = Embedded::open(Arc::new(MemoryStorage::new(image))).expect("undamaged");
            assert!(records(&*opened.snapshot().expect("readable")) == model);
        }
    }
    println!("{all} images");
    assert!(all as u64 > rounds * 4, "{all}");
}

#[test]
fn records_survive_failures() {
    let mut random = Rng(seed());
    let mut failed = 0;
    for (call, error) in [(Call::Write, Errno::IO), (Call::Read, Errno::IO), (Call::Write, Errno::NOSPC)] {
        for after in 0..20 {
            let (disk, mut engine, model) = filled(&mut random);
            disk.inject(Fault { call, after, times: 1, error });
            match engine.compact() {
                Ok(()) => {}
                Err(Error::Io(found)) if found.raw_os_error() == Some(error.raw_os_error()) => failed += 1,
                Err(found) => panic!("{call:?} {after}: {found}"),
            }
            assert!(records(&*engine.snapshot().expect("works again")) == model, "{call:?} {after}");
            drop(engine);
            let again = Embedded::open(Arc::new(MemoryStorage::new(disk.bytes()))).expect("undamaged");
            assert!(records(&*again.snapshot().expect("readable")) == model, "{call:?} {after}");
        }
    }
    assert!(failed > 10, "{failed}");
}

/// A snapshot may still read the pages that would be moved.
#[test]
fn snapshots_are_in_the_way() {
    let (_, mut engine, model) = filled(&mut Rng(seed()));
    let snapshot = engine.snapshot().expect("readable");
    assert!(matches!(engine.compact(), Err(Error::InUse)));
    assert!(records(&*snapshot) == model);
    drop(snapshot);
    engine.compact().expect("no failure");
}
