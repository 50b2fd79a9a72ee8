//! Which workers may ask, and when the next call may be made.
//!
//! The number of workers is found by the controllers of [`pando_concurrency`]. A rate limit gives
//! each call an instant, and the worker waits for it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use pando_concurrency::{ByDelay, ByThroughput, Calls, Queue};

pub(super) struct Gate {
    interval: Option<Duration>,
    /// Workers with lower numbers may ask. Written under the lock.
    allowed: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The instant of the next call.
    next_call: Instant,
    controller: Controller,
    /// No worker may take another name.
    drained: bool,
    /// And none waits any more.
    over: bool,
}

/// How the number of workers is found.
enum Controller {
    Throughput(ByThroughput),
    Delay(ByDelay),
}

impl Gate {
    /// For at most `max` workers.
    pub(super) fn new(rate: Option<NonZeroU32>, max: NonZeroUsize, yields: bool) -> Self {
        let controller = if yields {
            Controller::Delay(ByDelay::new(max.get()))
        } else {
            Controller::Throughput(ByThroughput::new(1, max.get(), Queue::Long))
        };
        let state = State { next_call: Instant::now(), controller, drained: false, over: false };
        Self {
            interval: rate.map(|rate| Duration::from_secs(1) / rate.get()),
            allowed: AtomicUsize::new(1),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// How many workers may ask.
    pub(super) fn allowed(&self) -> usize {
        self.allowed.load(Relaxed)
    }

    /// Waits until this worker may take names; false if there are none left to take.
    pub(super) fn wait_until_allowed(&self, worker: usize) -> bool {
        if worker < self.allowed() {
            return true;
        }
        let mut state = self.lock();
        while worker >= self.allowed() && !state.drained {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.drained
    }

    /// Waits for the instant at which the next call may be made; false if all is over.
    pub(super) fn wait_for_rate(&self) -> bool {
        let Some(interval) = self.interval else { return true };
        let mut state = self.lock();
        // An instant that no worker used is lost: no burst makes up for a pause.
        let instant = state.next_call.max(Instant::now());
        state.next_call = instant + interval;
        while !state.over {
            let left = instant.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.over
    }

    /// Takes in calls. True if more workers may ask from now on.
    pub(super) fn learn(&self, calls: Calls) -> bool {
        let mut state = self.lock();
        let next = match &mut state.controller {
            Controller::Throughput(controller) => controller.learn(calls),
            Controller::Delay(controller) => controller.learn(calls),
        };
        let before = self.allowed();
        if next == before {
            return false;
        }
        self.allowed.store(next, Relaxed);
        drop(state);
        self.changed.notify_all();
        next > before
    }

    /// There are no names left to take. Workers that have taken some still wait for their instants.
    pub(super) fn drained(&self) {
        self.lock().drained = true;
        self.changed.notify_all();
    }

    /// No worker waits any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        (state.drained, state.over) = (true, true);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn either_controller_decides_which_workers_may_ask() {
        for yields in [true, false] {
            let gate = Gate::new(None, NonZeroUsize::new(4).unwrap(), yields);
            assert!(gate.wait_until_allowed(0));
            let more = (0..400).filter(|_| gate.allowed() < 4 && gate.learn(Calls::of(1, MS))).count();
            assert_eq!((gate.allowed(), more), (4, if yields { 3 } else { 2 }));
            assert!(gate.wait_until_allowed(3));
        }
    }

    #[test]
    fn calls_keep_the_rate() {
        let gate = Gate::new(NonZeroU32::new(1000), NonZeroUsize::MIN, false);
        let begin = Instant::now();
        assert!((0..10).all(|_| gate.wait_for_rate()));
        let took = begin.elapsed();
        assert!(took >= MS * 9, "the first call is made at once");
    }

    #[test]
    fn names_that_were_taken_keep_their_instant() {
        let gate = Gate::new(NonZeroU32::new(20), NonZeroUsize::new(4).unwrap(), true);
        assert!(gate.wait_for_rate());
        std::thread::scope(|scope| {
            let late = scope.spawn(|| gate.wait_until_allowed(3));
            let call = scope.spawn(|| gate.wait_for_rate());
            gate.drained();
            assert!(!late.join().unwrap());
            assert!(call.join().unwrap());
        });
    }

    #[test]
    fn end_wakes_all_that_wait() {
        let gate = Gate::new(NonZeroU32::new(1), NonZeroUsize::new(4).unwrap(), true);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| gate.wait_until_allowed(3));
            let calls = scope.spawn(|| (0..1000).take_while(|_| gate.wait_for_rate()).count());
            gate.end();
            assert!(!late.join().unwrap());
            assert!(calls.join().unwrap() <= 1);
        });
    }
}
