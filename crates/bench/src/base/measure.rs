//! Readings of time, memory and load from the system, and summaries of several readings.

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

/// CPU time and context switches: up to now, or in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// User and system time, to the nanosecond.
    pub(crate) cpu: Duration,
    /// User and system time as the kernel separates them. For a running thread they end at the last
    /// tick, so only their proportion is used.
    pub(crate) user_ticks: Duration,
    pub(crate) system_ticks: Duration,
    /// Number of voluntary context switches: the thread had to wait.
    pub(crate) voluntary_switches: u64,
}

impl Used {
    /// Used up to now by this thread.
    pub(crate) fn by_thread() -> io::Result<Self> {
        Self::by(UsageWho::RUSAGE_THREAD, Some(ClockId::CLOCK_THREAD_CPUTIME_ID))
    }

    /// Used up to now by all threads of this process, including those that have ended.
    pub(crate) fn by_process() -> io::Result<Self> {
        Self::by(UsageWho::RUSAGE_SELF, Some(ClockId::CLOCK_PROCESS_CPUTIME_ID))
    }

    /// Used by child processes that have been waited for.
    pub(crate) fn by_children() -> io::Result<Self> {
        // They have ended, so their tick-based times are complete.
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

    /// Used since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
        }
    }

    /// The sum of two readings.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            user_ticks: self.user_ticks + other.user_ticks,
            system_ticks: self.system_ticks + other.system_ticks,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
        }
    }

    /// The part of the CPU time that was system time.
    pub(crate) fn system(self) -> Duration {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks.is_zero() { Duration::ZERO } else { self.cpu.mul_f64(self.system_ticks.div_duration_f64(ticks)) }
    }

    /// The part of the CPU time that was user time.
    pub(crate) fn user(self) -> Duration {
        self.cpu.saturating_sub(self.system())
    }
}

/// Durations of single steps, with a precision of three digits.
#[derive(Debug, Clone)]
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    /// Longer steps count as this.
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

    /// The duration that a fraction `quantile` of the steps did not exceed.
    pub(crate) fn quantile_ns(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// The values and their frequencies, to send to another process.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }

    /// The durations that another process has sent.
    pub(crate) fn from_counts(counts: &[(u64, u64)]) -> Self {
        let mut latency = Self::new();
        for &(value, count) in counts {
            latency.0.saturating_record_n(value, count);
        }
        latency
    }
}

/// The load average of the last minute; none if it cannot be read.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Peak resident memory of this process since [`reset_peak`], in bytes.
pub(crate) fn peak_memory() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status has no VmHWM"))
}

/// Resets the peak to the memory that is resident now. If the kernel does not allow it, the peak
/// remains that of the whole life of the process.
pub(crate) fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The minimum, median and maximum of several readings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    /// The middle reading. With an even number of readings, the mean of the two in the middle.
    pub(crate) median: f64,
    pub(crate) max: f64,
}

/// Readings are noisy if their spread exceeds this fraction of the median.
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

    /// Maximum minus minimum, as a fraction of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.max > self.min { (self.max - self.min) / self.median } else { 0.0 }
    }

    /// Whether the readings differ so much that their median says little.
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
    fn cpu_time_of_short_work_is_measured() {
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
    fn ticks_give_the_proportion_of_system_time() {
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
    fn cpu_time_of_children_is_counted_separately() {
        let before = Used::by_children().expect("getrusage");
        let done = std::process::Command::new("/bin/sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            .status();
        assert!(done.expect("a shell").success());
        assert!(!Used::by_children().expect("getrusage").since(before).cpu.is_zero());
    }

    #[test]
    fn peak_memory_is_measured() {
        let is_seen = || {
            reset_peak();
            let before = peak_memory().expect("status");
            let _block = std::hint::black_box(vec![1_u8; 32 << 20]);
            peak_memory().expect("status") >= before + (16 << 20)
        };
        // A test that runs at the same time may free memory, which lowers the growth of the peak.
        assert!((0..100).any(|_| is_seen()));
    }

    #[test]
    fn quantiles_are_precise() {
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
