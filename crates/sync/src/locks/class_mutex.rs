//! `ClassMutex`: a mutex with a place in the order of locks.

use crate::{
    facade::{self, Mutex, MutexGuard},
    locks::{
        lock_order::{self, Held, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

/// A mutex without data. Its order is asserted ([`lock_order`]), and waits for it are counted
/// ([`crate::lock_counts`]).
#[derive(Debug)]
pub struct ClassMutex {
    mutex: Mutex<()>,
    class: LockClass,
}

/// Holds a [`ClassMutex`].
#[derive(Debug)]
pub struct ClassGuard<'a> {
    _guard: MutexGuard<'a, ()>,
    _held: Held,
}

impl ClassMutex {
    /// A mutex of a class.
    #[must_use]
    pub fn new(class: LockClass) -> Self {
        Self { mutex: Mutex::new(()), class }
    }

    /// Takes the mutex, and waits for its holder.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a reclamation guard or a lock of this class or a
    /// later one.
    pub fn lock(&self) -> ClassGuard<'_> {
        assert_unpinned("a mutex");
        let held = lock_order::enter(self.class);
        ClassGuard { _guard: lock_stats::lock(&self.mutex, self.class), _held: held }
    }

    /// Takes the mutex if it is free. Does not wait, so it may be called under a guard.
    pub fn try_lock(&self) -> Option<ClassGuard<'_>> {
        let guard = facade::try_lock(&self.mutex)?;
        lock_stats::acquired(self.class);
        Some(ClassGuard { _guard: guard, _held: lock_order::entered_without_waiting(self.class) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn second_thread_waits_for_the_holder() {
        let mutex = ClassMutex::new(LockClass::Topology);
        let held = mutex.lock();
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| mutex.try_lock().is_none()).join().expect("no panic"));
            let waiter = scope.spawn(|| drop(mutex.lock()));
            drop(held);
            waiter.join().expect("no panic");
        });
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Topology was asked for while Names is held")]
    fn lock_order_is_asserted() {
        let _names = lock_order::enter(LockClass::Names);
        let topology = ClassMutex::new(LockClass::Topology);
        drop(topology.lock());
    }
}
