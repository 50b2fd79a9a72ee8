//! `Graces`: grace periods by number, so that garbage need not travel to be waited for.
//!
//! An epoch scheme runs a deferred function when every guard of now is gone, on whichever thread notices. If the function frees
//! garbage, the garbage goes to that thread's core. Here it only notes that a *grace period* is over: they are numbered, and one
//! is under way at a time. Whoever has garbage keeps it, with the number of the next period that begins after it was retired.
//!
//! **Why what waits for [`Graces::next`] is free when that is over.** Say an object was unlinked (U), then its period was asked
//! for: a fence (F), and the number of the period that began last is read (R), n. Period n + 1 begins with an exchange of n for
//! n + 1 (B), a fence (H), and its function is deferred after that (D). R saw n and not B, so F comes before H in the one order
//! of the fences. A guard that is taken before D is waited for: that is what deferring means. One taken after D has a fence
//! after its beginning (G), and it comes after H: so U is before F, F before H, and H before G. What is read under that guard
//! shows U or what came later, and the object cannot be found.

use crate::facade::{AtomicU64, Ordering, fence};

/// The grace periods of one epoch scheme.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct Graces {
    /// The one that began last.
    begun: AtomicU64,
    /// The one that was over last: that one, or the one before it.
    over: AtomicU64,
}

impl Graces {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { begun: AtomicU64::new(0), over: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { begun: AtomicU64::new(0), over: AtomicU64::new(0) }
    }

    /// The period that what has been unlinked so far waits for.
    pub(crate) fn next(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::Relaxed) + 1
    }

    /// The last period that is over: what waits for it, or for one before it, is nobody's any more.
    pub(crate) fn over(&self) -> u64 {
        // Acquire: pairs with the release of who ended it, after the guards that it waited for.
        self.over.load(Ordering::Acquire)
    }

    /// Begins a period, unless one is under way: if it returns a number, the caller defers [`Graces::end`] of it.
    #[must_use = "a period that is not ended keeps all garbage"]
    pub(crate) fn begin(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Relaxed);
        if self.over.load(Ordering::Relaxed) != begun {
            return None;
        }
        // Relaxed: the fence is what counts.
        let exchanged = self.begun.compare_exchange(begun, begun + 1, Ordering::Relaxed, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        exchanged.is_ok().then_some(begun + 1)
    }

    /// All guards that were there when `period` began are gone.
    pub(crate) fn end(&self, period: u64) {
        self.over.store(period, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "grace_loom.rs"]
mod loom_model;
