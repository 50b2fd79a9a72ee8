//! How fast, and how many at once.
//!
//! The rate is kept by turns: each call has its instant, and waits for it.
//!
//! The number of workers is the one that gets most done ([`Trial`]). With [`Pace::new`]'s `yields` it follows how long those
//! calls take that wait: if they take twice as long as at best, somebody else wants the same disk or server, and half as
//! many are asked for; otherwise one more. (Lawrence Brakmo, Larry Peterson, "TCP Vegas", 1995, tells a queue by its
//! delay in the same way.)

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::trial::{Calls, Trial};

/// With `yields`: how many calls that waited there are whose mean is looked at.
const YIELDING_WAITS: u32 = 32;

pub(super) struct Pace {
    interval: Option<Duration>,
    /// Workers with lower numbers may ask. Changes under the lock.
    allowed: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The instant of the next turn.
    next_turn: Instant,
    policy: Policy,
    /// Nobody may take anything any more.
    drained: bool,
    /// And nobody waits any more.
    over: bool,
}

/// How the number of workers is found.
enum Policy {
    /// By the delay of calls: those of this round, and the mean of the best one.
    Yields { most: usize, round: Calls, best: Option<Duration> },
    /// By what gets done.
    Hurries(Trial),
}

impl Pace {
    /// For at most `most` workers.
    pub(super) fn new(rate: Option<NonZeroU32>, most: NonZeroUsize, yields: bool) -> Self {
        let policy = if yields {
            Policy::Yields { most: most.get(), round: Calls::default(), best: None }
        } else {
            Policy::Hurries(Trial::new(most.get()))
        };
        let state = State { next_turn: Instant::now(), policy, drained: false, over: false };
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

    /// Waits until this worker may take something to ask for; false if there is nothing more to take.
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

    /// What some calls took. True if more workers may ask from now on.
    pub(super) fn learn(&self, calls: Calls) -> bool {
        let mut state = self.lock();
        let allowed = self.allowed();
        let next = match &mut state.policy {
            Policy::Yields { most, round, best } => yielding(round, best, calls, allowed).min(*most),
            Policy::Hurries(trial) => trial.next(calls, allowed),
        };
        if next == allowed {
            return false;
        }
        self.allowed.store(next, Relaxed);
        drop(state);
        self.changed.notify_all();
        next > allowed
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

/// How many are asked for at once, next. What the kernel's caches answered says nothing of the disk or server.
fn yielding(round: &mut Calls, best: &mut Option<Duration>, calls: Calls, allowed: usize) -> usize {
    round.add_all(calls);
    if round.waits < YIELDING_WAITS {
        return allowed;
    }
    let mean = round.waited / round.waits;
    *round = Calls::default();
    let best = *best.insert(best.map_or(mean, |best| best.min(mean)));
    if mean > 2 * best { (allowed / 2).max(1) } else { allowed + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace(most: usize, yields: bool) -> Pace {
        Pace::new(None, NonZeroUsize::new(most).unwrap(), yields)
    }

    /// A worker's calls that take so long each.
    fn tell(pace: &Pace, count: u32, took: Duration) -> bool {
        let mut calls = Calls::default();
        (0..count).fold(false, |more, _| (calls.add(took) && pace.learn(std::mem::take(&mut calls))) | more)
    }

    #[test]
    fn fewer_are_asked_for_when_answers_get_slower() {
        let pace = pace(10, true);
        let round = |took| tell(&pace, YIELDING_WAITS, took);
        assert!(round(MS));
        (0..20).for_each(|_| _ = round(MS));
        assert_eq!(pace.allowed(), 10, "one more with each good round, and never more than the limit");
        assert!(!round(MS * 3));
        assert_eq!(pace.allowed(), 5);
        (0..5).for_each(|_| _ = round(MS * 3));
        assert_eq!(pace.allowed(), 1, "and never none");
        round(MS);
        assert_eq!(pace.allowed(), 2);
        assert!(pace.wait_until_allowed(0) && pace.wait_until_allowed(1));
    }

    #[test]
    fn answers_from_the_caches_say_nothing_of_the_store() {
        let pace = pace(10, true);
        let round = |took| tell(&pace, YIELDING_WAITS, took);
        round(MS / 500);
        (0..20).for_each(|_| _ = round(MS));
        assert_eq!(pace.allowed(), 10);
        round(MS / 500);
        round(MS * 3);
        assert_eq!(pace.allowed(), 5);
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
