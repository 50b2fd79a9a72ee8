//! Guards: which thread reads, since when, and when a thread that reads frees expired bags.

use std::cell::Cell;

use super::{grace::Slot, scheme::GRACE_PERIODS, thread};
use crate::tuning::IDLE_READS;

/// The guards of a thread. It has no destructor, so it exists as long as the thread does.
pub(super) struct Reading {
    /// Where the thread announces its guards, once it has done so.
    slot: Cell<Option<&'static Slot>>,
    guards: Cell<usize>,
    /// Guards until the thread runs the reclaimer again (`thread::run`).
    countdown: Cell<u32>,
    /// The thread's other locals are gone. From now on it has a slot only while it reads.
    ends: Cell<bool>,
    /// The thread is freeing retired objects, and waits for none: it might wait for what it frees.
    frees: Cell<bool>,
}

std::thread_local!(static READING: Reading = const { Reading::new() });

impl Reading {
    const fn new() -> Self {
        Self {
            slot: Cell::new(None),
            guards: Cell::new(0),
            countdown: Cell::new(IDLE_READS),
            ends: Cell::new(false),
            frees: Cell::new(false),
        }
    }

    #[inline]
    fn enter(&self) {
        if self.guards.get() == 0 && self.countdown.get() == 0 {
            run();
        }
        // Read only now. An object that is freed must not take a guard, but if it does, and keeps
        // it, there is one.
        let guards = self.guards.get();
        if guards == 0 {
            self.countdown.set(self.countdown.get().saturating_sub(1));
            self.slot.get().unwrap_or_else(|| self.claim()).enter(&GRACE_PERIODS);
        }
        self.guards.set(guards + 1);
    }

    #[inline]
    fn leave(&self) {
        let guards = self.guards.get() - 1;
        self.guards.set(guards);
        if guards == 0 {
            if let Some(slot) = self.slot.get() {
                slot.leave();
            }
            if self.ends.get() {
                self.give_back();
            }
        }
    }

    #[cold]
    fn claim(&self) -> &'static Slot {
        // The thread's other locals give the slot back when they are dropped.
        if !thread::has_locals() {
            self.ends.set(true);
        }
        let slot = GRACE_PERIODS.claim();
        self.slot.set(Some(slot));
        slot
    }

    #[cold]
    fn give_back(&self) {
        self.ends.set(true);
        if self.guards.get() == 0
            && let Some(slot) = self.slot.take()
        {
            slot.give_back();
        }
    }
}

/// A guard. It belongs to its thread.
pub(crate) struct Inner(());

#[inline]
pub(crate) fn pin() -> Inner {
    READING.with(Reading::enter);
    Inner(())
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        READING.with(Reading::leave);
    }
}

#[cfg(test)]
pub(super) fn is_pinned() -> bool {
    READING.with(|reading| reading.guards.get() > 0)
}

/// Whether this thread can wait until everything is freed that may be: it holds no guard, and is
/// not freeing something itself.
pub(super) fn may_wait() -> bool {
    READING.with(|reading| reading.guards.get() == 0 && !reading.frees.get())
}

/// The thread's next guard runs the reclaimer.
pub(super) fn run_soon() {
    READING.with(|reading| reading.countdown.set(0));
}

/// The thread's other locals are gone.
pub(super) fn end() {
    READING.with(Reading::give_back);
}

/// The thread holds no guard.
#[cold]
fn run() {
    if !may_wait() {
        // An object that is being freed does not free others: no stack grows with the retired
        // objects.
        return;
    }
    let again = thread::run();
    READING.with(|reading| reading.countdown.set(again));
}

/// Until it is dropped, this thread frees.
pub(super) struct Freeing {
    before: bool,
}

impl Freeing {
    pub(super) fn new() -> Self {
        Self { before: READING.with(|reading| reading.frees.replace(true)) }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        READING.with(|reading| reading.frees.set(self.before));
    }
}
