//! How many threads wait for a call of the backing that an operation needs.

use std::sync::atomic::{AtomicUsize, Ordering};

use pando_sync::{Padded, stripe_hint};

/// Threads are counted in so many places, so that they do not share one cache line.
const STRIPES: usize = 8;

/// The number of threads that wait for a call of the backing, for read-ahead that yields to them.
#[derive(Default)]
pub(crate) struct Foreground([Padded<AtomicUsize>; STRIPES]);

/// A thread that is counted until this is dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Foreground {
    /// Counts this thread. Relaxed: the number is a hint.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        let stripe = &self.0[stripe_hint() % STRIPES].0;
        stripe.fetch_add(1, Ordering::Relaxed);
        Waiting(stripe)
    }

    /// Whether a thread waits.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|stripe| stripe.0.load(Ordering::Relaxed) > 0)
    }
}
