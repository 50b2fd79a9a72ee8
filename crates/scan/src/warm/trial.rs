//! How many workers get most done.
//!
//! So many workers with calls of such a mean get so much done in a second (John Little's law, 1961). Their number doubles, from
//! one, while calls wait and that brings a tenth more at least. Otherwise they waited for one another (XFS looks names
//! of one directory up one at a time), or for a disk or server at its limit, and there are half as many again. From
//! time to time others are tried, more or fewer: what pays changes on the way.

use std::time::Duration;

/// Calls that take longer have waited for something.
const WAITED: Duration = Duration::from_micros(50);

/// A worker tells of so many calls at once, if none waited.
const UNTOLD: u32 = 64;

/// What waits less than this for each worker may wait for the others.
const WAITS_FOR_A_DEVICE: Duration = Duration::from_micros(100);
/// So many such calls are enough to try more workers,
const DEVICE_CALLS: u32 = 4;
/// and otherwise so many of any kind, or as many as so much time allows,
const CALLS: u32 = 512;
const LONG: Duration = Duration::from_millis(5);
/// if of their time one part in so many was spent in waiting.
const WAITING_PART: u32 = 20;
/// What more have to get done to be worth it, compared with fewer; and fewer compared with more.
const MORE_GAIN: f64 = 1.1;
const FEWER_GAIN: f64 = 0.95;
/// Rounds before others are tried, when others were no better; each time in a row twice as many, up to so many times.
const SETTLED_ROUNDS: u32 = 4;
const DOUBLINGS: u32 = 5;

/// What calls took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    count: u32,
    took: Duration,
    /// Of these, those that waited.
    pub(super) waits: u32,
    pub(super) waited: Duration,
}

impl Calls {
    /// One more; whether it is time to tell.
    pub(super) fn add(&mut self, took: Duration) -> bool {
        let waited = took >= WAITED;
        self.count += 1;
        self.took += took;
        if waited {
            self.waits += 1;
            self.waited += took;
        }
        waited || self.count >= UNTOLD
    }

    pub(super) fn add_all(&mut self, others: Self) {
        self.count += others.count;
        self.took += others.took;
        self.waits += others.waits;
        self.waited += others.waited;
    }

    /// Calls a second that so many workers get done.
    fn rate(&self, workers: usize) -> f64 {
        workers as f64 * f64::from(self.count) / self.took.as_secs_f64().max(1e-9)
    }
}

/// The search for the number of workers that gets most done.
#[derive(Debug)]
pub(super) struct Trial {
    most: usize,
    /// The calls of this round.
    round: Calls,
    /// The best number so far, and the calls that so many get done in a second, the last rounds counting most. If there are more
    /// workers now, or fewer, those are on trial.
    best: (usize, f64),
    /// Whether more are tried next, or fewer.
    up: bool,
    /// Calls that are not looked at: some were made by another number of workers.
    skip: u32,
    /// Rounds before others are tried.
    settled: u32,
    /// How often in a row others were no better.
    failed: u32,
}

impl Trial {
    /// For at most `most` workers.
    pub(super) fn new(most: usize) -> Self {
        Self { most, round: Calls::default(), best: (1, 0.0), up: true, skip: 0, settled: 0, failed: 0 }
    }

    /// How many workers there are to be next, after these calls of so many.
    pub(super) fn next(&mut self, calls: Calls, workers: usize) -> usize {
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(calls.count);
            return workers;
        }
        let round = &mut self.round;
        round.add_all(calls);
        let for_a_device =
            round.count >= DEVICE_CALLS && round.took / round.count >= WAITS_FOR_A_DEVICE * workers as u32;
        let is_over = round.count >= CALLS || round.took >= LONG * workers as u32;
        if !is_over && !for_a_device {
            return workers;
        }
        let round = std::mem::take(round);
        let next = if for_a_device && workers < self.most {
            self.best = (workers, 0.0);
            self.most.min(2 * workers)
        } else {
            self.judge(workers, round.rate(workers));
            self.choose(round.waited >= round.took / WAITING_PART)
        };
        if next != workers {
            self.skip = next.max(workers) as u32;
        }
        next
    }

    /// A round of so many got so much done.
    fn judge(&mut self, workers: usize, rate: f64) {
        let (best, before) = self.best;
        if workers == best {
            let before = if before == 0.0 { rate } else { before };
            self.best = (best, f64::midpoint(before, rate));
            self.settled = self.settled.saturating_sub(1);
        } else if rate >= before * if workers > best { MORE_GAIN } else { FEWER_GAIN } {
            self.best = (workers, rate);
            (self.settled, self.failed) = (0, 0);
        } else {
            self.settled = SETTLED_ROUNDS << self.failed.min(DOUBLINGS);
            self.failed += 1;
            self.up = !self.up;
        }
    }

    /// The best number known, or another one to try.
    fn choose(&mut self, waits: bool) -> usize {
        let best = self.best.0;
        if self.settled > 0 {
            return best;
        }
        self.up = best == 1 || (self.up && best < self.most);
        match (self.up, waits) {
            (true, true) => self.most.min(2 * best),
            (true, false) => best,
            (false, _) => best / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many workers there are after so many rounds of calls that take what `took` says of their number.
    fn workers_after(rounds: usize, most: usize, took: impl Fn(u32) -> Duration) -> usize {
        let (mut trial, mut workers) = (Trial::new(most), 1);
        // Now and then others are tried.
        let mut counts = vec![0; most + 1];
        for number in 0..rounds {
            if number >= rounds / 2 {
                counts[workers] += 1;
            }
            let took = took(workers as u32);
            // Those that are not looked at, and a round.
            for _ in 0..4 * most as u32 + CALLS {
                let mut call = Calls::default();
                call.add(took);
                workers = trial.next(call, workers);
            }
        }
        (1..=most).max_by_key(|&workers| counts[workers]).unwrap()
    }

    #[test]
    fn as_many_ask_as_get_more_done() {
        assert_eq!(workers_after(100, 32, |_| MS / 2), 32, "each waits on its own");
        assert_eq!(workers_after(100, 24, |_| MS / 2), 24, "and never more than the limit");
        assert_eq!(workers_after(100, 32, |_| MS / 12), 32, "and if the waits are short");
        assert_eq!(workers_after(100, 32, |workers| MS / 2 * workers.max(8) / 8), 8, "a server of eight at once");
        assert_eq!(workers_after(100, 32, |workers| MS / 60 * workers), 1, "one at a time");
        assert_eq!(workers_after(100, 32, |_| MS / 500), 1, "all is in the caches");
    }

    #[test]
    fn more_are_asked_for_soon_where_a_device_answers_slowly() {
        let (mut trial, mut calls) = (Trial::new(32), Calls::default());
        assert!(calls.add(MS));
        let mut next = |workers| trial.next(calls, workers);
        assert_eq!([1; DEVICE_CALLS as usize].map(&mut next), [1, 1, 1, 2]);
        // Two were begun while one was enough.
        assert_eq!([2; 2 + DEVICE_CALLS as usize].map(&mut next), [2, 2, 2, 2, 2, 4]);
    }
}
