//! `GracePeriods`: numbered grace periods, and the slots in which threads announce that they read.
//!
//! An object that was unlinked is freed when every guard that was taken before has been dropped.
//! Grace periods are numbered, and one is in progress at a time. A thread keeps what it retires,
//! with the number of the next period that begins after the retirement. A period is over when no
//! guard from before its beginning is left. Threads share only this number, not the retired
//! objects. A guard is announced in a slot of its thread, as the number of the period that had
//! begun last when it was taken. So no reader writes memory that another reader uses, and a thread
//! looks at all slots only when something waits to be freed.
//!
//! **Why an object that waits for [`GracePeriods::next`] is free when that period is over.** Say an
//! object was unlinked (U), then its period was requested: a fence (F), and a read of the number of
//! the period that began last (R), n. Period n + 1 begins with an exchange of n for n + 1 (B). Then
//! comes a fence (H), and all slots are read. If another thread reads the slots, it has seen n + 1
//! and has passed a fence of its own, which is H too. R saw n and not B, so F comes before H in the
//! total order of the fences. A guard begins with a read of the number that began last (L), writes
//! it to its slot (A), and then has a fence (G).
//!
//! * L saw n + 1 or more: R comes before B, and B before L, so F comes before G. Reads under that
//!   guard see U or a later value, and the object cannot be found.
//! * L saw n or less, and G comes before H: the thread that reads the slots sees A, or a later
//!   write of that thread. So the period is not over before that guard is dropped. (A is a
//!   read-modify-write, so it continues the release sequence of the guard before it.)
//! * L saw n or less, and G comes after H: then F comes before G again.
//!
//! A slot that is added meanwhile is linked before A, so the argument holds for it too.

use crate::facade::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence, fence_after_exchange};

/// The grace periods, and a slot for each thread that reads.
pub(crate) struct GracePeriods {
    /// Written only by threads that begin or end a period.
    periods: Periods,
    /// The head of the list of slots. Slots are never freed: there are as many as there were
    /// threads at one time.
    slots: AtomicPtr<Slot>,
}

#[cfg_attr(not(loom), repr(align(128)))]
struct Periods {
    /// The period that began last.
    begun: AtomicU64,
    /// The period that was over last: `begun`, or the one before it.
    over: AtomicU64,
}

/// Where a thread announces that it reads. On cache lines of its own.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct Slot {
    /// One more than the period that had begun last when the guard was taken; 0 without a guard.
    since: AtomicU64,
    owned: AtomicBool,
    next: *const Slot,
}

impl GracePeriods {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        let periods = Periods { begun: AtomicU64::new(0), over: AtomicU64::new(0) };
        Self { periods, slots: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let periods = Periods { begun: AtomicU64::new(0), over: AtomicU64::new(0) };
        Self { periods, slots: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The period for which everything that has been unlinked so far waits.
    pub(crate) fn next(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.periods.begun.load(Ordering::Relaxed) + 1
    }

    /// The last period that is over. No thread can access an object that waits for it or for an
    /// earlier one.
    pub(crate) fn over(&self) -> u64 {
        // Acquire: pairs with the release of the thread that ended it, after the guards that it
        // waited for.
        self.periods.over.load(Ordering::Acquire)
    }

    /// Begins a period, unless one is in progress.
    pub(crate) fn begin(&self) {
        let begun = self.periods.begun.load(Ordering::Relaxed);
        if self.periods.over.load(Ordering::Relaxed) == begun {
            // Relaxed: a fence follows before any thread reads the slots, and the fence gives the
            // order. The exchange fails if another thread has begun the period first.
            let _ = self.periods.begun.compare_exchange(begun, begun + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Ends the period in progress, if there is one and all guards from before its beginning have
    /// been dropped. If the caller holds such a guard, the period does not end.
    pub(crate) fn try_end(&self) {
        let begun = self.periods.begun.load(Ordering::Relaxed);
        if self.periods.over.load(Ordering::Relaxed) == begun {
            return;
        }
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `leave`, after the reads under those guards.
        if self.slots().all(|slot| !(1..=begun).contains(&slot.since.load(Ordering::Acquire))) {
            // The exchange fails when another thread ended the period first. Wrapping: a late view
            // of `begun` may be 0 although the first period is over. Then the exchange fails too.
            let before = begun.wrapping_sub(1);
            let _ = self.periods.over.compare_exchange(before, begun, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// A slot for a thread that has none.
    pub(crate) fn claim(&self) -> &'static Slot {
        // Acquire: pairs with the release of the previous owner.
        let claim =
            |slot: &&Slot| slot.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if let Some(slot) = self.slots().find(claim) {
            return slot;
        }
        let new = Slot { since: AtomicU64::new(0), owned: AtomicBool::new(true), next: std::ptr::null() };
        let new = Box::into_raw(Box::new(new));
        let mut first = self.slots.load(Ordering::Relaxed);
        loop {
            // SAFETY: just allocated, and not shared yet.
            unsafe { (*new).next = first };
            // Release: pairs with the acquire in `slots`.
            match self.slots.compare_exchange(first, new, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: never freed, and from now on changed only through its atomics.
                Ok(_) => return unsafe { &*new },
                Err(now) => first = now,
            }
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot> {
        // SAFETY: null, or a slot that was linked after it was initialized. It is never freed, and
        // changed only through its atomics.
        let slot = |slot: *const Slot| unsafe { slot.as_ref::<'static>() };
        std::iter::successors(slot(self.slots.load(Ordering::Acquire)), move |last| slot(last.next))
    }
}

impl Slot {
    /// A guard begins. The slot has none.
    #[inline]
    pub(crate) fn enter(&self, grace_periods: &GracePeriods) {
        let begun = grace_periods.periods.begun.load(Ordering::Relaxed);
        // Relaxed: the fence gives the order.
        self.since.swap(begun + 1, Ordering::Relaxed);
        fence_after_exchange();
    }

    /// The guard is dropped.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: pairs with the acquire in `try_end`, after the reads under the guard.
        self.since.store(0, Ordering::Release);
    }

    /// The thread ends and holds no guard. Another thread may claim the slot.
    pub(crate) fn give_back(&self) {
        self.owned.store(false, Ordering::Release);
    }
}

// SAFETY: `next` is written before other threads can see the slot, and it points to a slot that is
// shared and never freed.
unsafe impl Sync for Slot {}

#[cfg(all(test, loom))]
mod loom_model;
