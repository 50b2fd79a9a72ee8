//! Counts how often locks are acquired, and how often threads wait for them, by class: for
//! measurements.
//!
//! Counted only with the cargo feature `lock-stats`; without it, all of this compiles to nothing.
//! The name locks of one operation count as one acquisition, and each stripe that it waits for
//! counts as one wait. A failed `try_lock` does not count.

use crate::{
    facade::{Mutex, MutexGuard},
    locks::lock_order::LockClass,
};

/// The counts of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockCount {
    /// The class of the locks.
    pub class: LockClass,
    /// How often one was acquired.
    pub acquired: u64,
    /// How often one was not free, and a thread waited.
    pub waited: u64,
}

/// The counts of all classes since the program began, in the order of the classes; `None` without
/// the cargo feature `lock-stats`.
#[must_use]
pub fn lock_counts() -> Option<[LockCount; LockClass::ALL.len()]> {
    #[cfg(all(feature = "lock-stats", not(loom)))]
    return Some(counters::read());
    #[cfg(not(all(feature = "lock-stats", not(loom))))]
    None
}

/// A lock of `class` was taken.
#[inline]
pub(crate) fn acquired(class: LockClass) {
    #[cfg(all(feature = "lock-stats", not(loom)))]
    counters::count(class, counters::ACQUIRED);
    let _ = class;
}

/// A lock of `class` is requested. Counted as acquired, for classes that are not counted elsewhere.
#[inline]
pub(crate) fn entered(class: LockClass) {
    if !matches!(class, LockClass::Names | LockClass::RenameSeq) {
        acquired(class);
    }
}

/// Takes a lock: with `try_lock` if it is free, otherwise with `lock`, which counts as waiting. It
/// does not count as an acquisition, since an operation may take several locks at once.
/// [`enter`](crate::locks::lock_order::enter) counts that, except for names and the rename
/// sequence. Without the feature, takes the lock with `lock`.
#[inline]
pub fn counted<T>(class: LockClass, try_lock: impl FnOnce() -> Option<T>, lock: impl FnOnce() -> T) -> T {
    #[cfg(all(feature = "lock-stats", not(loom)))]
    {
        try_lock().unwrap_or_else(|| {
            counters::count(class, counters::WAITED);
            lock()
        })
    }
    #[cfg(not(all(feature = "lock-stats", not(loom))))]
    {
        let _ = (class, try_lock);
        lock()
    }
}

/// Takes a mutex whose data a panic cannot leave half changed.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>, class: LockClass) -> MutexGuard<'_, T> {
    counted(class, || crate::facade::try_lock(mutex), || crate::facade::lock(mutex))
}

/// Takes a mutex whose order is not checked. Counts an acquisition, and a wait if it was not free.
#[inline]
pub fn lock_counted<T>(mutex: &Mutex<T>, class: LockClass) -> MutexGuard<'_, T> {
    acquired(class);
    lock(mutex, class)
}

#[cfg(all(feature = "lock-stats", not(loom)))]
mod counters {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::LockCount;
    use crate::{
        base::stripe_hint::stripe_hint,
        locks::lock_order::{CLASSES, LockClass},
        tuning::LOCK_STAT_STRIPES,
    };

    pub(super) const ACQUIRED: usize = 0;
    pub(super) const WAITED: usize = 1;

    /// The counts of some threads, on cache lines of their own, so that counting causes no
    /// contention.
    #[repr(align(128))]
    struct Stripe([[AtomicU64; 2]; CLASSES]);

    static COUNTS: [Stripe; LOCK_STAT_STRIPES] =
        [const { Stripe([const { [const { AtomicU64::new(0) }; 2] }; CLASSES]) }; LOCK_STAT_STRIPES];

    pub(super) fn count(class: LockClass, what: usize) {
        // Relaxed: statistics.
        COUNTS[stripe_hint() % LOCK_STAT_STRIPES].0[class as usize][what].fetch_add(1, Relaxed);
    }

    pub(super) fn read() -> [LockCount; CLASSES] {
        LockClass::ALL.map(|class| {
            let sum = |what: usize| COUNTS.iter().map(|stripe| stripe.0[class as usize][what].load(Relaxed)).sum();
            LockCount { class, acquired: sum(ACQUIRED), waited: sum(WAITED) }
        })
    }
}

#[cfg(all(test, feature = "lock-stats", not(loom)))]
mod tests {
    use super::*;
    use crate::{NameKey, NameLocks, SeqRwLock};

    fn count(class: LockClass) -> LockCount {
        lock_counts().expect("the feature is on")[class as usize]
    }

    /// One test, since other tests take locks at the same time: the counts are at least the
    /// expected ones.
    #[test]
    fn locks_and_waits_are_counted() {
        let (names, seq) = (NameLocks::new(1), SeqRwLock::new());
        let name = [NameKey { dir: 1, hash: 1 }];
        let (before, before_seq) = (count(LockClass::Names), count(LockClass::RenameSeq));
        drop(names.lock(&name));
        let held = names.try_lock(&name).expect("free");
        assert!(count(LockClass::Names).acquired >= before.acquired + 2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(names.lock(&name)));
            while count(LockClass::Names).waited == before.waited {
                std::thread::yield_now();
            }
            drop(held);
            waiter.join().expect("no panic");
        });
        drop(seq.lock().write());
        drop(seq.lock());
        assert!(count(LockClass::RenameSeq).acquired >= before_seq.acquired + 2);
        assert_eq!(lock_counts().expect("on").map(|count| count.class), LockClass::ALL);
    }

    /// Waits until `class` has one more wait than before `blocked` was started; then `release` lets
    /// `blocked` continue.
    fn waits(class: LockClass, release: impl FnOnce(), blocked: impl FnOnce() + Send) {
        let before = count(class);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(blocked);
            while count(class).waited == before.waited {
                std::thread::yield_now();
            }
            release();
            waiter.join().expect("no panic");
        });
        assert!(count(class).acquired > before.acquired, "{class:?}");
    }

    #[test]
    fn wait_for_a_handle_is_counted() {
        let position = crate::Position::new(0);
        let io = position.begin();
        waits(LockClass::Handle, || assert!(io.finish(1)), || assert!(position.begin().finish(2)));
    }

    #[test]
    fn mutexes_of_a_class_are_counted() {
        let mutex = crate::ClassMutex::new(LockClass::Topology);
        let before = count(LockClass::Topology).acquired;
        let held = mutex.try_lock().expect("free");
        assert!(count(LockClass::Topology).acquired > before);
        waits(LockClass::Topology, || drop(held), || drop(mutex.lock()));
    }

    #[test]
    fn mutexes_outside_of_the_order_are_counted() {
        let mutex = Mutex::new(0);
        let held = lock_counted(&mutex, LockClass::Xattrs);
        waits(LockClass::Xattrs, || drop(held), || *lock_counted(&mutex, LockClass::Xattrs) += 1);
    }
}
