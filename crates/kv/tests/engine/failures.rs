//! A storage that fails: what has returned stays, and what was not flushed is never said to be
//! stored.

use std::sync::Arc;

use pando_kv::{Embedded, Engine, Error, MemoryStorage, Outcome, Transaction};
use rustix::io::Errno;

use crate::{
    disk::{Call, Disk, Fault},
    support::{Records, Rng, commit, random_transaction, records, seed},
};

/// Commits random transactions while the `after`-th call of a kind fails, `times` times. The engine
/// then goes on. Returns false if the fault did not happen.
fn goes_on(random: &mut Rng, call: Call, after: usize, times: usize) -> bool {
    let disk = Arc::new(Disk::default());
    drop(Embedded::create(disk.clone()).expect("made"));
    let engine = Embedded::open_with_cache(disk.clone(), 0).expect("opens");
    disk.inject(Fault { call, after, times, error: Errno::IO });
    let mut model = Records::new();
    for _ in 0..30 {
        let transaction = random_transaction(random, &model);
        let mut with = model.clone();
        let holds = commit(&mut with, &transaction);
        match engine.commit(&transaction) {
            Ok(Outcome::Committed) => assert!(holds),
            Ok(Outcome::Conflict) => assert!(!holds),
            Ok(Outcome::Unknown) => {
                assert!(holds);
                let found = loop {
                    match engine.snapshot() {
                        Ok(snapshot) => break records(&*snapshot),
                        Err(Error::Io(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                assert!(found == model || found == with, "all or nothing");
                model = found;
                continue;
            }
            Ok(Outcome::TooLarge) => unreachable!("it has no limit"),
            Err(Error::Io(_)) => continue,
            Err(error) => panic!("{error}"),
        }
        model = with;
    }
    let happened = !disk.has_faults();
    if happened {
        assert_eq!(records(&*engine.snapshot().expect("works again")), model);
        drop(engine);
        let again = Embedded::open(Arc::new(MemoryStorage::new(disk.bytes()))).expect("undamaged");
        assert_eq!(records(&*again.snapshot().expect("readable")), model);
    }
    happened
}

#[test]
fn engine_goes_on_after_a_failed_read_or_write() {
    let mut random = Rng(seed());
    for call in [Call::Write, Call::Read] {
        let happened = (0..40).filter(|after| goes_on(&mut random, call, *after, 1 + after % 3)).count();
        assert!(happened > 30, "{call:?}: {happened}");
    }
}

#[test]
fn engine_goes_on_when_there_is_space_again() {
    let disk = Arc::new(Disk::default());
    let engine = Embedded::create(disk.clone()).expect("made");
    disk.inject(Fault { call: Call::Grow, after: 1, times: 3, error: Errno::NOSPC });
    let (mut stored, mut refused) = (Records::new(), 0);
    for i in 0_u32..200 {
        let mut put = Transaction::new();
        put.put(i.to_be_bytes(), vec![i as u8; 100_000]);
        match engine.commit(&put) {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Committed);
                commit(&mut stored, &put);
            }
            Err(Error::Io(error)) => {
                assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((refused, stored.len()), (3, 197));
    assert_eq!(records(&*engine.snapshot().expect("readable")), stored);
}

/// Also if later flushes would succeed.
#[test]
fn failed_flush_stops_the_engine_for_good() {
    for after in 0..4 {
        let disk = Arc::new(Disk::default());
        let engine = Embedded::create(disk.clone()).expect("made");
        disk.inject(Fault { call: Call::Sync, after, times: 1, error: Errno::IO });
        let put = |value: &str| {
            let mut put = Transaction::new();
            put.put("key", value);
            engine.commit(&put)
        };
        let mut stored = 0;
        let stopped = loop {
            match put(&format!("{}", stored + 1)) {
                Ok(outcome) => assert_eq!(outcome, Outcome::Committed),
                Err(error) => break error,
            }
            stored += 1;
        };
        assert!(matches!(stopped, Error::Stopped), "{stopped}");
        assert!(stored <= after && !disk.has_faults());
        assert!(matches!(put("later"), Err(Error::Stopped)));
        assert!(matches!(engine.snapshot().err(), Some(Error::Stopped)));
        drop(engine);
        let again = Embedded::open(Arc::new(MemoryStorage::new(disk.bytes()))).expect("undamaged");
        let found = again.snapshot().expect("readable").get_one(b"key").expect("readable");
        let found = found.map_or(0, |found| String::from_utf8(found).expect("text").parse().expect("a number"));
        assert!([stored, stored + 1].contains(&found), "{found} of {stored}");
    }
}
