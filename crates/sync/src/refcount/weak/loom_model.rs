//! Models of [`Weak`]. Each has been seen to fail on the bug that its comment names.

use super::*;
use crate::{AtomicCounted, Counted, pin, reclaim::model};
use loom::{sync::Arc, thread};

struct Number(u64);
impl Object for Number {
    fn allows_weak(&self) -> bool {
        true
    }
}

fn number(n: u64) -> Counted<Number> {
    Counted::new(Number(n))
}

/// A thread upgrades a weak pointer while the last reference is put. It reads the object, or learns
/// that it has died. The model fails if a death is counted after the object was retired, or not at
/// all.
#[test]
fn upgrade_races_with_the_last_put() {
    model::check(|| {
        let object = number(1);
        let pointer = object.as_shared().downgrade().expect("alive");
        let other = thread::spawn(move || drop(object));
        {
            let guard = pin();
            if let Some(seen) = pointer.upgrade(&guard) {
                assert_eq!(seen.to_ref().0, 1);
            }
        }
        other.join().expect("it ends");
        assert!(pointer.upgrade(&pin()).is_none(), "it has died");
    });
}

/// A weak pointer is made while the object dies. After the death, it cannot be upgraded. The model
/// fails if `new` reads the count before the deaths, or reads the deaths Relaxed, and if a death is
/// counted Relaxed.
#[test]
fn downgrade_races_with_the_last_put() {
    model::check(|| {
        let place = Arc::new(AtomicCounted::new(Some(number(1))));
        let other = thread::spawn({
            let place = place.clone();
            move || drop(place.swap(None))
        });
        let pointer = {
            let guard = pin();
            place.load(&guard).and_then(Shared::downgrade)
        };
        if let Some(pointer) = &pointer
            && let Some(seen) = pointer.upgrade(&pin())
        {
            assert_eq!(seen.to_ref().0, 1);
        }
        other.join().expect("it ends");
        assert!(pointer.is_none_or(|pointer| pointer.upgrade(&pin()).is_none()), "it has died");
    });
}
