//! The choice of a stripe by a thread.

/// A small number for choosing a stripe. It differs between threads that run at the same time.
///
/// Threads get consecutive numbers when they first ask. So up to `n` threads spread evenly over `n`
/// stripes.
#[inline]
#[must_use]
pub fn stripe_hint() -> usize {
    #[cfg(loom)]
    return crate::facade::thread_number();
    #[cfg(not(loom))]
    {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        std::thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        MINE.try_with(|n| *n).unwrap_or(0)
    }
}
