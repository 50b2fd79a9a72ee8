//! The findings about one file system: whether calls wait there, whether the kernel keeps the
//! answers, and how many calls at once are best.

use pando_concurrency::{ByThroughput, HELPER_FIRST, Queue};

use crate::{
    ask::{Asked, Votes},
    board::NEVER,
};

/// The number of calls after which their waits are judged.
const JUDGED: usize = 256;

/// If fewer than one call in so many waits, asking ahead costs more than it gains.
const RARE: usize = 64;

/// While calls are fast, at least one directory in so many is tried, to notice when they no longer
/// are.
const MOST_SPARSE: u32 = 64;

/// Fast directories in a row before any is skipped: an interpreter that starts reads some of its
/// own.
const CONVINCING: u32 = 8;

/// One file system.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) concurrency: ByThroughput,
    /// Tasks in flight, including reads of directories.
    pub(crate) in_flight: usize,
    /// One directory in so many is tried. `NEVER`: none.
    interval: u32,
    /// The interval that programs were told; zero: none yet.
    shown: u32,
    /// Directories seen, where programs do not count them.
    turn: u32,
    slow: bool,
    /// Directories in a row in which nothing waited.
    fast_streak: u32,
    calls: usize,
    waited: usize,
    attributes: Votes,
    targets: Votes,
}

/// How the helper continues with a directory after its latest calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// Continue.
    Open,
    /// Nothing waits here: leave this directory alone.
    Fast,
    /// The kernel keeps nothing here: leave the file system alone.
    Forgotten,
}

impl Device {
    pub(crate) fn new(most_in_flight: usize) -> Self {
        Self {
            concurrency: ByThroughput::new(HELPER_FIRST, most_in_flight, Queue::Short),
            in_flight: 0,
            interval: 1,
            shown: 0,
            turn: 0,
            slow: false,
            fast_streak: 0,
            calls: 0,
            waited: 0,
            attributes: Votes::default(),
            targets: Votes::default(),
        }
    }

    /// Whether no more tasks may begin for now.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.concurrency.limit()
    }

    /// One directory in so many is to be tried.
    pub(crate) fn interval(&self) -> u32 {
        self.interval
    }

    /// The interval, if it has changed since the last call.
    pub(crate) fn changed_interval(&mut self) -> Option<u32> {
        let shown = std::mem::replace(&mut self.shown, self.interval);
        (shown != self.interval).then_some(self.interval)
    }

    /// Whether to try the directory that was just seen.
    pub(crate) fn is_due(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.interval != NEVER && self.turn.is_multiple_of(self.interval)
    }

    /// Whether calls have waited recently. Then a directory needs no trial.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow
    }

    /// The votes on attributes.
    pub(crate) fn attributes(&self) -> Votes {
        self.attributes
    }

    /// The votes on targets of links.
    pub(crate) fn targets(&self) -> Votes {
        self.targets
    }

    /// Names in one task. One, if most calls wait: they are to wait at the same time.
    pub(crate) fn batch(&self) -> usize {
        if self.waited * 4 > self.calls { 1 } else { 8 }
    }

    /// Takes in the end of a trial, in which names were asked for one after the other.
    pub(crate) fn tried(&mut self, waited: bool) -> Verdict {
        if waited {
            self.slow = true;
            self.fast_streak = 0;
            self.interval = 1;
            Verdict::Open
        } else {
            self.fast()
        }
    }

    /// Takes in the outcome of calls.
    pub(crate) fn learn(&mut self, asked: &Asked) -> Verdict {
        self.calls += asked.calls;
        self.waited += asked.waited;
        self.attributes.learn(asked.attributes);
        self.targets.learn(asked.targets);
        if self.attributes.are_against() {
            self.interval = NEVER;
            return Verdict::Forgotten;
        }
        if self.calls < JUDGED {
            return Verdict::Open;
        }
        let rare = self.waited * RARE < self.calls;
        (self.calls, self.waited) = (self.calls / 2, self.waited / 2);
        if rare { self.fast() } else { Verdict::Open }
    }

    fn fast(&mut self) -> Verdict {
        self.slow = false;
        (self.calls, self.waited) = (0, 0);
        self.fast_streak = self.fast_streak.saturating_add(1);
        self.interval = 1 << self.fast_streak.saturating_sub(CONVINCING).min(MOST_SPARSE.ilog2());
        Verdict::Fast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_calls_make_trials_rare_until_one_is_slow() {
        let mut device = Device::new(64);
        assert!(device.is_due() && device.is_due());
        (0..8).for_each(|_| assert_eq!(device.tried(false), Verdict::Fast));
        assert_eq!(device.interval(), 1);
        (0..10).for_each(|_| assert_eq!(device.tried(false), Verdict::Fast));
        assert_eq!(device.interval(), 64);
        assert_eq!((0..640).filter(|_| device.is_due()).count(), 10);
        assert_eq!(device.tried(true), Verdict::Open);
        assert_eq!((device.interval(), device.is_slow()), (1, true));
    }

    #[test]
    fn slow_calls_that_become_fast_are_noticed() {
        let mut device = Device::new(64);
        assert_eq!(device.tried(true), Verdict::Open);
        let waits = Asked { calls: 1, waited: 1, ..Asked::default() };
        (0..1000).for_each(|_| assert_eq!(device.learn(&waits), Verdict::Open));
        assert_eq!(device.batch(), 1);
        let fast = Asked { calls: 8, ..Asked::default() };
        let after = (0..10_000).position(|_| device.learn(&fast) == Verdict::Fast);
        assert!(after.is_some_and(|batches| batches < 300), "{after:?}");
        assert_eq!((device.fast_streak, device.is_slow(), device.batch()), (1, false, 8));
    }

    #[test]
    fn device_without_caching_is_left_alone() {
        let mut device = Device::new(64);
        let attributes = Votes { forgotten: 1, kept: 0 };
        let forgotten = Asked { calls: 1, waited: 1, attributes, ..Asked::default() };
        let verdicts: Vec<_> = (0..6).map(|_| device.learn(&forgotten)).collect();
        assert_eq!(verdicts[4..], [Verdict::Open, Verdict::Forgotten]);
        assert!(!device.is_due());

        let mut device = Device::new(64);
        let (attributes, targets) = (Votes { forgotten: 0, kept: 1 }, Votes { forgotten: 1, kept: 0 });
        let kept = Asked { calls: 1, waited: 1, attributes, targets, ..Asked::default() };
        (0..8).for_each(|_| assert_eq!(device.learn(&kept), Verdict::Open, "attributes are kept"));
        assert!(!device.attributes().are_wanted() && device.targets().are_against());
    }
}
