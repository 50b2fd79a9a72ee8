//! Models of [`Counted`]. Each has been seen to fail on the bug its comment names.

use super::*;
use crate::reclaim::model;

struct Number(loom::cell::UnsafeCell<u32>);
// SAFETY: written before it is shared only.
unsafe impl Sync for Number {}
impl Object for Number {}

fn number(n: u32) -> Counted<Number> {
    Counted::new(Number(loom::cell::UnsafeCell::new(n)))
}

fn value(n: &Number) -> u32 {
    // SAFETY: nobody writes after sharing; the model checks just that.
    n.0.with(|p| unsafe { *p })
}

/// A reader under a guard against a swap that puts the last reference.
/// Seen to fail: `put` retiring before the pointer left the place (drop before swap); `load` Relaxed.
#[test]
fn load_against_swap() {
    model::check(|| {
        let place = loom::sync::Arc::new(AtomicCounted::new(Some(number(1))));
        let writer = loom::thread::spawn({
            let place = place.clone();
            move || drop(place.swap(Some(number(2))))
        });
        {
            let guard = crate::pin();
            let seen = place.load(&guard).expect("never empty");
            assert!((1..=2).contains(&value(&seen)));
            if let Some(owned) = seen.get() {
                drop(guard);
                assert!((1..=2).contains(&value(&owned)));
            }
        }
        writer.join().expect("the writer ends");
    });
}
