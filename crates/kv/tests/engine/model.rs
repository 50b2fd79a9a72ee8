//! Each engine has what a map has after the same transactions.

use std::{sync::Arc, thread, time::Duration};

use pando_kv::{
    Delta, Embedded, Engine, FileStorage, Hostile, Hostility, MemoryStorage, Numbers, Outcome, Transaction,
};

use crate::support::{Records, Rng, commit, random_transaction, records, seed};

/// The key of a number that each transaction of a client on its own changes, so that an unknown
/// outcome can be found out.
const SEQUENCE: &[u8] = b"sequence";

fn memory() -> Embedded {
    Embedded::create(Arc::new(MemoryStorage::default())).expect("made")
}

#[test]
fn embedded_has_what_a_map_has() {
    let mut random = Rng(seed());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("records");
    let mut engine = Embedded::create(Arc::new(FileStorage::create(&path).expect("made"))).expect("made");
    let mut model = Records::new();
    for _ in 0..300 {
        let transaction = random_transaction(&mut random, &model);
        let outcome = if commit(&mut model, &transaction) { Outcome::Committed } else { Outcome::Conflict };
        assert_eq!(engine.commit(&transaction).expect("no failure"), outcome, "{transaction:?}");
        if random.below(50) == 0 {
            drop(engine);
            engine = Embedded::open(Arc::new(FileStorage::open(&path).expect("opens"))).expect("opens");
        }
        if random.below(10) == 0 {
            assert_eq!(records(&*engine.snapshot().expect("readable")), model);
        }
    }
    assert_eq!(records(&*engine.snapshot().expect("readable")), model);
}

#[test]
fn snapshot_stays_as_it_was() {
    let mut random = Rng(seed());
    let engine = memory();
    let mut model = Records::new();
    let mut old = Vec::new();
    for _ in 0..200 {
        old.push((engine.snapshot().expect("readable"), model.clone()));
        let transaction = random_transaction(&mut random, &model);
        commit(&mut model, &transaction);
        engine.commit(&transaction).expect("no failure");
        if old.len() > 8 {
            let (snapshot, then) = old.swap_remove(random.below(8) as usize);
            assert_eq!(records(&*snapshot), then);
        }
    }
}

#[test]
fn pages_continue_where_the_last_one_ended() {
    let mut random = Rng(seed());
    let hostility = Hostility { seed: random.next(), short_pages: true, ..Hostility::default() };
    let engine = Hostile::new(memory(), hostility);
    let mut all = Transaction::new();
    (0_u32..500).for_each(|i| all.put(i.to_be_bytes(), i.to_le_bytes()));
    assert_eq!(engine.commit(&all).expect("no failure"), Outcome::Committed);
    let snapshot = engine.snapshot().expect("readable");
    for _ in 0..100 {
        let [start, end] = [random.below(600) as u32, random.below(600) as u32];
        let (mut found, limit) = (Vec::new(), 1 + random.below(100) as usize);
        let mut next = Some(start.to_be_bytes().to_vec());
        while let Some(from) = next {
            let before = found.len();
            let mut each = |key: &[u8], _: &[u8]| found.push(u32::from_be_bytes(key.try_into().expect("4 bytes")));
            next = snapshot.page(&from..&end.to_be_bytes(), limit, &mut each).expect("readable");
            assert!(found.len() <= before + limit, "no more than asked for");
            assert!(next.is_none() || found.len() > before, "it goes on");
        }
        assert_eq!(found, (start..end.min(500)).collect::<Vec<_>>());
    }
    let keys = [&7_u32.to_be_bytes()[..], b"none", &8_u32.to_be_bytes()];
    let values = [Some(7_u32.to_le_bytes().to_vec()), None, Some(8_u32.to_le_bytes().to_vec())];
    assert_eq!(snapshot.get(&keys).expect("readable"), values);
}

