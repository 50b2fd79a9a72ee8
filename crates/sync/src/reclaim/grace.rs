//! `Graces`: grace periods by number, and who reads since which of them.
//!
//! What was unlinked is freed when every guard is gone that was taken before. Grace periods are numbered, and one is under way at
//! a time. Whoever has garbage keeps it, with the number of the next period that begins after it was retired; a period is over
//! when no guard is left of before its beginning. Only this news goes around, and no garbage. A guard is announced in a slot of its thread's
//! own, by the period that had begun last when it was taken: so no reader writes what another one reads, and somebody looks at
//! all slots only when something waits to be freed.
//!
//! **Why what waits for [`Graces::next`] is free when that is over.** Say an object was unlinked (U), then its period was asked
//! for: a fence (F), and the number of the period that began last is read (R), n. Period n + 1 begins with an exchange of n for
//! n + 1 (B), a fence (H), and after that, or after another fence of whoever else looks and has seen n + 1 (H too), all slots
//! are looked at. R saw n and not B, so F comes before H in the one order of the fences. A guard begins with a look at what
//! began last (L), writes that to its slot (A), and then has a fence (G).
//!
//! * L saw n + 1, or more: R comes before B, and B before L, so F comes before G. What is read under that guard shows U or what came later,
//!   and the object cannot be found.
//! * L saw n or less, and G comes before H: who looks sees A, which says so, or what that thread wrote later. So the period is
//!   not over before that guard is gone. (A is a read-modify-write, so the release of the guard before it goes on in it.)
//! * L saw n or less, and G comes after H: so F before G again.
//!
//! A slot that is made meanwhile is linked before A, so what holds of A holds of it.

use crate::facade::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence, fence_after_exchange};

/// The grace periods, and a slot for each thread that reads.
pub(crate) struct Graces {
    /// Only who begins or ends a period writes them.
    periods: Periods,
    /// The first slot. They are never freed: there are as many as there were threads at one time.
    slots: AtomicPtr<Slot>,
}

#[cfg_attr(not(loom), repr(align(128)))]
struct Periods {
    /// The one that began last.
    begun: AtomicU64,
    /// The one that was over last: that one, or the one before it.
    over: AtomicU64,
}

/// Where a thread says that it reads. On lines of its own.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct Slot {
    /// One more than the period that had begun last when its guard was taken; 0 when it has none.
    since: AtomicU64,
    owned: AtomicBool,
    next: *const Slot,
}

impl Graces {
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

    /// The period that what has been unlinked so far waits for.
    pub(crate) fn next(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.periods.begun.load(Ordering::Relaxed) + 1
    }

    /// The last period that is over: what waits for it, or for one before it, is nobody's any more.
    pub(crate) fn over(&self) -> u64 {
        // Acquire: pairs with the release of who ended it, after the guards that it waited for.
        self.periods.over.load(Ordering::Acquire)
    }

    /// Begins a period, unless one is under way.
    pub(crate) fn begin(&self) {
        let begun = self.periods.begun.load(Ordering::Relaxed);
        if self.periods.over.load(Ordering::Relaxed) == begun {
            // Relaxed: a fence follows before anybody looks at slots, and it is what counts. Who fails has been forestalled.
            let _ = self.periods.begun.compare_exchange(begun, begun + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Ends the period that is under way, if there is one and all guards of before its beginning are gone. The caller holds none
    /// itself, or it waits for that.
    pub(crate) fn try_end(&self) {
        let begun = self.periods.begun.load(Ordering::Relaxed);
        if self.periods.over.load(Ordering::Relaxed) == begun {
            return;
        }
        fence(Ordering::SeqCst);
        // Acquire: what was read under those guards was read before.
        if self.slots().all(|slot| !(1..=begun).contains(&slot.since.load(Ordering::Acquire))) {
            // It fails when another thread ended the period first. Wrapping: a late view of `begun` may be 0
            // although the first period is over, and then it fails too.
            let before = begun.wrapping_sub(1);
            let _ = self.periods.over.compare_exchange(before, begun, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// A slot for a thread that has none.
    pub(crate) fn claim(&self) -> &'static Slot {
        // Acquire: what the owner before left there is seen, and goes on.
        let claim =
            |slot: &&Slot| slot.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if let Some(slot) = self.slots().find(claim) {
            return slot;
        }
        let new = Slot { since: AtomicU64::new(0), owned: AtomicBool::new(true), next: std::ptr::null() };
        let new = Box::into_raw(Box::new(new));
        let mut first = self.slots.load(Ordering::Relaxed);
        loop {
            // SAFETY: just made, and nobody else's yet.
            unsafe { (*new).next = first };
            // Release: pairs with the acquire in `slots`.
            match self.slots.compare_exchange(first, new, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: never freed, nor changed from now on but by its atomics.
                Ok(_) => return unsafe { &*new },
                Err(now) => first = now,
            }
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot> {
        // SAFETY: null, or a slot that was linked whole, and is never freed nor changed but by its atomics.
        let slot = |slot: *const Slot| unsafe { slot.as_ref::<'static>() };
        std::iter::successors(slot(self.slots.load(Ordering::Acquire)), move |last| slot(last.next))
    }
}

impl Slot {
    /// A guard begins. There is none.
    #[inline]
    pub(crate) fn enter(&self, graces: &Graces) {
        let begun = graces.periods.begun.load(Ordering::Relaxed);
        // Relaxed: the fence is what counts.
        self.since.swap(begun + 1, Ordering::Relaxed);
        fence_after_exchange();
    }

    /// It is gone.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: what was read under it was read before.
        self.since.store(0, Ordering::Release);
    }

    /// The thread ends, and holds no guard.
    pub(crate) fn give_back(&self) {
        self.owned.store(false, Ordering::Release);
    }
}

// SAFETY: `next` is written before others can see it, and what it leads to is shared and never freed.
unsafe impl Sync for Slot {}

#[cfg(all(test, loom))]
mod loom_model;
