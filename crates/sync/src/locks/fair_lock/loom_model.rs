//! Models of [`FairLock`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use loom::{cell::UnsafeCell, sync::Arc, thread};

struct World(FairLock, UnsafeCell<u32>);
// SAFETY: the cell is accessed under the lock. The model checks this.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

/// Three threads take the lock, two of them twice. They exclude each other, and none sleeps for
/// ever. Seen to fail: `woken` not reset by a head that was woken in vain (it sleeps for ever);
/// `held` not checked by a newcomer (two holders); no wake-up when the lock is released.
#[test]
fn holders_exclude_each_other_and_waiters_are_woken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let world = Arc::new(World(FairLock::new(), UnsafeCell::new(0)));
        let work = |world: &World, times| {
            for _ in 0..times {
                let _guard = world.0.lock();
                // SAFETY: the lock is held.
                world.1.with_mut(|p| unsafe { *p += 1 });
            }
        };
        let threads: Vec<_> = [1, 2]
            .map(|times| {
                let world = world.clone();
                thread::spawn(move || work(&world, times))
            })
            .into();
        work(&world, 2);
        threads.into_iter().for_each(|t| t.join().expect("ends"));
        // SAFETY: the other threads have ended.
        assert_eq!(world.1.with(|p| unsafe { *p }), 5);
    });
}

/// Three threads wait, two of them on the same condition variable, and a newcomer passes them.
/// Seen to fail: a wake-up of only one of the threads that share a condition variable.
#[test]
fn waiters_on_one_condition_variable_are_all_woken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let lock = Arc::new(FairLock::new());
        let threads = [(); 3].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || drop(lock.lock()))
        });
        (0..2).for_each(|_| drop(lock.lock()));
        threads.into_iter().for_each(|t| t.join().expect("ends"));
    });
}
