//! Models of grace periods, with threads that read.

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{GracePeriods, Slot};

/// An object that can be found while it is linked.
struct World {
    grace_periods: GracePeriods,
    linked: AtomicBool,
    object: UnsafeCell<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { grace_periods: GracePeriods::new(), linked: AtomicBool::new(true), object: UnsafeCell::new(1) })
    }

    fn read(&self, slot: &Slot) {
        slot.enter(&self.grace_periods);
        if self.linked.load(Ordering::Acquire) {
            // SAFETY: checked by the model: the object is not freed meanwhile.
            self.object.with(|object| assert_eq!(unsafe { *object }, 1));
        }
        slot.leave();
    }

    fn advance(&self) {
        self.grace_periods.begin();
        self.grace_periods.try_end();
    }

    /// Unlinks the object, and frees it if the period that it waits for is over by then. Returns
    /// whether it did.
    fn retire(&self) -> bool {
        self.linked.store(false, Ordering::Relaxed);
        let period = self.grace_periods.next();
        self.advance();
        let over = self.grace_periods.over() >= period;
        if over {
            // SAFETY: checked by the model: no other thread accesses the object.
            self.object.with_mut(|object| unsafe { *object = 0 });
        }
        over
    }
}

/// An object is unlinked and freed while one thread reads and another one advances periods.
///
/// Seen to fail: `next` that returns the period that began last; `next`, `try_end` or `enter`
/// without its fence; the end of a period with Relaxed.
#[test]
fn reachable_object_is_not_freed() {
    loom::model(|| {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read(world.grace_periods.claim())
        });
        let other = thread::spawn({
            let world = world.clone();
            move || world.advance()
        });
        world.retire();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// The same with a reader that returns, and whose slot another thread may have owned in between.
///
/// Seen to fail: a Relaxed load of the slots, or a Relaxed `leave`; `enter` by a store, which
/// breaks the release sequence.
#[test]
fn reused_slot_protects_every_owner() {
    loom::model(|| {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let slot = world.grace_periods.claim();
                world.read(slot);
                slot.give_back();
                world.read(world.grace_periods.claim());
            }
        });
        world.retire();
        reader.join().unwrap();
    });
}

/// A slot belongs to one thread at a time, and there are at most as many as there were threads at
/// one time.
///
/// Seen to fail: a claim by a load and a store; slots that are not claimed again.
#[test]
fn slot_has_one_owner_at_a_time() {
    loom::model(|| {
        let grace_periods = Arc::new(GracePeriods::new());
        let read = |grace_periods: &GracePeriods| {
            let slot = grace_periods.claim();
            assert_eq!(slot.since.load(Ordering::Relaxed), 0, "another thread owns the slot");
            slot.enter(grace_periods);
            slot.leave();
            slot.give_back();
            assert!(grace_periods.slots().count() <= 2);
        };
        let other = thread::spawn({
            let grace_periods = grace_periods.clone();
            move || read(&grace_periods)
        });
        read(&grace_periods);
        read(&grace_periods);
        other.join().unwrap();
    });
}

/// Periods that two threads advance follow one another, and a period that is over stays over.
///
/// Seen to fail: `begin` while a period is in progress; `begin`, or the end, by a load and a store.
#[test]
fn periods_follow_one_another() {
    loom::model(|| {
        let grace_periods = Arc::new(GracePeriods::new());
        let advance = |grace_periods: &GracePeriods| {
            let before = grace_periods.over();
            grace_periods.begin();
            grace_periods.try_end();
            let after = grace_periods.over();
            // No thread reads, so the period in progress, or the thread's own, is over.
            assert!(after > before && after <= 3, "{before}, {after}");
            assert!(grace_periods.next() > after, "an object that is unlinked now waits for a period that is over");
        };
        let other = thread::spawn({
            let grace_periods = grace_periods.clone();
            move || {
                advance(&grace_periods);
                advance(&grace_periods);
            }
        });
        advance(&grace_periods);
        other.join().unwrap();
    });
}
