//! What is read from the system, and what becomes of several readings.

use std::{fs, io, time::Duration};

use hdrhistogram::Histogram;
use nix::{
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

/// Now, by a clock that all processes share, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = read(ClockId::CLOCK_MONOTONIC).expect("each kernel has this clock");
    now.as_nanos() as u64
}

fn read(clock: ClockId) -> io::Result<Duration> {
    Ok(clock_gettime(clock)?.into())
}

/// Processor time and context switches: up to now, or in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// User and system time, to the nanosecond.
    pub(crate) cpu: Duration,
    /// The two as the kernel tells them apart: while a thread runs, up to the last tick only. Good for the proportion.
    pub(crate) user_ticks: Duration,
    pub(crate) system_ticks: Duration,
    /// How often a processor was given up because there was something to wait for.
    pub(crate) voluntary_switches: u64,
}

impl Used {
    /// What this thread has used up to now.
    pub(crate) fn by_thread() -> io::Result<Self> {
        Self::by(UsageWho::RUSAGE_THREAD, Some(ClockId::CLOCK_THREAD_CPUTIME_ID))
    }

    /// What all threads of this process have used up to now, those that have ended included.
    pub(crate) fn by_process() -> io::Result<Self> {
        Self::by(UsageWho::RUSAGE_SELF, Some(ClockId::CLOCK_PROCESS_CPUTIME_ID))
    }

    /// What child processes have used that have been waited for.
    pub(crate) fn by_children() -> io::Result<Self> {
        // They run no more: there is no tick that they lag behind.
        Self::by(UsageWho::RUSAGE_CHILDREN, None)
    }

    fn by(who: UsageWho, clock: Option<ClockId>) -> io::Result<Self> {
        let usage = getrusage(who)?;
        let [user_ticks, system_ticks] = [usage.user_time(), usage.system_time()].map(|time| {
            Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(time.tv_usec().unsigned_abs())
        });
        let cpu = clock.map_or(Ok(user_ticks + system_ticks), read)?;
        let voluntary_switches = usage.voluntary_context_switches().unsigned_abs();
        Ok(Self { cpu, user_ticks, system_ticks, voluntary_switches })
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
        }
    }

    /// Together with another's.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            user_ticks: self.user_ticks + other.user_ticks,
            system_ticks: self.system_ticks + other.system_ticks,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
        }
    }

    /// The part of the time that was the kernel's.
    pub(crate) fn system(self) -> Duration {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks.is_zero() { Duration::ZERO } else { self.cpu.mul_f64(self.system_ticks.div_duration_f64(ticks)) }
    }

    /// The rest of it.
    pub(crate) fn user(self) -> Duration {
        self.cpu.saturating_sub(self.system())
    }
}

/// How long single steps took. Values are kept to three digits.
#[derive(Debug, Clone)]
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    /// Longer ones count as this.
    const LONGEST_NS: u64 = 3_600_000_000_000;

    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, Self::LONGEST_NS, 3).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the same bounds");
    }

    /// The time that a part `quantile` of the steps did not exceed.
    pub(crate) fn quantile_ns(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// The values and how often each was met, to be told to another process.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }

    /// What another process has told.
    pub(crate) fn from_counts(counts: &[(u64, u64)]) -> Self {
        let mut latency = Self::new();
        for &(value, count) in counts {
            latency.0.saturating_record_n(value, count);
        }
        latency
    }
}

/// How many threads of the machine want a processor, on the average of the last minute; none if it is not said.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The most memory that this process has had resident, in bytes, since [`forget_peak`].
pub(crate) fn peak_memory() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status has no VmHWM"))
}

/// The peak starts anew, at what is resident now. Where the kernel does not let it, it stays that of the whole life.
pub(crate) fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Several readings of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    fn work_uses_cpu_time_however_little() {
        let mut sum = 0_u64;
        for _ in 0..100 {
            let before = Used::by_thread().expect("getrusage");
            sum = std::hint::black_box((0..1000).fold(sum, |sum, n| sum ^ (n * sum)));
            let used = Used::by_thread().expect("getrusage").since(before);
            assert!(!used.cpu.is_zero() && used.cpu < Duration::from_secs(3600));
            assert_eq!(used.user() + used.system(), used.cpu);
        }
    }

    #[test]
    fn ticks_say_the_proportion() {
        let ticks = |user, system| Used {
            cpu: Duration::from_micros(400),
            user_ticks: Duration::from_millis(user),
            system_ticks: Duration::from_millis(system),
            ..Used::default()
        };
        assert_eq!(ticks(3, 1).system(), Duration::from_micros(100));
        assert_eq!(ticks(3, 1).user(), Duration::from_micros(300));
        assert_eq!(ticks(0, 0).user(), Duration::from_micros(400));
    }

    #[test]
    fn children_are_counted_apart() {
        let before = Used::by_children().expect("getrusage");
        let done = std::process::Command::new("/bin/sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            .status();
        assert!(done.expect("a shell").success());
        assert!(!Used::by_children().expect("getrusage").since(before).cpu.is_zero());
    }

    #[test]
    fn peak_memory_is_seen() {
        let is_seen = || {
            forget_peak();
            let before = peak_memory().expect("status");
            let _block = std::hint::black_box(vec![1_u8; 32 << 20]);
            peak_memory().expect("status") >= before + (16 << 20)
        };
        // What a test beside this one gives back meanwhile makes room below the peak.
        assert!((0..100).any(|_| is_seen()));
    }

    #[test]
    fn quantiles() {
        let mut latency = Latency::new();
        (1..=100).for_each(|micros| latency.record(Duration::from_micros(micros)));
        let near = |value: u64, to: u64| value.abs_diff(to) <= to / 500;
        assert!(near(latency.quantile_ns(0.5), 50_000), "{}", latency.quantile_ns(0.5));
        assert!(near(latency.quantile_ns(0.99), 99_000), "{}", latency.quantile_ns(0.99));
        let mut again = Latency::from_counts(&latency.counts());
        assert_eq!(again.quantile_ns(0.99), latency.quantile_ns(0.99));
        again.add(&latency);
        assert_eq!(again.counts().iter().map(|count| count.1).sum::<u64>(), 200);
        again.reset();
        assert!(again.counts().is_empty());
    }
}
