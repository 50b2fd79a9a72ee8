//! The tracer on a target so small that everything about it is known: a counter that two threads share, and two that
//! they do not.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
};

use super::{in_marks, order, tell, trace};
use crate::{
    conflicts::touched::{Class, Collector, Touched},
    failure::Failure,
    halt::Halt,
    lackey::{Event, Symbols, Traced},
};

/// Something on lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

static SHARED: Padded<AtomicU64> = Padded(AtomicU64::new(0));
static NEIGHBOURS: Padded<[AtomicU64; 2]> = Padded([const { AtomicU64::new(0) }; 2]);
static PRIVATE: [Padded<AtomicU64>; 2] = [const { Padded(AtomicU64::new(0)) }; 2];

/// What each of two threads does: to its own number, of the two.
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
    // The allocator's lines are this thread's own, and are known for what they are.
    |me| drop(std::hint::black_box(vec![me as u8; 100])),
];

/// The traced process: two threads, one after the other, do each work in a copy of the process.
fn seeded() -> String {
    let crew: Vec<_> = (0..2)
        .map(|me| {
            let (jobs, todo) = channel::<usize>();
            let (done, copies) = channel();
            thread::spawn(move || {
                // The allocator has made what it keeps for this thread.
                drop(std::hint::black_box(vec![0_u8; 100]));
                for work in todo {
                    let copy = in_marks((), |()| (), |()| WORKS[work](me), |(), ()| Ok(())).expect("a copy");
                    done.send(copy).expect("somebody listens");
                }
            });
            (jobs, copies)
        })
        .collect();
    let trace = |work: usize| -> Vec<i32> {
        crew.iter()
            .map(|(jobs, copies)| {
                jobs.send(work).expect("it listens");
                copies.recv().expect("it answers")
            })
            .collect()
    };
    let copies: Vec<Vec<i32>> = (0..WORKS.len()).map(trace).collect();
    tell(copies).expect("this process can be described")
}

fn touched(traced: &Traced<Vec<Vec<i32>>>, copy: i32) -> Touched {
    let mut collector = Collector::new(&traced.symbols);
    traced.scan(copy, &Halt::default(), |event| collector.event(event)).expect("its trace");
    collector.finish()
}

#[test]
fn a_static_variable_of_zeros_has_a_name() {
    // Of no file's page: nothing of it is in the file.
    static ZEROS: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];
    let symbols = Symbols::new(&std::fs::read_to_string("/proc/self/maps").expect("maps"));
    let last = std::ptr::from_ref(&ZEROS[ZEROS.len() - 1]).addr() as u64;
    let name = symbols.static_at(last).expect("a static variable");
    assert!(name.contains("ZEROS"), "{name}");
}

/// In the traced process this very test runs again, and does what is to be traced.
#[test]
fn a_seeded_conflict_is_found_and_private_work_is_clean() {
    if order().is_some() {
        println!("{}", seeded());
        return;
    }
    if !pandofs_testkit::has(&["valgrind"]) {
        return;
    }
    let name = "lackey::tests::a_seeded_conflict_is_found_and_private_work_is_clean";
    let arguments = ["--exact", name, "--nocapture"].map(Into::into).to_vec();
    let traced = trace::<Vec<Vec<i32>>>(arguments, "seeded", &Halt::default()).expect("it can be traced");
    let met: Vec<_> =
        traced.body.iter().map(|copies| touched(&traced, copies[0]).meetings(&touched(&traced, copies[1]))).collect();

    assert_eq!(met[0].len(), 1, "{:?}", met[0]);
    let shared = met[0][0];
    assert!(!shared.false_sharing && shared.class == Class::Own, "{shared:?}");
    let name = traced.symbols.static_at(shared.written.address).expect("a static variable");
    assert!(name.contains("SHARED"), "{name}");

    assert_eq!(met[1].len(), 1, "{:?}", met[1]);
    assert!(met[1][0].false_sharing, "{:?}", met[1]);

    assert_eq!(met[2], [], "each on a line of its own");
    assert_eq!(met[3], [], "each in an arena of its own");

    // The same work takes the same number of instructions each time.
    let count = |copy| {
        let mut instructions = 0;
        traced
            .scan(copy, &Halt::default(), |event| instructions += u32::from(matches!(event, Event::Instruction(_))))
            .expect("its trace");
        instructions
    };
    assert_eq!(count(traced.body[0][0]), count(traced.body[0][1]));
    assert!(count(traced.body[0][0]) > 0);

    // Nobody waits for a trace that is to be read no more.
    let halt = Halt::default();
    halt.ask();
    let ended = traced.scan(traced.body[0][0], &halt, |_| ());
    assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
}
