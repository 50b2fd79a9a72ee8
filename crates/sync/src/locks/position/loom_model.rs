//! Models of [`Position`]: any mix of operations runs at the same time. Their results, and the
//! position that they leave, are those of some sequential order. Each model has been seen to fail
//! on the bugs that its comment names.

use super::*;
use loom::{sync::Arc, thread};
use std::convert::Infallible;

/// An operation, with numbers chosen so that different orders give different results.
#[derive(Clone, Copy, Debug)]
enum Op {
    Tell,
    Set(u64),
    Relative(u64),
    /// A read or write of so many bytes.
    Io(u64),
    /// A read or write that fails.
    FailedIo,
}

/// The result of an operation: the position that it saw or set. A `set` returns nothing.
fn run(position: &Position, op: Op) -> u64 {
    match op {
        Op::Tell => position.tell(),
        Op::Set(to) => {
            position.set(to);
            0
        }
        Op::Relative(by) => position.seek_relative(|cur| Ok::<_, Infallible>(cur + by)).unwrap_or_else(|e| match e {}),
        Op::Io(bytes) => {
            let io = position.begin();
            let start = io.position();
            io.finish(start + bytes);
            start
        }
        Op::FailedIo => position.begin().position(),
    }
}

/// The same on a plain number: the specification.
fn specified(position: &mut u64, op: Op) -> u64 {
    match op {
        Op::Tell | Op::FailedIo => *position,
        Op::Set(to) => {
            *position = to;
            0
        }
        Op::Relative(by) => {
            *position += by;
            *position
        }
        Op::Io(bytes) => {
            *position += bytes;
            *position - bytes
        }
    }
}

/// Whether some interleaving of the threads' operations gives these results and this final
/// position.
fn possible(threads: &[&[Op]], results: &[Vec<u64>], done: &mut Vec<usize>, position: u64, last: u64) -> bool {
    if threads.iter().zip(&*done).all(|(ops, &n)| n == ops.len()) {
        return position == last;
    }
    (0..threads.len()).any(|t| {
        let Some(&op) = threads[t].get(done[t]) else { return false };
        let mut after = position;
        if specified(&mut after, op) != results[t][done[t]] {
            return false;
        }
        done[t] += 1;
        let fits = possible(threads, results, done, after, last);
        done[t] -= 1;
        fits
    })
}

const START: u64 = 1000;

fn check(threads: &'static [&'static [Op]]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let position = Arc::new(Position::new(START));
        let others: Vec<_> = threads[1..]
            .iter()
            .map(|&ops| {
                let position = position.clone();
                thread::spawn(move || ops.iter().map(|&op| run(&position, op)).collect::<Vec<_>>())
            })
            .collect();
        let mut results = vec![threads[0].iter().map(|&op| run(&position, op)).collect::<Vec<_>>()];
        results.extend(others.into_iter().map(|t| t.join().expect("ends")));
        let last = position.tell();
        let fits = possible(threads, &results, &mut vec![0; threads.len()], START, last);
        assert!(fits, "no order of {threads:?} gives {results:?} and {last}");
        // No I/O remained in flight.
        assert_eq!(run(&position, Op::Relative(1)), last + 1);
    });
}

/// Seen to fail: a `finish` that stores instead of comparing. (One that compares without the bit
/// passes: if the position is back at its start, the I/O may as well come last. A unit test checks
/// that the seek wins even then.)
#[test]
fn io_races_with_sets() {
    check(&[&[Op::Io(1), Op::Tell], &[Op::Set(START), Op::Tell]]);
    check(&[&[Op::Io(1)], &[Op::Set(10), Op::Set(START)], &[Op::Tell, Op::Tell]]);
}

/// Seen to fail: a relative seek that does not wait for the bit; `begin` without the mutex.
#[test]
fn io_races_with_relative_seeks() {
    check(&[&[Op::Io(1)], &[Op::Relative(10), Op::Tell]]);
    check(&[&[Op::Io(1), Op::Relative(100)], &[Op::Relative(10), Op::Io(2)]]);
}

/// Seen to fail: a relative seek that loads and stores.
#[test]
fn relative_seeks_race_with_sets() {
    check(&[&[Op::Relative(1), Op::Tell], &[Op::Set(10), Op::Relative(100)]]);
}

/// A set comes in the middle of an I/O, and a relative seek after it. Seen to fail: as above, and a
/// drop that stores the start.
#[test]
fn io_set_and_relative_seek_mix() {
    check(&[&[Op::Io(1)], &[Op::Set(10)], &[Op::Relative(100)]]);
    check(&[&[Op::FailedIo], &[Op::Set(10), Op::Tell], &[Op::Relative(100)]]);
}

/// Seen to fail: `begin` without the mutex.
#[test]
fn ios_are_atomic() {
    check(&[&[Op::Io(1), Op::Io(10)], &[Op::Io(100)], &[Op::Set(5)]]);
}

type Sets = fn(&Position, &dyn Fn());
type Looks = fn(&Position, &dyn Fn(u64));

/// A thread that sees a position sees what was done before it was set. Seen to fail: `tell`,
/// `begin` or a relative seek that does not acquire; an I/O or a relative seek that ends without
/// release.
#[test]
fn position_publishes_what_was_done_before() {
    let sets: [Sets; 3] = [
        |position, work| {
            work();
            position.set(10);
        },
        |position, work| {
            work();
            run(position, Op::Relative(10));
        },
        |position, work| {
            let io = position.begin();
            work();
            io.finish(10);
        },
    ];
    let looks: [Looks; 3] = [
        |position, see| see(position.tell()),
        |position, see| {
            let _ = position.seek_relative(|cur| {
                see(cur);
                Ok::<_, Infallible>(cur)
            });
        },
        |position, see| see(position.begin().position()),
    ];
    for (set, look) in sets.into_iter().flat_map(|set| looks.map(|look| (set, look))) {
        loom::model(move || {
            let world = Arc::new((Position::new(START), AtomicU64::new(0)));
            let other = thread::spawn({
                let world = world.clone();
                move || set(&world.0, &|| world.1.store(1, Ordering::Relaxed))
            });
            look(&world.0, &|seen| assert!(seen == START || world.1.load(Ordering::Relaxed) == 1));
            other.join().expect("ends");
        });
    }
}
