//! Accounting and back-pressure: how much waits, and how a thread waits until it is freed.

use std::sync::atomic::Ordering;

use super::{
    filling::Filling,
    guards::may_wait,
    retire_list::{RetireList, SHARED},
    scheme::{GRACE_PERIODS, LISTS},
    thread::{flush, free_expired, number, with_filling},
};
use crate::tuning::{COLLECT_MORE, COLLECT_ROUNDS, PRESSURE_SLEEP, PRESSURE_YIELDS, RETIRE_LISTS};

pub(crate) fn retired_bytes() -> usize {
    LISTS.iter().map(|list| list.bytes.load(Ordering::Relaxed)).sum::<i64>().max(0) as usize
}

pub(crate) fn collect() {
    collect_with(&Idle::none());
}

pub(crate) fn collect_all() {
    // First, so that `Idle::now` counts the objects that this thread has retired itself.
    flush();
    collect_with(&Idle::now());
}

/// The lists into which the threads that use them have put nothing since. They get no further
/// objects, except those that are retired when theirs are freed. Busy threads retire without end.
pub(super) struct Idle {
    /// How many lists that threads can own are among them. None: there are no idle lists.
    owned: Option<usize>,
    filled: [usize; RETIRE_LISTS + 1],
}

impl Idle {
    fn none() -> Self {
        Self { owned: None, filled: [0; RETIRE_LISTS + 1] }
    }

    pub(super) fn now() -> Self {
        let mut now = Self { owned: Some(LISTS.used()), ..Self::none() };
        for number in now.numbers() {
            now.filled[number] = LISTS.get(number).filled.load(Ordering::Relaxed);
        }
        now
    }

    /// The numbers of the lists, with that of the shared one.
    fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        self.owned.into_iter().flat_map(|owned| (0..owned).chain([SHARED]))
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = &'static RetireList> {
        let is_idle = |number: &usize| LISTS.get(*number).filled.load(Ordering::Relaxed) == self.filled[*number];
        self.numbers().filter(is_idle).map(|number| LISTS.get(number))
    }
}

/// Returns when everything that this thread has retired is freed, and what waits in the lists of
/// the `idle`, and what that frees in turn.
fn collect_with(idle: &Idle) {
    if !may_wait() {
        return;
    }
    let period = GRACE_PERIODS.next();
    let is_done = |filling: &Filling| filling.is_empty() && filling.own().is_done();
    let all_done = || with_filling(is_done).unwrap_or(true) && idle.lists().all(RetireList::is_done);
    // A thread that frees some of what was retired here waits for no other. But what the threads
    // without lists of their own have retired is in the shared list, and some thread may always be
    // freeing there.
    let is_at_rest = |filling: &Filling| filling.number == SHARED || filling.own().is_at_rest();
    let all_rest = || with_filling(is_at_rest).unwrap_or(true) && idle.lists().all(RetireList::is_at_rest);
    let (mut rounds, mut more) = (0, 0);
    while rounds < COLLECT_ROUNDS {
        let freed = advance(idle);
        // Everything that was retired before this call is freed, and everything that this retired.
        if GRACE_PERIODS.over() >= period && all_done() {
            break;
        }
        if more == COLLECT_MORE {
            rounds += 1;
        } else if freed {
            (rounds, more) = (0, more + 1);
        } else if all_rest() {
            rounds += 1;
        } else {
            more += 1;
            std::thread::yield_now();
        }
    }
}

/// Begins a grace period if none is in progress, and ends the one in progress if it can.
pub(super) fn advance_periods() {
    GRACE_PERIODS.begin();
    GRACE_PERIODS.try_end();
}

/// Flushes this thread's bag, full or not, and frees what has expired in all lists. Says whether it
/// freed something of its own or of the `idle`. The thread holds no guard.
fn advance(idle: &Idle) -> bool {
    flush();
    advance_periods();
    let number = number();
    let counts = |list: &RetireList| {
        let is = |other: &'static RetireList| std::ptr::eq(other, list);
        number != SHARED && is(LISTS.get(number)) || idle.lists().any(is)
    };
    LISTS.iter().filter(|list| free_expired(list, 0, usize::MAX) > 0 && counts(list)).count() > 0
}

pub(crate) fn back_pressure(limit_bytes: usize) {
    let mut spins = 0_u32;
    while retired_bytes() >= limit_bytes.max(1) && may_wait() {
        advance(&Idle::none());
        flush();
        if LISTS.iter().all(RetireList::is_done) {
            // The rest is in the bags of other threads, which may be asleep.
            break;
        }
        spins += 1;
        if spins < PRESSURE_YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PRESSURE_SLEEP);
        }
    }
}
