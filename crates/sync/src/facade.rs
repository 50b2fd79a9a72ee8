//! The one place that chooses between `std` and the model checker.
//!
//! Everything in this crate imports its atomics, locks and threads from here. So a model checks the
//! code that ships. Memory that is allocated by hand comes from here too: a model fails if memory
//! is still allocated at its end.

#[cfg(loom)]
mod loom_atomics;
#[cfg(not(any(loom, miri)))]
mod mimalloc;

#[cfg(loom)]
#[allow(unused_imports)]
pub(crate) use self::loom_atomics::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, Readers};
#[cfg(not(any(loom, miri)))]
pub(crate) use self::mimalloc::{alloc, alloc_zeroed, dealloc, release_free_memory};
#[cfg(loom)]
#[allow(unused_imports)]
pub(crate) use loom::{
    alloc::{alloc, alloc_zeroed, dealloc},
    sync::atomic::fence,
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};
#[cfg(all(miri, not(loom)))]
pub(crate) use std::alloc::{alloc, alloc_zeroed, dealloc};
#[cfg(not(loom))]
#[allow(unused_imports)]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

/// The allocator of the model checker, and that of the interpreter Miri, keep no free memory.
#[cfg(any(loom, miri))]
pub(crate) fn release_free_memory() {}

/// A `SeqCst` fence between a read-modify-write before it and the accesses after it, like Linux's
/// `smp_mb__after_atomic`. On x86 a read-modify-write is a full fence itself, whatever its
/// ordering. There only the compiler is kept from reordering.
#[inline]
pub(crate) fn fence_after_exchange() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Locks a mutex whose data a panic cannot leave half changed. Poisoning is ignored.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Like [`lock`], but does not wait.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    unless_waiting(mutex.try_lock())
}

/// The guard, poisoned or not; `None` if the caller would have to wait.
pub(crate) fn unless_waiting<G>(tried: std::sync::TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// The number of the current thread in its model.
#[cfg(loom)]
pub(crate) fn thread_number() -> usize {
    // loom runs all threads of a model on one OS thread, so `std`'s thread-locals do not
    // distinguish them. loom shows its own number only in the `Debug` output.
    let id = format!("{:?}", loom::thread::current().id());
    id.chars().filter_map(|c| c.to_digit(10)).fold(0, |n, digit| n * 10 + digit as usize)
}
