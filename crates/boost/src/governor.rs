//! How many calls may be in flight on one file system at once.
//!
//! A climb by trial: the limit is doubled as long as that lets clearly more calls complete per second, and taken back
//! when it does not. So a server that answers 32 at a time gets some 32, and a disk whose queue is full gets no more.
//! Errors that mean trouble below halve the limit at once.

use std::time::Instant;

/// Where the climb starts.
const FIRST: usize = 8;

/// A step up that gains less than this was not worth it.
const WORTH: f64 = 1.25;

/// The limit of one file system.
#[derive(Debug)]
pub(crate) struct Governor {
    limit: usize,
    most: usize,
    /// The limit before the last step up, and calls completed a second at it; `None` when there is nothing to compare with.
    before: Option<(usize, f64)>,
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
        Self { limit: FIRST.min(most), most, before: None, window: None, resting: 0 }
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
        // The first calls of a window were started under the limit before it.
        if window.done < 3 * self.limit {
            return;
        }
        let seconds = now.duration_since(window.began).as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let rate = window.done as f64 / seconds;
        self.window = None;
        match self.before {
            Some((limit, rate_before)) if rate < rate_before * WORTH => {
                self.limit = limit;
                self.rest();
            }
            _ if self.limit == self.most => self.rest(),
            _ => {
                self.before = Some((self.limit, rate));
                self.limit = (self.limit * 2).min(self.most);
            }
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
    use std::time::Duration;

    use super::*;

    /// A server that answers `depth` calls at a time, each in a millisecond.
    fn climb(governor: &mut Governor, depth: usize, calls: usize) {
        let mut now = Instant::now();
        for _ in 0..calls {
            let at_once = governor.limit().min(depth);
            now += Duration::from_millis(1) / u32::try_from(at_once).unwrap();
            governor.completed(1, now);
            assert!((1..=64).contains(&governor.limit()));
        }
    }

    #[test]
    fn climbs_to_what_the_server_can_do() {
        for (depth, expected) in [(1, 8), (8, 8), (32, 32), (1000, 64)] {
            let mut governor = Governor::new(64);
            climb(&mut governor, depth, 400);
            // From eight on: a first window without comparison, then one that shows whether the doubling was worth it.
            assert_eq!(governor.limit(), expected, "depth {depth}");
        }
    }

    #[test]
    fn a_last_step_that_is_no_doubling_is_taken_back_alone() {
        for most in [9, 17, 33] {
            let mut governor = Governor::new(most);
            climb(&mut governor, 1000, 400);
            let reached = governor.limit();
            assert!(reached >= most - 1, "{reached} of {most}");
        }
    }

    #[test]
    fn tries_again_after_a_rest() {
        let mut governor = Governor::new(64);
        climb(&mut governor, 8, 400);
        assert_eq!(governor.limit(), 8);
        climb(&mut governor, 64, 2000);
        assert_eq!(governor.limit(), 64);
    }

    #[test]
    fn backs_off_and_keeps_one() {
        let mut governor = Governor::new(4);
        assert_eq!(governor.limit(), 4);
        (0..10).for_each(|_| governor.back_off());
        assert_eq!(governor.limit(), 1);
    }
}
