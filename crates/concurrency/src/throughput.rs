//! The number of calls at once by what they complete: for read-ahead.
//!
//! So many calls in flight, of such a mean time, complete so many in a second (John Little's law,
//! 1961). So the rate is known from the calls alone, also while there is nothing to ask for or a
//! rate limit holds calls back.
//!
//! The number doubles while calls wait and that brings a tenth more at least. Otherwise they waited
//! for one another (XFS looks up the names of one directory one at a time), or for a disk or server
//! at its limit, and the number is halved again. Half the number is tried in the same way, and kept
//! if as much completes. While the calls wait for a device, the number doubles without a
//! comparison: at the start and when the rate has collapsed, or always ([`Queue`]).

use std::time::Duration;

use super::tuning::{
    CALL_WAITED, DEVICE_CALLS, MORE_GAIN, RESTART, ROUND_CALLS, ROUND_CALLS_EACH, ROUND_TIME, SAME_RATE,
    SETTLED_DOUBLINGS, SETTLED_ROUNDS, UNREPORTED_CALLS, WAITING_PART, WAITS_FOR_DEVICE,
};

/// Calls and the time that they took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calls {
    count: u32,
    took: Duration,
    /// Of these, the calls that waited.
    waits: u32,
    waited: Duration,
}

impl Calls {
    /// So many calls that took this time together, one after the other.
    #[must_use]
    pub fn of(count: u32, took: Duration) -> Self {
        let waited = took >= CALL_WAITED * count && count > 0;
        let (waits, waits_took) = if waited { (count, took) } else { (0, Duration::ZERO) };
        Self { count, took, waits, waited: waits_took }
    }

    /// Adds one call. True if it is time to report the calls.
    pub fn add(&mut self, took: Duration) -> bool {
        let call = Self::of(1, took);
        self.add_all(call);
        call.waits > 0 || self.count >= UNREPORTED_CALLS
    }

    pub(super) fn add_all(&mut self, others: Self) {
        self.count += others.count;
        self.took += others.took;
        self.waits += others.waits;
        self.waited += others.waited;
    }

    /// The mean time of the calls that waited, if there are `least` of them.
    pub(super) fn mean_wait(&self, least: u32) -> Option<Duration> {
        (self.waits >= least).then(|| self.waited / self.waits)
    }

    /// Calls in a second, if so many are in flight.
    fn rate(&self, limit: usize) -> f64 {
        limit as f64 * f64::from(self.count) / self.took.as_secs_f64().max(1e-9)
    }

    /// Whether they waited for a device or a server: too long to have waited for one another.
    fn wait_for_device(&self, limit: usize) -> bool {
        self.count >= DEVICE_CALLS && self.took / self.count >= WAITS_FOR_DEVICE * limit as u32
    }

    /// Whether there are enough to be judged.
    fn are_a_round(&self, limit: usize) -> bool {
        self.count >= ROUND_CALLS
            || (self.count >= DEVICE_CALLS.max(ROUND_CALLS_EACH * limit as u32)
                && self.took >= ROUND_TIME * limit as u32)
    }

    fn have_waited(&self) -> bool {
        self.waited >= self.took / WAITING_PART
    }
}

/// How many calls may wait at a device or server that serves few at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// As few as complete as much: a program that this is done for waits in the same queue.
    Short,
    /// As many as allowed: nothing waits for these calls. The device is then never idle while this
    /// machine is busy, and a number that was misjudged is corrected at once.
    Long,
}

/// Finds the number of calls at once that completes most.
#[derive(Debug)]
pub struct ByThroughput {
    max: usize,
    queue: Queue,
    /// The number now. If it is not the best one, it is on trial.
    limit: usize,
    /// The calls of this round.
    round: Calls,
    /// The best number so far, and the calls that it completes in a second, the last rounds
    /// counting most. Zero: unknown.
    best: (usize, f64),
    /// No round was judged since the start, or since the rate collapsed.
    starting: bool,
    /// Whether more are tried next, or fewer.
    up: bool,
    /// Calls that are not judged: some were begun at another number.
    skip: u32,
    /// Rounds before others are tried.
    settled: u32,
    /// How often in a row others were no better.
    failed: u32,
}

impl ByThroughput {
    /// For at most `max` calls, from `first`.
    #[must_use]
    pub fn new(first: usize, max: usize, queue: Queue) -> Self {
        let limit = first.min(max).max(1);
        Self {
            max,
            queue,
            limit,
            round: Calls::default(),
            best: (limit, 0.0),
            starting: true,
            up: true,
            skip: 0,
            settled: 0,
            failed: 0,
        }
    }

