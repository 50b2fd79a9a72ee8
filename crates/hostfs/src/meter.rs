//! What calls cost: processor time, and time in which the thread waited.
//!
//! Time on the clock would not do: on a busy machine a thread that waits for nobody is put aside as well. A thread
//! that had to wait gave the processor away by itself, and the kernel counts that.

use std::time::Instant;

use crate::sys::{ThreadUsage, thread_usage};

/// Measures the calling thread.
pub struct Meter {
    begun: Instant,
    usage: ThreadUsage,
}

/// What some entries cost, all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub entries: u64,
    pub cpu_ns: u64,
    pub waited_ns: u64,
}

impl Meter {
    pub fn start() -> Self {
        Self { begun: Instant::now(), usage: thread_usage() }
    }

    /// What was spent since the start, on this many entries.
    pub fn read(&self, entries: u64) -> Cost {
        let now = thread_usage();
        let cpu_ns = now.cpu_ns.saturating_sub(self.usage.cpu_ns);
        let waited = if now.waits == self.usage.waits { 0 } else { self.begun.elapsed().as_nanos() as u64 };
        Cost { entries, cpu_ns, waited_ns: waited.saturating_sub(cpu_ns) }
    }
}

impl Cost {
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.cpu_ns += other.cpu_ns;
        self.waited_ns += other.waited_ns;
    }

    /// Nanoseconds that an entry took one thread: nothing but work and waits, as the time on the clock would count what
    /// others did.
    pub fn ns(&self) -> f64 {
        (self.cpu_ns + self.waited_ns) as f64 / self.entries.max(1) as f64
    }

    /// Nanoseconds that an entry waited.
    pub fn wait_ns(&self) -> u64 {
        self.waited_ns / self.entries.max(1)
    }
}
