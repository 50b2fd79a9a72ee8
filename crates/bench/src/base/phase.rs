//! The phase of a measurement, which all of its workers share.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::barrier::Barrier;

/// The phase of a measurement. Workers read it between batches. It has a cache line of its own, and
/// is written a few times per measurement.
#[repr(align(128))]
pub(crate) struct Phase {
    now: AtomicU8,
    /// Number of workers that are ready to count. All begin together, however crowded the machine
    /// is.
    counting: AtomicUsize,
}

impl Phase {
    pub(crate) const WARM_UP: u8 = 0;
    pub(crate) const COUNT: u8 = 1;
    pub(crate) const STOP: u8 = 2;
    /// A worker has left. After [`Phase::STOP`] this is the normal end. Before, the worker met an
    /// error or the run was cancelled, and the others must not wait for it.
    pub(crate) const LEFT: u8 = 3;

    pub(crate) fn new() -> Self {
        Self { now: AtomicU8::new(Self::WARM_UP), counting: AtomicUsize::new(0) }
    }

    // Relaxed: the phase says only when to count. The join of the workers publishes their counts.
    pub(crate) fn get(&self) -> u8 {
        self.now.load(Relaxed)
    }

    pub(crate) fn advance(&self, to: u8) {
        self.now.fetch_max(to, Relaxed);
    }

    /// Called by a worker that is ready to count.
    pub(crate) fn add_counting(&self) {
        self.counting.fetch_add(1, Relaxed);
    }

    pub(crate) fn counting(&self) -> usize {
        self.counting.load(Relaxed)
    }
}

/// Sets [`Phase::LEFT`] when a worker leaves, also by a panic.
pub(crate) struct Leaving<'a>(pub(crate) &'a Phase, pub(crate) &'a Barrier);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.advance(Phase::LEFT);
        self.1.break_for_all();
    }
}
