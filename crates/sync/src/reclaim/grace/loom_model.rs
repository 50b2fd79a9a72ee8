//! Grace periods, model-checked, with the threads that read.

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{Graces, Slot};

/// An object that can be found as long as it is linked.
struct World {
    graces: Graces,
    linked: AtomicBool,
    object: UnsafeCell<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { graces: Graces::new(), linked: AtomicBool::new(true), object: UnsafeCell::new(1) })
    }

    fn read(&self, slot: &Slot) {
        slot.enter(&self.graces);
        if self.linked.load(Ordering::Acquire) {
            // SAFETY: what the model checks: it is not freed meanwhile.
            self.object.with(|object| assert_eq!(unsafe { *object }, 1));
        }
        slot.leave();
    }

    fn push(&self) {
        self.graces.begin();
        self.graces.try_end();
    }

    /// Detached, and freed if the period that it waits for is over by then. Says whether it was.
    fn retire(&self) -> bool {
        self.linked.store(false, Ordering::Relaxed);
        let period = self.graces.next();
        self.push();
        let over = self.graces.over() >= period;
        if over {
            // SAFETY: what the model checks: nobody else is at it.
            self.object.with_mut(|object| unsafe { *object = 0 });
        }
        over
    }
}

/// An object is unlinked and freed while one reads and another one pushes periods.
///
/// Seen to fail: `next` that gives the period that began last; `next`, `try_end` or `enter` without its fence; an end that is
/// Relaxed.
#[test]
fn nothing_is_freed_that_can_be_found() {
    loom::model(|| {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read(world.graces.claim())
        });
        let other = thread::spawn({
            let world = world.clone();
            move || world.push()
        });
        world.retire();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// The same with a reader who comes back, and whose slot goes to another thread in between.
///
/// Seen to fail: a look, or `leave`, that is Relaxed; `enter` by a store, which ends what the release before it began.
#[test]
fn a_slot_tells_of_all_who_had_it() {
    loom::model(|| {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let slot = world.graces.claim();
                world.read(slot);
                slot.give_back();
                world.read(world.graces.claim());
            }
        });
        world.retire();
        reader.join().unwrap();
    });
}

/// A slot is one thread's at a time, and there are no more than there were threads at one time.
///
/// Seen to fail: a claim by a load and a store; slots that are not claimed again.
#[test]
fn slots_belong_to_one_thread_each() {
    loom::model(|| {
        let graces = Arc::new(Graces::new());
        let read = |graces: &Graces| {
            let slot = graces.claim();
            assert_eq!(slot.since.load(Ordering::Relaxed), 0, "somebody else has it");
            slot.enter(graces);
            slot.leave();
            slot.give_back();
            assert!(graces.slots().count() <= 2);
        };
        let other = thread::spawn({
            let graces = graces.clone();
            move || read(&graces)
        });
        read(&graces);
        read(&graces);
        other.join().unwrap();
    });
}

/// Periods that two threads push follow one another, and what is over stays over.
///
/// Seen to fail: `begin` while one is under way; `begin`, or the end, by a load and a store.
#[test]
fn one_period_at_a_time() {
    loom::model(|| {
        let graces = Arc::new(Graces::new());
        let push = |graces: &Graces| {
            let before = graces.over();
            graces.begin();
            graces.try_end();
            let after = graces.over();
            // Nobody reads: the one that was under way, or its own, is over.
            assert!(after > before && after <= 3, "{before}, {after}");
            assert!(graces.next() > after, "what is unlinked now waits for what is over");
        };
        let other = thread::spawn({
            let graces = graces.clone();
            move || {
                push(&graces);
                push(&graces);
            }
        });
        push(&graces);
        other.join().unwrap();
    });
}
