//! The cost of calls: CPU time, and time for which the thread waited.
//!
//! Elapsed time does not show that: on a busy machine, a thread that waits for nothing is also
//! preempted. A thread that must wait gives up its CPU voluntarily, and the kernel counts that.

use std::time::{Duration, Instant};

use nix::{
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_gettime},
};

/// Measures the calling thread.
pub struct Meter {
    begun: Instant,
    used: Used,
}

/// The use of a thread so far.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// CPU time in user mode and in the kernel.
    cpu_ns: u64,
    /// How often it gave up its CPU because it had to wait (`ru_nvcsw`).
    waits: i64,
}

/// The cost of some entries, for all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub entries: u64,
    pub cpu_ns: u64,
    pub waited_ns: u64,
}

impl Meter {
    pub fn start() -> Self {
        Self { begun: Instant::now(), used: Used::by_thread() }
    }

    /// The cost since the start, of this many entries.
    pub fn read(&self, entries: u64) -> Cost {
        let now = Used::by_thread();
        let cpu_ns = now.cpu_ns.saturating_sub(self.used.cpu_ns);
        let waited = if now.waits == self.used.waits { 0 } else { self.begun.elapsed().as_nanos() as u64 };
        Cost { entries, cpu_ns, waited_ns: waited.saturating_sub(cpu_ns) }
    }
}

impl Used {
    /// The use of the calling thread.
    fn by_thread() -> Self {
        // Exact, unlike the times of getrusage: those are of the last tick, up to 4 ms ago.
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
        let waits = getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches());
        Self { cpu_ns: time.as_nanos() as u64, waits }
    }
}

impl Cost {
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.cpu_ns += other.cpu_ns;
        self.waited_ns += other.waited_ns;
    }

    /// Nanoseconds for which an entry occupied one thread: only work and waits. Elapsed time would
    /// count what other threads did.
    pub fn ns(&self) -> f64 {
        (self.cpu_ns + self.waited_ns) as f64 / self.entries.max(1) as f64
    }

    /// Nanoseconds for which an entry waited.
    pub fn wait_ns(&self) -> u64 {
        self.waited_ns / self.entries.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_counted_between_ticks() {
        let (begin, mut last, mut least) = (Used::by_thread().cpu_ns, 0, u64::MAX);
        while last < 10_000_000 {
            let now = Used::by_thread().cpu_ns - begin;
            if now > last {
                least = least.min(now - last);
                last = now;
            }
        }
        assert!(least < 500_000, "{least} ns at least");
    }
}
