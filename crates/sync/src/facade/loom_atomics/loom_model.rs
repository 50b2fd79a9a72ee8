//! Checks the search itself: what the first thread reads while other threads write. In the
//! execution that loom tries first, the first thread reads before the others begin. So its loads
//! are the hidden ones. Each model has been seen to fail on loom's own atomics, that is, without
//! `before_load`.

use super::*;
use std::collections::BTreeSet;

fn add_by_compare_and_swap(number: &AtomicUsize) {
    let old = number.load(Ordering::SeqCst);
    let _ = number.compare_exchange(old, old + 1, Ordering::SeqCst, Ordering::SeqCst);
}

/// All values that the first thread reads, over all executions in which the other threads do
/// `others`.
fn readings<const N: usize>(others: Vec<fn(&AtomicUsize)>) -> BTreeSet<[usize; N]> {
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    let of_this_model = all.clone();
    loom::model(move || {
        let number = loom::sync::Arc::new(AtomicUsize::new(0));
        let spawn = |other: &fn(&AtomicUsize)| {
            let (number, other) = (number.clone(), *other);
            thread::spawn(move || other(&number))
        };
        let threads: Vec<_> = others.iter().map(spawn).collect();
        let read = [(); N].map(|()| number.load(Ordering::SeqCst));
        threads.into_iter().for_each(|t| t.join().expect("ends"));
        of_this_model.lock().unwrap_or_else(PoisonError::into_inner).insert(read);
    });
    std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A load by the writer does not hide the load by the reader.
#[test]
fn writer_load_hides_no_reader_load() {
    assert_eq!(readings(vec![add_by_compare_and_swap]), BTreeSet::from([[0], [1]]));
}

/// A load by a third thread does not hide it either.
#[test]
fn third_thread_load_hides_no_reader_load() {
    let look = |number: &AtomicUsize| {
        let _ = number.load(Ordering::SeqCst);
    };
    assert_eq!(readings(vec![look, add_by_compare_and_swap, look]), BTreeSet::from([[0], [1]]));
}

/// Two loads are tried at all positions among two writes.
#[test]
fn two_loads_race_with_two_writes_in_all_orders() {
    let twice = |number: &AtomicUsize| (0..2).for_each(|_| add_by_compare_and_swap(number));
    let ordered = BTreeSet::from([[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]);
    assert_eq!(readings(vec![twice]), ordered);
}
