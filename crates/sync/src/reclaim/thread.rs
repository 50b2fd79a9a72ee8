//! When a thread frees expired bags: its own, and some of other threads.

use std::cell::Cell;

use super::{
    filling::Filling,
    guards::{self, Freeing},
    release,
    retire_list::{RetireList, Retired, SHARED},
    scheme::{GRACE_PERIODS, LISTS},
};
use crate::tuning::{ENOUGH_BAGS, FREE_BATCH, FREE_FRACTION, FRESH_PERIODS, IDLE_READS, READS, RUN_BAGS, VISIT};

/// The thread's open bag, and when it runs the reclaimer.
struct Local {
    filling: Filling<'static>,
    /// Bags that were filled since the last run.
    filled: Cell<u32>,
    /// How often the thread ran the reclaimer.
    runs: Cell<u32>,
    /// The list that it visited last.
    visited: Cell<usize>,
}

std::thread_local!(static LOCAL: Local = Local::new());

/// The number of this thread's list: the shared one once its locals are gone, as it ends.
pub(super) fn number() -> usize {
    LOCAL.try_with(|local| local.filling.number).unwrap_or(SHARED)
}

/// Whether this thread's locals are there still. Makes them if they never were.
pub(super) fn has_locals() -> bool {
    LOCAL.try_with(|_| ()).is_ok()
}

/// Calls `f` with what this thread fills. None: its locals are gone.
pub(super) fn with_filling<T>(f: impl FnOnce(&Filling<'static>) -> T) -> Option<T> {
    LOCAL.try_with(|local| f(&local.filling)).ok()
}

impl Local {
    fn new() -> Self {
        let (filled, runs, visited) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Self { filling: Filling::new(&GRACE_PERIODS, &LISTS), filled, runs, visited }
    }

    #[inline]
    fn retire(&self, retired: Retired) {
        if self.filling.retire(retired) {
            let filled = self.filled.get() + 1;
            self.filled.set(filled);
            if filled >= RUN_BAGS {
                guards::run_soon();
            }
        }
    }

    /// Begins or ends a grace period, and frees some expired bags. The thread holds no guard.
    /// Returns after how many guards the thread is to do so again.
    fn run(&self) -> u32 {
        let reads = self.filled.replace(0) < RUN_BAGS;
        if reads {
            // It may take long until this bag is full.
            self.filling.flush();
        }
        let waiting = self.filling.own().waiting();
        let runs = self.runs.get().wrapping_add(1);
        self.runs.set(runs);
        let idle = reads && waiting == 0;
        let left_behind = (idle || runs.is_multiple_of(VISIT)) && self.visit();
        if left_behind || waiting >= if reads { 1 } else { ENOUGH_BAGS } {
            GRACE_PERIODS.begin();
        }
        GRACE_PERIODS.try_end();
        free_expired(self.filling.own(), 0, FREE_BATCH.max(waiting / FREE_FRACTION));
        match () {
            () if self.filled.get() >= RUN_BAGS => 0,
            () if idle => IDLE_READS,
            () => READS,
        }
    }

    /// Visits another list. Says whether no thread owns it and it still holds
    /// something.
    fn visit(&self) -> bool {
        let visited = self.visited.get().wrapping_add(1) % (LISTS.used() + 1);
        self.visited.set(visited);
        // The last list is the shared one, which no thread owns.
        LISTS.iter().nth(visited).is_some_and(|list| {
            let owned = list.owned.load(std::sync::atomic::Ordering::Relaxed);
            free_expired(list, if owned { FRESH_PERIODS } else { 0 }, FREE_BATCH);
            !owned && list.waiting() > 0
        })
    }
}

impl Drop for Local {
    /// Other threads free the objects that wait.
    fn drop(&mut self) {
        self.filling.end();
        guards::end();
    }
}

/// Runs the reclaimer. Returns after how many guards the thread is to do so again.
pub(super) fn run() -> u32 {
    // Without its locals, the thread is ending.
    LOCAL.try_with(Local::run).unwrap_or(IDLE_READS)
}

/// # Safety
/// As for [`crate::reclaim::retire`].
#[inline]
pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    account(bytes as i64);
    let retired = Retired(ptr, bytes, free);
    if LOCAL.try_with(|local| local.retire(retired)).is_err() {
        // The thread is ending.
        let shared = LISTS.get(SHARED);
        shared.count_filled(SHARED);
        shared.push(GRACE_PERIODS.next(), vec![retired]);
    }
}

/// Adds to the bytes that wait.
pub(super) fn account(delta: i64) {
    LISTS.account(number(), delta);
}

/// Moves this thread's bag into its list, where every thread can free it.
pub(crate) fn flush() {
    let _ = with_filling(Filling::flush);
}

/// Frees bags of `list` that expired `age` grace periods ago or earlier, `most` of them at most.
/// Returns how many.
pub(super) fn free_expired(list: &'static RetireList, age: u64, most: usize) -> usize {
    let _freeing = Freeing::new();
    let free_one = |Retired(ptr, bytes, free): Retired| {
        account(-(bytes as i64));
        // SAFETY: the contract of `retire`, and the grace period has passed.
        release(|| unsafe { free(ptr) });
    };
    let period = GRACE_PERIODS.over().saturating_sub(age);
    let free = |thread: Option<&Filling<'static>>| list.free_expired(period, most, thread, free_one);
    LOCAL.try_with(|local| free(Some(&local.filling))).unwrap_or_else(|_| free(None))
}