    /// How many calls may be in flight now.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes in calls that were made while as many as allowed were in flight. Returns the number
    /// for the next ones.
    pub fn learn(&mut self, calls: Calls) -> usize {
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(calls.count);
            return self.limit;
        }
        self.round.add_all(calls);
        let before = self.limit;
        if self.limit < self.max && self.round.wait_for_device(self.limit) && self.may_leap() {
            self.start_again();
            self.limit = self.max.min(2 * self.limit);
        } else if self.round.are_a_round(self.limit) {
            let round = std::mem::take(&mut self.round);
            if self.queue == Queue::Long && round.wait_for_device(self.limit) {
                // At the maximum. Fewer are not tried.
                self.start_again();
            } else {
                self.judge(round.rate(self.limit));
                self.limit = self.choose(round.have_waited());
            }
        }
        if self.limit != before {
            self.skip = self.limit.max(before) as u32;
        }
        self.limit
    }

    /// There was nothing more to ask for, so fewer were in flight than allowed: the round says
    /// nothing.
    pub fn interrupted(&mut self) {
        self.round = Calls::default();
    }

    /// The file system reports errors: half as many for some rounds.
    pub fn back_off(&mut self) {
        self.skip = self.limit as u32;
        self.limit = (self.limit / 2).max(1);
        self.start_again();
        (self.starting, self.settled) = (false, SETTLED_ROUNDS);
    }

    /// Whether the number may double without a comparison.
    fn may_leap(&self) -> bool {
        let has_collapsed = || self.limit == self.best.0 && self.round.rate(self.limit) < self.best.1 * RESTART;
        self.queue == Queue::Long || self.starting || has_collapsed()
    }

    /// Forgets all rates.
    fn start_again(&mut self) {
        (self.round, self.best) = (Calls::default(), (self.limit, 0.0));
        (self.starting, self.up, self.settled, self.failed) = (true, true, 0, 0);
    }

    /// Takes in the rate of a round.
    fn judge(&mut self, rate: f64) {
        self.starting = false;
        let (best, before) = self.best;
        if self.limit == best {
            let before = if before == 0.0 { rate } else { before };
            self.best = (best, f64::midpoint(before, rate));
            self.settled = self.settled.saturating_sub(1);
        } else if rate >= if self.limit > best { before * MORE_GAIN } else { before / SAME_RATE } {
            // At the maximum, half as many would be tried next. They were just found to be worse.
            self.settled = if self.limit == self.max && before > 0.0 { SETTLED_ROUNDS } else { 0 };
            self.best = (self.limit, rate);
            self.failed = 0;
        } else {
            self.settled = SETTLED_ROUNDS << self.failed.min(SETTLED_DOUBLINGS);
            self.failed += 1;
            self.up = !self.up;
        }
    }

    /// The best number known, or another one to try.
    fn choose(&mut self, have_waited: bool) -> usize {
        let best = self.best.0;
        if self.settled > 0 {
            return best;
        }
        self.up = best == 1 || (self.up && best < self.max);
        match (self.up, have_waited) {
            (true, true) => self.max.min(2 * best),
            (true, false) => best,
            (false, _) => best / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The number at which most calls are made, of the last half: others are tried now and then. A
    /// call takes what `took` says of the number.
    fn found_by(controller: &mut ByThroughput, calls: usize, took: impl Fn(u32) -> Duration) -> usize {
        let mut counts = vec![0; controller.max + 1];
        for call in 0..calls {
            let limit = controller.learn(Calls::of(1, took(controller.limit() as u32)));
            assert!((1..=controller.max).contains(&limit));
            counts[limit] += usize::from(call >= calls / 2);
        }
        (1..=controller.max).max_by_key(|&limit| counts[limit]).unwrap()
    }

    /// A server that serves `depth` calls at once.
    fn server(depth: u32, took: Duration) -> impl Fn(u32) -> Duration {
        move |limit| took * limit.max(depth) / depth
    }

    #[test]
    fn finds_the_number_that_completes_most() {
        let found =
            |max, took: &dyn Fn(u32) -> Duration| found_by(&mut ByThroughput::new(1, max, Queue::Long), 60_000, took);
        assert_eq!(found(32, &|_| MS / 2), 32, "each waits on its own");
        assert_eq!(found(24, &|_| MS / 2), 24, "and never more than the limit");
        assert_eq!(found(32, &|_| MS / 12), 32, "and if the waits are short");
        assert_eq!(found(32, &server(8, MS / 2)), 8, "a server of eight at once");
        assert_eq!(found(32, &|limit| MS / 60 * limit), 1, "one at a time");
        assert_eq!(found(32, &|_| MS / 500), 1, "all is in the caches");
        assert_eq!(found(32, &server(1, MS)), 32, "a slow server of one at a time has a queue");
    }

    #[test]
    fn finds_the_depth_of_a_server() {
        for (depth, expected) in [(1, 1), (8, 8), (32, 32), (1000, 64)] {
            for first in [1, HELPER] {
                let mut controller = ByThroughput::new(first, 64, Queue::Short);
                assert_eq!(found_by(&mut controller, 20_000, server(depth, MS)), expected, "depth {depth}, {first}");
            }
        }
    }

    const HELPER: usize = crate::HELPER_FIRST;

    #[test]
    fn number_doubles_quickly_while_a_device_answers_slowly() {
        let mut controller = ByThroughput::new(1, 32, Queue::Short);
        let mut next = || controller.learn(Calls::of(1, MS));
        assert_eq!([(); DEVICE_CALLS as usize].map(|()| next()), [1, 1, 1, 2]);
        // Two were begun while one was allowed.
        assert_eq!([(); 2 + DEVICE_CALLS as usize].map(|()| next()), [2, 2, 2, 2, 2, 4]);
        for (first, calls) in [(1, 50), (HELPER, 40)] {
            let mut controller = ByThroughput::new(first, 64, Queue::Short);
            let took = server(32, MS * 4);
            let reached = (0..calls).any(|_| controller.learn(Calls::of(1, took(controller.limit() as u32))) >= 32);
            assert!(reached, "{} from {first}", controller.limit());
        }
    }

    #[test]
    fn long_queue_stays_at_the_maximum() {
        for depth in [1, 1000] {
            let mut controller = ByThroughput::new(1, 32, Queue::Long);
            let mut limits = (0..10_000).map(|_| {
                let took = server(depth, MS * 10)(controller.limit() as u32);
                controller.learn(Calls::of(1, took))
            });
            assert!(limits.any(|limit| limit == 32));
            assert!(limits.all(|limit| limit == 32), "depth {depth}");
        }
    }

    #[test]
    fn calls_that_become_slow_start_the_search_again() {
        let mut controller = ByThroughput::new(1, 32, Queue::Short);
        assert_eq!(found_by(&mut controller, 200_000, |_| MS / 500), 1);
        let calls = (1..).find(|_| controller.learn(Calls::of(1, MS)) == 32).unwrap();
        assert!(calls < 600, "a round of fast calls may be in progress: {calls} calls");
    }

    /// Half of the maximum was just found to be worse.
    #[test]
    fn fewer_are_not_tried_at_once_after_a_gain() {
        let mut controller = ByThroughput::new(HELPER, 64, Queue::Short);
        while controller.limit() < 64 {
            controller.learn(Calls::of(1, MS / 2));
        }
        let stays = (0..).take_while(|_| controller.learn(Calls::of(1, MS / 2)) == 64).count();
        assert!(stays > 2000, "{stays} calls");
    }

    #[test]
    fn last_step_that_is_no_doubling_is_undone_alone() {
        for max in [9, 17, 33] {
            let found = found_by(&mut ByThroughput::new(HELPER, max, Queue::Short), 20_000, |_| MS);
            assert!(found >= max - 1, "{found} of {max}");
        }
    }

    #[test]
    fn calls_that_wait_for_one_another_are_not_made() {
        let convoy = |limit| Duration::from_micros(if limit > 2 { 18 } else { 10 }) * limit;
        assert!(found_by(&mut ByThroughput::new(HELPER, 64, Queue::Short), 20_000, convoy) <= 2);
    }

    #[test]
    fn server_that_can_do_more_later_is_asked_for_more() {
        let mut controller = ByThroughput::new(HELPER, 64, Queue::Short);
        assert_eq!(found_by(&mut controller, 2000, server(8, MS)), 8);
        assert_eq!(found_by(&mut controller, 20_000, server(64, MS)), 64);
    }

    #[test]
    fn errors_halve_the_number_and_leave_one() {
        let mut controller = ByThroughput::new(HELPER, 4, Queue::Short);
        assert_eq!(controller.limit(), 4);
        controller.back_off();
        assert_eq!(controller.limit(), 2);
        (0..10).for_each(|_| controller.back_off());
        assert_eq!(controller.limit(), 1);
    }
}
