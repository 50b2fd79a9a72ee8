//! Tests of counters and stamps.

use super::*;
use crate::Striped;
use std::sync::atomic::AtomicBool;

#[derive(Default)]
struct Times {
    links: Counter,
    mtime: Stamp,
}

fn links(striped: &Striped<Times>) -> Sum {
    Counter::sum(|| striped.all().map(|t| &t.links))
}

#[test]
fn estimate_of_a_quiescent_count_is_exact() {
    let parts = [Counter::new(5), Counter::new(0)];
    assert!(!parts[1].add(2) && !parts[0].sub(1) && !parts[1].sub(4));
    assert_eq!(Counter::estimate(parts.iter()), 2);
    assert_eq!(parts[0].changes(), 5 + 1);
    assert_eq!(Counter::estimate(parts[1..].iter()), 0, "a single part may be below zero");
}

/// The count goes up while a collection reads the halves, and down again before the next one.
/// The sum is that of the collection with the fewest additions, and is never called exact, even
/// if all collections find the same.
#[test]
fn sum_of_a_changing_count_is_that_of_the_quietest_collection() {
    for (during, value) in [([9, 3, 7, 5, 9, 8, 9, 8], 1 + 3), ([2; COUNTER_COLLECTIONS], 1 + 2)] {
        let (count, calls) = (Counter::new(1), std::cell::Cell::new(0));
        let sum = Counter::sum(|| {
            let call = calls.replace(calls.get() + 1);
            let _ =
                if call % 2 == 1 { count.add(during[call / 2]) } else { call > 0 && count.sub(during[call / 2 - 1]) };
            [&count].into_iter()
        });
        assert_eq!(sum, Sum { value, exact: false });
    }
}

/// Seen to fail: each collection compared with the first.
#[test]
fn sum_is_exact_after_the_last_change() {
    let (count, calls) = (Counter::new(1), std::cell::Cell::new(0));
    let sum = Counter::sum(|| {
        // During the second collection.
        let _ = calls.replace(calls.get() + 1) == 2 && count.add(4);
        [&count].into_iter()
    });
    assert_eq!((sum, calls.get()), (Sum { value: 5, exact: true }, 6));
}

#[test]
fn sums_are_never_impossible_and_exact_when_quiescent() {
    let striped = Striped::new(Times { links: Counter::new(2), mtime: Stamp::default() });
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for t in 0..2 {
            let (striped, stop) = (&striped, &stop);
            s.spawn(move || {
                for i in 0..30_000_u64 {
                    if striped.mine().links.add(1) {
                        striped.note_contention();
                    }
                    // At times another part than the one that was added to.
                    if i == 1000 * t {
                        striped.inflate();
                    }
                    if striped.mine().links.sub(1) {
                        striped.note_contention();
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        while !stop.load(Ordering::Relaxed) {
            let sum = links(&striped);
            assert!(sum.value >= 2, "{sum:?}");
            assert!(!sum.exact || sum.value <= 4, "{sum:?}");
        }
    });
    assert_eq!(links(&striped), Sum { value: 2, exact: true });
}

#[test]
fn stamps_only_grow() {
    let striped = Striped::<Times>::default();
    assert_eq!(Stamp::latest([].iter()), Stamp::NEVER);
    assert_eq!(Stamp::latest(striped.all().map(|t| &t.mtime)), Stamp::NEVER);
    assert!(!striped.mine().mtime.raise(-5));
    striped.inflate();
    assert!(!striped.mine().mtime.raise(-7));
    assert_eq!(Stamp::latest(striped.all().map(|t| &t.mtime)), -5);
    std::thread::scope(|s| {
        for t in 0..3_i64 {
            let striped = &striped;
            s.spawn(move || {
                for i in 0..5000 {
                    let _ = striped.inline().mtime.raise(i * 3 + t);
                }
            });
        }
    });
    assert_eq!(Stamp::latest(striped.all().map(|t| &t.mtime)), 4999 * 3 + 2);
}
