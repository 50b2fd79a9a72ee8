//! What is read from the system, and what becomes of several readings.

use std::{
    io,
    ops::Sub,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

/// What this process had used at one instant; the difference of two is what it used in between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    at: Instant,
    cpu: Duration,
    voluntary_switches: u64,
}

/// What this process used in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) wall: Duration,
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
    /// How often a thread gave up its processor because it had to wait.
    pub(crate) voluntary_switches: u64,
}

impl Usage {
    /// Now.
    ///
    /// # Errors
    /// What getrusage answers.
    pub(crate) fn now() -> io::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let micros = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs());
        Ok(Self {
            at: Instant::now(),
            cpu: Duration::from_micros(micros.iter().sum()),
            voluntary_switches: usage.voluntary_context_switches().unsigned_abs(),
        })
    }
}

impl Sub for Usage {
    type Output = Used;

    fn sub(self, earlier: Self) -> Used {
        Used {
            wall: self.at - earlier.at,
            cpu: self.cpu.saturating_sub(earlier.cpu),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
        }
    }
}

/// Several readings of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    /// The middle one; with an even number, half way between the two in the middle.
    pub(crate) median: f64,
    pub(crate) max: f64,
}

/// A spread beyond this part of the median is noise.
const NOISE: f64 = 0.2;

impl Summary {
    /// # Panics
    /// If there is no reading.
    pub(crate) fn of(readings: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = readings.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1).expect("at least one reading");
        Self { min: sorted[0], median: f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]), max: sorted[last] }
    }

    /// From the lowest to the highest, as a part of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.max > self.min { (self.max - self.min) / self.median } else { 0.0 }
    }

    /// Whether the readings lie so far apart that their median says little.
    pub(crate) fn is_noisy(&self) -> bool {
        self.spread() > NOISE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even() {
        assert_eq!(Summary::of([3.0, 1.0, 2.0]), Summary { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]), Summary { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(Summary::of([7.0]), Summary { min: 7.0, median: 7.0, max: 7.0 });
    }

    #[test]
    fn noise_begins_above_a_fifth() {
        assert!(!Summary::of([90.0, 100.0, 110.0]).is_noisy());
        assert!(Summary::of([89.0, 100.0, 110.0]).is_noisy());
        assert!(!Summary::of([0.0, 0.0]).is_noisy());
        assert!(Summary::of([0.0, 0.0, 1.0]).is_noisy());
    }

    #[test]
    fn work_uses_cpu_time() {
        let before = Usage::now().expect("getrusage");
        let mut sum = 0_u64;
        // Until the clock of CPU time, which has its own granularity, is seen to move.
        while (Usage::now().expect("getrusage") - before).cpu.is_zero() {
            sum = std::hint::black_box((0..10_000).fold(sum, |sum, n| sum ^ (n * sum)));
        }
        let used = Usage::now().expect("getrusage") - before;
        assert!(!used.wall.is_zero());
    }
}
