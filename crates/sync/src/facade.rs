//! The one place that chooses between `std` and the model checker.
//!
//! Everything in this crate imports its atomics, locks and threads from here, so that a model (`*_loom.rs`) checks the
//! very code that ships. So does what allocates by hand: a model fails when memory is left at its end.

#[cfg(loom)]
mod loom_atomics;

#[cfg(loom)]
#[allow(unused_imports)]
pub(crate) use self::loom_atomics::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, Readers};
#[cfg(loom)]
#[allow(unused_imports)]
pub(crate) use loom::{
    alloc::{alloc, alloc_zeroed, dealloc},
    sync::atomic::fence,
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};
#[cfg(not(loom))]
#[allow(unused_imports)]
pub(crate) use std::{
    alloc::{alloc, alloc_zeroed, dealloc},
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

/// A fence (`SeqCst`) between a read-modify-write, which came before it, and what follows: as Linux's
/// `smp_mb__after_atomic`. On x86 such an instruction is a full fence itself, whatever its ordering; there the compiler only
/// is kept from moving anything.
#[inline]
pub(crate) fn fence_after_exchange() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Locks a mutex whose data cannot be left half changed by a panic: poisoning is ignored.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Like [`lock`], but does not wait.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    unless_waiting(mutex.try_lock())
}

/// What was tried for, poisoned or not; none if it would have been waited for.
pub(crate) fn unless_waiting<G>(tried: std::sync::TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// The number of the present thread in its model.
#[cfg(loom)]
pub(crate) fn thread_number() -> usize {
    // loom runs all threads on one, so `std`'s thread-locals do not tell them apart; it tells its own number in the
    // debugging output only.
    let id = format!("{:?}", loom::thread::current().id());
    id.chars().filter_map(|c| c.to_digit(10)).fold(0, |n, digit| n * 10 + digit as usize)
}
