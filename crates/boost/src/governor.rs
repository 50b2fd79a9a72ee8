//! How many calls may be in flight on one file system at once.
//!
//! A climb by trial: the limit is doubled as long as that lets clearly more calls complete per second, and taken back
//! when it does not. So a server that answers 32 at a time gets some 32, and a disk whose queue is full gets no more.
//! After a rest half as many are tried, and kept where that is as good: calls may have waited for one another, and for those
//! of the program (XFS looks names of one directory up one at a time). Errors that mean trouble below halve the limit at
//! once.

use std::time::{Duration, Instant};

/// Where the climb starts.
const FIRST: usize = 8;

/// A step up that gains less than this was not worth it,
const MORE: f64 = 1.25;

/// nor was one down that loses more.
const FEWER: f64 = 0.95;

/// Calls that are compared: so many, or what completes in so long a time.
const CALLS: usize = 256;
const TIME: Duration = Duration::from_millis(5);

/// The limit of one file system.
#[derive(Debug)]
pub(crate) struct Governor {
    limit: usize,
    most: usize,
    /// The limit before the last step, and calls completed a second at it; `None` when there is nothing to compare with.
    before: Option<(usize, f64)>,
    /// The next step is one up.
    up: bool,
    window: Option<Window>,
    /// Calls for which the limit stays as it is.
    resting: usize,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    done: usize,
}

impl Governor {
    /// At most `most` calls at once, ever.
    pub(crate) fn new(most: usize) -> Self {
        Self { limit: FIRST.min(most), most, before: None, up: true, window: None, resting: 0 }
    }

    /// How many calls may be in flight now.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// `calls` have completed, and there was more to ask: only then does the limit decide the rate.
    pub(crate) fn completed(&mut self, calls: usize, now: Instant) {
        if self.resting > 0 {
            self.resting = self.resting.saturating_sub(calls);
            return;
        }
        let window = self.window.get_or_insert(Window { began: now, done: 0 });
        window.done += calls;
        let elapsed = now.duration_since(window.began);
        // The first calls of a window were started under the limit before it.
        if window.done < 3 * self.limit || (window.done < CALLS && elapsed < TIME) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let rate = window.done as f64 / elapsed.as_secs_f64().max(1e-9);
        self.window = None;
        match self.before {
            Some((limit, before)) if rate < before * if self.limit > limit { MORE } else { FEWER } => {
                self.limit = limit;
                self.up = !self.up;
                self.rest();
            }
            _ => self.step(rate),
        }
    }

    fn step(&mut self, rate: f64) {
        let next = if self.up { (self.limit * 2).min(self.most) } else { (self.limit / 2).max(1) };
        if next == self.limit {
            // The way is at its end, and the next one leads back.
            self.up = !self.up;
            self.rest();
        } else {
            self.before = Some((self.limit, rate));
            self.limit = next;
        }
    }

    /// The rate says nothing: there was nothing more to ask for a while.
    pub(crate) fn interrupted(&mut self) {
        self.window = None;
    }

    /// The file system reports trouble.
    pub(crate) fn back_off(&mut self) {
        self.limit = (self.limit / 2).max(1);
        self.window = None;
        self.rest();
    }

    fn rest(&mut self) {
        self.before = None;
        self.resting = 64 * self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `depth` calls at a time, each in a millisecond. The limit that most calls were made under, of the
    /// last half: others are tried now and then.
    fn climb(governor: &mut Governor, depth: usize, calls: usize) -> usize {
        in_turns(governor, calls, |limit| Duration::from_millis(1) / u32::try_from(limit.min(depth)).unwrap())
    }

    /// The same where a call completes every so often, by their limit.
    fn in_turns(governor: &mut Governor, calls: usize, every: impl Fn(usize) -> Duration) -> usize {
        let (mut now, mut counts) = (Instant::now(), [0; 65]);
        for call in 0..calls {
            now += every(governor.limit());
            governor.completed(1, now);
            assert!((1..=64).contains(&governor.limit()));
            counts[governor.limit()] += usize::from(call >= calls / 2);
        }
        (1..=64).max_by_key(|&limit| counts[limit]).unwrap()
    }

    #[test]
    fn climbs_to_what_the_server_can_do() {
        for (depth, expected) in [(1, 1), (8, 8), (32, 32), (1000, 64)] {
            let mut governor = Governor::new(64);
            assert_eq!(climb(&mut governor, depth, 20_000), expected, "depth {depth}");
        }
    }

    #[test]
    fn climbs_soon() {
        let mut governor = Governor::new(64);
        // From eight on: a first window without comparison, then one that shows whether the doubling was worth it.
        climb(&mut governor, 32, 400);
        assert!(governor.limit() >= 32, "{}", governor.limit());
    }

    #[test]
    fn a_last_step_that_is_no_doubling_is_taken_back_alone() {
        for most in [9, 17, 33] {
            let mut governor = Governor::new(most);
            let reached = climb(&mut governor, 1000, 20_000);
            assert!(reached >= most - 1, "{reached} of {most}");
        }
    }

    #[test]
    fn those_that_are_in_the_way_of_one_another_are_not_made() {
        let mut governor = Governor::new(64);
        let convoy = |limit| Duration::from_micros(if limit > 2 { 18 } else { 10 });
        assert!(in_turns(&mut governor, 20_000, convoy) <= 2);
    }

    #[test]
    fn tries_again_after_a_rest() {
        let mut governor = Governor::new(64);
        assert_eq!(climb(&mut governor, 8, 2000), 8);
        assert_eq!(climb(&mut governor, 64, 20_000), 64);
    }

    #[test]
    fn backs_off_and_keeps_one() {
        let mut governor = Governor::new(4);
        assert_eq!(governor.limit(), 4);
        (0..10).for_each(|_| governor.back_off());
        assert_eq!(governor.limit(), 1);
    }
}
