//! Grace periods, model-checked: with a scheme of one reader, who is waited for by looking whether he is there.

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
    thread,
};

use super::Graces;

/// An object that can be found as long as it is linked.
struct World {
    graces: Graces,
    linked: AtomicBool,
    reading: AtomicBool,
    object: UnsafeCell<u32>,
}

impl World {
    fn read(&self) {
        // As an epoch scheme pins: announced, then a fence.
        self.reading.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.linked.load(Ordering::Acquire) {
            // SAFETY: what the model checks: it is not freed meanwhile.
            self.object.with(|object| assert_eq!(unsafe { *object }, 1));
        }
        self.reading.store(false, Ordering::Release);
    }

    /// A period, which is over if nobody reads at an instant after its beginning.
    fn period(&self) {
        if let Some(period) = self.graces.begin()
            && !self.reading.load(Ordering::Acquire)
        {
            self.graces.end(period);
        }
    }
}

/// An object is unlinked and freed while one reads and another one begins periods.
///
/// Seen to fail: `next` that gives the period that began last; `next` without its fence; `begin` without its own; `end` that
/// is Relaxed.
#[test]
fn nothing_is_freed_that_can_be_found() {
    loom::model(|| {
        let world = Arc::new(World {
            graces: Graces::new(),
            linked: AtomicBool::new(true),
            reading: AtomicBool::new(false),
            object: UnsafeCell::new(1),
        });
        let [reader, other] = [World::read, |world: &World| {
            world.period();
            world.period();
        }]
        .map(|work| {
            let world = world.clone();
            thread::spawn(move || work(&world))
        });
        world.linked.store(false, Ordering::Relaxed);
        let period = world.graces.next();
        if world.graces.over() >= period {
            // SAFETY: what the model checks: nobody else is at it.
            world.object.with_mut(|object| unsafe { *object = 0 });
        }
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// Periods that two threads begin follow one another.
///
/// Seen to fail: `begin` while one is under way; `begin` by a load and a store.
#[test]
fn one_period_at_a_time() {
    loom::model(|| {
        let world = Arc::new((Graces::new(), AtomicBool::new(false)));
        let begin = |(graces, under_way): &(Graces, AtomicBool)| {
            if let Some(period) = graces.begin() {
                assert!(!under_way.swap(true, Ordering::SeqCst), "two are under way");
                under_way.store(false, Ordering::SeqCst);
                graces.end(period);
            }
        };
        let other = thread::spawn({
            let world = world.clone();
            move || begin(&world)
        });
        begin(&world);
        other.join().unwrap();
    });
}
