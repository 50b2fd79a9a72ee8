//! Tests of the tracer on data whose accesses are known exactly: a counter that two threads share,
//! and two that they do not share.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
};

use super::touched::{Class, Collector, Touched};
use crate::{
    base::{cancel::Cancel, failure::Failure},
    lackey::{Event, Traced, answer, between_marks, order, trace},
};

/// A value on cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

static SHARED: Padded<AtomicU64> = Padded(AtomicU64::new(0));
static NEIGHBOURS: Padded<[AtomicU64; 2]> = Padded([const { AtomicU64::new(0) }; 2]);
static PRIVATE: [Padded<AtomicU64>; 2] = [const { Padded(AtomicU64::new(0)) }; 2];

/// The works of each of two threads, on its own counter where there are two.
const WORKS: [fn(usize); 4] = [
    |_| {
        SHARED.0.fetch_add(1, Ordering::SeqCst);
    },
    |me| {
        NEIGHBOURS.0[me].fetch_add(1, Ordering::SeqCst);
    },
    |me| {
        PRIVATE[me].0.fetch_add(1, Ordering::SeqCst);
    },
    // The allocator's lines belong to this thread alone, and are recognised as the allocator's.
    |me| drop(std::hint::black_box(vec![me as u8; 100])),
];

/// The traced process: two threads, one after the other, do each work in a copy of the process.
fn seeded() -> String {
    let threads: Vec<_> = (0..2)
        .map(|me| {
            let (jobs, todo) = channel::<usize>();
            let (done, copies) = channel();
            thread::spawn(move || {
                // The allocator makes its per-thread data now.
                drop(std::hint::black_box(vec![0_u8; 100]));
                for work in todo {
                    let copy = between_marks((), |()| (), |()| WORKS[work](me), |(), ()| Ok(())).expect("a copy");
                    done.send(copy).expect("the receiver exists");
                }
            });
            (jobs, copies)
        })
        .collect();
    let trace = |work: usize| -> Vec<i32> {
        threads
            .iter()
            .map(|(jobs, copies)| {
                jobs.send(work).expect("it listens");
                copies.recv().expect("it answers")
            })
            .collect()
    };
    let copies: Vec<Vec<i32>> = (0..WORKS.len()).map(trace).collect();
    answer(copies).expect("/proc can be read")
}

fn touched(traced: &Traced<Vec<Vec<i32>>>, copy: i32) -> Touched {
    let mut collector = Collector::new(&traced.symbols);
    traced.scan(copy, &Cancel::default(), |event| collector.event(event)).expect("its trace");
    collector.finish()
}

/// In the traced process, this test runs again and does the traced work.
#[test]
fn seeded_conflict_is_found_and_private_work_has_none() {
    if order().is_some() {
        println!("{}", seeded());
        return;
    }
    if !pandofs_testkit::has(&["valgrind"]) {
        return;
    }
    let name = "command::conflicts::tests::seeded_conflict_is_found_and_private_work_has_none";
    let arguments = ["--exact", name, "--nocapture"].map(Into::into).to_vec();
    let traced = trace::<Vec<Vec<i32>>>(arguments, "seeded", &Cancel::default()).expect("it can be traced");
    let met: Vec<_> = traced
        .body
        .iter()
        .map(|copies| touched(&traced, copies[0]).line_conflicts(&touched(&traced, copies[1])))
        .collect();

    assert_eq!(met[0].len(), 1, "{:?}", met[0]);
    let shared = met[0][0];
    assert!(!shared.false_sharing && shared.class == Class::Own, "{shared:?}");
    let name = traced.symbols.static_at(shared.written.address).expect("a static variable");
    assert!(name.contains("SHARED"), "{name}");

    assert_eq!(met[1].len(), 1, "{:?}", met[1]);
    assert!(met[1][0].false_sharing, "{:?}", met[1]);

    assert_eq!(met[2], [], "each on a line of its own");
    assert_eq!(met[3], [], "each in an arena of its own");

    // The same work has the same number of instructions each time.
    let count = |copy| {
        let mut instructions = 0;
        traced
            .scan(copy, &Cancel::default(), |event| instructions += u32::from(matches!(event, Event::Instruction(_))))
            .expect("its trace");
        instructions
    };
    assert_eq!(count(traced.body[0][0]), count(traced.body[0][1]));
    assert!(count(traced.body[0][0]) > 0);

    // Reading a trace ends when it is cancelled.
    let cancel = Cancel::default();
    cancel.request();
    let ended = traced.scan(traced.body[0][0], &cancel, |_| ());
    assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
}
