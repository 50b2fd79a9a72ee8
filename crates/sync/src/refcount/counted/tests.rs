//! Tests of reference-counted objects.

use super::*;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

struct Probe {
    last_puts: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}
impl Object for Probe {
    fn last_put(&self) {
        self.last_puts.fetch_add(1, SeqCst);
    }
}
impl Drop for Probe {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

#[test]
fn last_put_is_immediate_and_drop_waits_for_guards() {
    let (last_puts, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let place = AtomicCounted::new(Some(Counted::new(Probe { last_puts: last_puts.clone(), drops: drops.clone() })));
    let guard = reclaim::pin();
    let seen = place.load(&guard).expect("the place is full");
    drop(place.swap(None));
    assert_eq!(last_puts.load(SeqCst), 1);
    assert!(seen.get().is_none(), "a dead object gave out a reference");
    assert_eq!(drops.load(SeqCst), 0, "dropped under a guard");
    drop(guard);
    while drops.load(SeqCst) == 0 {
        reclaim::collect();
        std::thread::yield_now();
    }
}

/// It could recurse on a thread that ends: see [`reclaim::release`].
#[test]
#[cfg(all(debug_assertions, not(miri)))]
#[should_panic(expected = "an object that is being released takes a guard")]
fn taking_a_guard_while_releasing_panics() {
    struct Pinning;
    impl Object for Pinning {
        fn last_put(&self) {
            drop(reclaim::pin());
        }
    }
    drop(Counted::new(Pinning));
}

#[test]
fn objects_of_a_pair_die_independently() {
    let count = || (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ((a_last, a_drops), (b_last, b_drops)) = (count(), count());
    for first_goes_first in [true, false] {
        let b = Probe { last_puts: b_last.clone(), drops: b_drops.clone() };
        let ([a, more], b) = Counted::pair(
            || b,
            |b| {
                assert_eq!(Counted::count(&b), 2);
                Probe { last_puts: a_last.clone(), drops: a_drops.clone() }
            },
        );
        assert_eq!((Counted::count(&a), Counted::count(&b)), (2, 1));
        drop(more);
        let before = (a_last.load(SeqCst), b_last.load(SeqCst));
        if first_goes_first {
            drop(a);
            assert_eq!((a_last.load(SeqCst), b_last.load(SeqCst)), (before.0 + 1, before.1));
            drop(b);
        } else {
            drop(b);
            assert_eq!((a_last.load(SeqCst), b_last.load(SeqCst)), (before.0, before.1 + 1));
            drop(a);
        }
    }
    while a_drops.load(SeqCst) + b_drops.load(SeqCst) < 4 {
        reclaim::collect();
        std::thread::yield_now();
    }
}

/// A caller may have kept the second object. It lives on, and the memory is freed with it
/// alone.
#[test]
fn pair_survives_a_panic_in_the_first_constructor() {
    let (last_puts, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let second = Probe { last_puts, drops: drops.clone() };
    let mut given = None;
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Counted::<Probe>::pair(
            || second,
            |second| {
                given = Some(second);
                panic!("on purpose")
            },
        )
    }));
    let given = given.filter(|_| made.is_err()).expect("given before the panic");
    assert_eq!(Counted::count(&given), 1);
    let block = given.into_raw();
    // SAFETY: `into_raw` gave the only reference, and `pair` wrote the tag.
    assert!(unsafe { Pair::free(block, (*block).refs.tag()) });
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn dropped_place_puts_its_reference() {
    let (last_puts, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    drop(AtomicCounted::new(Some(Counted::new(Probe { last_puts: last_puts.clone(), drops }))));
    assert_eq!(last_puts.load(SeqCst), 1);
}

#[test]
fn failed_compare_exchange_returns_the_new_reference() {
    #[derive(Debug)]
    struct Number(u32);
    impl Object for Number {}
    let place = AtomicCounted::new(Some(Counted::new(Number(1))));
    let other = Counted::new(Number(2));
    let back = place.compare_exchange(None, Some(other)).expect_err("the place was not empty");
    assert_eq!(back.map(|n| n.0), Some(2));
    let guard = reclaim::pin();
    let now = place.load(&guard);
    let old = place.compare_exchange(now, None).expect("unchanged");
    assert_eq!(old.map(|n| n.0), Some(1));
    assert!(place.is_none());
}
