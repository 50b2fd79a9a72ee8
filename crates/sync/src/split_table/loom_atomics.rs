//! Atomics for the models: loom's, with every access made visible to its search.
//!
//! loom 0.7 remembers, for each atomic, only the *last* access of any kind and the last that wrote. A thread that loads
//! and then compares and swaps therefore hides an earlier load by another thread behind its own load, and the order
//! "swap first" is never tried: of a reader against `load; compare_exchange` one single execution is explored. Here
//! each access is preceded by a relaxed read-modify-write of a word beside the atomic, so that any two accesses of one
//! atomic conflict in the eyes of the search. Relaxed, it orders nothing that the code does not order itself (except
//! through fences on both sides, which are the reclaimer's only).

use loom::sync::atomic as inner;

pub(super) use inner::Ordering;

/// The word beside the atomic.
struct Seen(inner::AtomicUsize);

impl Seen {
    fn new() -> Self {
        Self(inner::AtomicUsize::new(0))
    }
    fn touch(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A pointer.
pub(super) struct AtomicPtr<T> {
    value: inner::AtomicPtr<T>,
    seen: Seen,
}

impl<T> AtomicPtr<T> {
    pub(super) fn new(value: *mut T) -> Self {
        Self { value: inner::AtomicPtr::new(value), seen: Seen::new() }
    }
    pub(super) fn load(&self, order: Ordering) -> *mut T {
        self.seen.touch();
        self.value.load(order)
    }
    pub(super) fn store(&self, value: *mut T, order: Ordering) {
        self.seen.touch();
        self.value.store(value, order);
    }
    pub(super) fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.seen.touch();
        self.value.swap(value, order)
    }
    pub(super) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.seen.touch();
        self.value.compare_exchange(current, new, success, failure)
    }
}

/// A number.
pub(super) struct AtomicUsize {
    value: inner::AtomicUsize,
    seen: Seen,
}

impl AtomicUsize {
    pub(super) fn new(value: usize) -> Self {
        Self { value: inner::AtomicUsize::new(value), seen: Seen::new() }
    }
    pub(super) fn load(&self, order: Ordering) -> usize {
        self.seen.touch();
        self.value.load(order)
    }
    pub(super) fn store(&self, value: usize, order: Ordering) {
        self.seen.touch();
        self.value.store(value, order);
    }
    pub(super) fn fetch_add(&self, n: usize, order: Ordering) -> usize {
        self.seen.touch();
        self.value.fetch_add(n, order)
    }
    pub(super) fn fetch_sub(&self, n: usize, order: Ordering) -> usize {
        self.seen.touch();
        self.value.fetch_sub(n, order)
    }
    pub(super) fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        self.seen.touch();
        self.value.compare_exchange(current, new, success, failure)
    }
}