/// Transactions of several threads are as if made one after the other.
#[test]
fn threads_count_without_conflicts_and_take_turns_with_them() {
    let engine = memory();
    let mut once = Transaction::new();
    once.put("turn", 0_u64.to_be_bytes());
    engine.commit(&once).expect("no failure");
    thread::scope(|scope| {
        for thread in 0..4_i64 {
            let engine = &engine;
            scope.spawn(move || {
                for i in 0..50 {
                    let mut count = Transaction::new();
                    count.merge("count", 0, Delta::Add(1));
                    count.merge("count", 1, Delta::AtLeast(thread * 100 + i));
                    assert_eq!(engine.commit(&count).expect("no failure"), Outcome::Committed);
                    loop {
                        let mut turn = Transaction::new();
                        let snapshot = engine.snapshot().expect("readable");
                        let value = turn.read(&*snapshot, b"turn").expect("readable").expect("there");
                        let number = u64::from_be_bytes(value.try_into().expect("8 bytes"));
                        turn.put("turn", (number + 1).to_be_bytes());
                        if engine.commit(&turn).expect("no failure") == Outcome::Committed {
                            break;
                        }
                    }
                }
            });
        }
    });
    let all = records(&*engine.snapshot().expect("readable"));
    assert_eq!(all[&b"turn"[..]], 200_u64.to_be_bytes());
    let numbers = Numbers::of(Some(&all[&b"count"[..]]));
    assert_eq!((numbers.get(0), numbers.get(1), numbers.get(2)), (200, 349, 0));
}

/// Commits, and finds out the outcome if it is unknown, as [`Outcome::Unknown`] says.
fn commit_surely(engine: &dyn Engine, sequence: &mut u64, mut transaction: Transaction) -> Outcome {
    let value = |number: u64| number.to_be_bytes().to_vec();
    let stored = || {
        let found = engine.snapshot().expect("readable").get_one(SEQUENCE).expect("readable");
        found.map_or(0, |found| u64::from_be_bytes(found.try_into().expect("8 bytes")))
    };
    let (before, mine, other) = (*sequence, *sequence + 1, *sequence + 2);
    let expected = (before > 0).then(|| value(before));
    transaction.expect(SEQUENCE, expected.clone());
    transaction.put(SEQUENCE, value(mine));
    let outcome = engine.commit(&transaction).expect("no failure");
    if outcome != Outcome::Unknown {
        *sequence = stored();
        return outcome;
    }
    let mut fence = Transaction::new();
    fence.expect(SEQUENCE, expected);
    fence.put(SEQUENCE, value(other));
    while stored() == before {
        engine.commit(&fence).expect("no failure");
    }
    *sequence = stored();
    assert!([mine, other].contains(sequence));
    if *sequence == mine { Outcome::Committed } else { Outcome::Conflict }
}

/// A client that finds out unknown outcomes makes each transaction once or not at all.
#[test]
fn hostile_engine_has_what_its_client_knows() {
    let mut random = Rng(seed());
    let hostility = Hostility {
        seed: random.next(),
        conflicts: 200,
        unknown: 300,
        largest: Some(30_000),
        delay: Duration::from_micros(20),
        short_pages: true,
    };
    let engine = Hostile::new(memory(), hostility);
    assert_eq!(engine.capabilities().largest, Some(30_000));
    let (mut model, mut sequence) = (Records::new(), 0);
    let mut counts = [0; 3];
    for _ in 0..500 {
        let transaction = random_transaction(&mut random, &model);
        match commit_surely(&engine, &mut sequence, transaction.clone()) {
            Outcome::Committed => assert!(commit(&mut model, &transaction), "its assertions held"),
            Outcome::Conflict => counts[1] += 1,
            Outcome::TooLarge => counts[2] += 1,
            Outcome::Unknown => unreachable!("found out"),
        }
        counts[0] += 1;
        let mut all = records(&*engine.snapshot().expect("readable"));
        all.remove(SEQUENCE);
        assert_eq!(all, model);
    }
    assert!(counts[1] > 100 && counts[1] < 400, "{counts:?}");
}
