//! How fast, and how many at once.
//!
//! The rate is kept by turns: each call has its instant, and waits for it. With [`Pace::new`]'s `yields`, the number of
//! calls at once follows how long those take that wait: if they take twice as long as at best, somebody else wants the
//! same disk or server (or it is at its limit), and half as many are asked for; otherwise one more. (Lawrence Brakmo,
//! Larry Peterson, "TCP Vegas", 1995, tells a queue by its delay in the same way.)

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::WAITED;

/// Calls whose mean is looked at.
const ROUND: u32 = 32;

pub(super) struct Pace {
    interval: Option<Duration>,
    yields: bool,
    max_in_flight: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The instant of the next turn.
    next_turn: Instant,
    /// Workers with lower numbers may ask.
    allowed: usize,
    /// Of the round: how many calls that waited, and how long they took.
    calls: u32,
    took: Duration,
    /// The mean of the best round.
    best: Option<Duration>,
    /// Nobody may take anything any more.
    drained: bool,
    /// And nobody waits any more.
    over: bool,
}

impl Pace {
    pub(super) fn new(rate: Option<NonZeroU32>, max_in_flight: NonZeroUsize, yields: bool) -> Self {
        let max_in_flight = max_in_flight.get();
        Self {
            interval: rate.map(|rate| Duration::from_secs(1) / rate.get()),
            yields,
            max_in_flight,
            state: Mutex::new(State {
                next_turn: Instant::now(),
                allowed: if yields { 1 } else { max_in_flight },
                calls: 0,
                took: Duration::ZERO,
                best: None,
                drained: false,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until this worker may take something to ask for; false if there is nothing more to take.
    pub(super) fn wait_until_allowed(&self, worker: usize) -> bool {
        if !self.yields {
            return true;
        }
        let mut state = self.lock();
        while worker >= state.allowed && !state.drained {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.drained
    }

    /// Waits for the instant at which the next call may be made; false if all is over.
    pub(super) fn wait_for_turn(&self) -> bool {
        let Some(interval) = self.interval else { return true };
        let mut state = self.lock();
        // A turn that nobody took is lost: no burst makes up for a pause.
        let turn = state.next_turn.max(Instant::now());
        state.next_turn = turn + interval;
        while !state.over {
            let left = turn.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.over
    }

    /// A call took so long. Those that the kernel's caches answered say nothing of the disk or server.
    pub(super) fn took(&self, took: Duration) {
        if !self.yields || took < WAITED {
            return;
        }
        let mut state = self.lock();
        state.calls += 1;
        state.took += took;
        if state.calls >= ROUND {
            let mean = state.took / state.calls;
            (state.calls, state.took) = (0, Duration::ZERO);
            let best = state.best.map_or(mean, |best| best.min(mean));
            state.best = Some(best);
            state.allowed =
                if mean > 2 * best { (state.allowed / 2).max(1) } else { (state.allowed + 1).min(self.max_in_flight) };
            drop(state);
            self.changed.notify_all();
        }
    }

    /// There is nothing more to take. Those who have taken something still wait for their turns.
    pub(super) fn drained(&self) {
        self.lock().drained = true;
        self.changed.notify_all();
    }

    /// Nobody waits any more.
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

    fn allowed(pace: &Pace) -> usize {
        pace.lock().allowed
    }

    #[test]
    fn fewer_are_asked_for_when_answers_get_slower() {
        let pace = Pace::new(None, NonZeroUsize::new(10).unwrap(), true);
        let round = |took| (0..ROUND).for_each(|_| pace.took(took));
        (0..20).for_each(|_| round(MS));
        assert_eq!(allowed(&pace), 10, "one more with each good round, and never more than the limit");
        round(MS * 3);
        assert_eq!(allowed(&pace), 5);
        (0..5).for_each(|_| round(MS * 3));
        assert_eq!(allowed(&pace), 1, "and never none");
        round(MS);
        assert_eq!(allowed(&pace), 2);
        assert!(pace.wait_until_allowed(0) && pace.wait_until_allowed(1));
    }

    #[test]
    fn answers_from_the_caches_say_nothing_of_the_store() {
        let pace = Pace::new(None, NonZeroUsize::new(10).unwrap(), true);
        let round = |took| (0..ROUND).for_each(|_| pace.took(took));
        round(MS / 500);
        (0..20).for_each(|_| round(MS));
        assert_eq!(allowed(&pace), 10);
        round(MS / 500);
        round(MS * 3);
        assert_eq!(allowed(&pace), 5);
    }

    #[test]
    fn turns_come_no_faster_than_the_rate() {
        let pace = Pace::new(NonZeroU32::new(1000), NonZeroUsize::MIN, false);
        let begin = Instant::now();
        assert!((0..10).all(|_| pace.wait_for_turn()));
        assert!(begin.elapsed() >= MS * 9, "the first has its turn at once");
    }

    /// What was taken is asked for, at its turn, although there is no more to take.
    #[test]
    fn who_has_taken_something_keeps_its_turn() {
        let pace = Pace::new(NonZeroU32::new(20), NonZeroUsize::new(4).unwrap(), true);
        assert!(pace.wait_for_turn());
        std::thread::scope(|scope| {
            let late = scope.spawn(|| pace.wait_until_allowed(3));
            let turn = scope.spawn(|| pace.wait_for_turn());
            pace.drained();
            assert!(!late.join().unwrap());
            assert!(turn.join().unwrap());
        });
    }

    #[test]
    fn who_waits_hears_the_end() {
        let pace = Pace::new(NonZeroU32::new(1), NonZeroUsize::new(4).unwrap(), true);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| pace.wait_until_allowed(3));
            let turns = scope.spawn(|| (0..1000).take_while(|_| pace.wait_for_turn()).count());
            pace.end();
            assert!(!late.join().unwrap());
            assert!(turns.join().unwrap() <= 1);
        });
    }
}
