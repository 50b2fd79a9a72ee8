//! Evicts from the cache of a tree while memory is short.
//!
//! Memory is short if a control group of this process (or one above) is near its limit, or if
//! programs wait for memory (PSI; Documentation/accounting/psi.rst).

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use pando_console::{
    failure::{Failure, Result},
    memory_limits::{self, Group},
};
use pando_vfs::{Vfs, release_free_memory};
use tracing::debug;

/// How often the thread looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Memory is short if programs have waited for it this many microseconds in one period.
const WAITED_US: u64 = 100_000;
/// The part of the cached inodes that is evicted at a time.
const PART: usize = 4;

/// A thread that evicts from a tree while memory is short.
pub struct MemoryWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Watches for a tree.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(vfs: Vfs) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut memory = Memory::of_this_process();
        let watch = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                if memory.is_short() {
                    // A panic of the driver has its message, and the next time is another one.
                    let evict = AssertUnwindSafe(|| vfs.evict(vfs.cache_counts().inodes.div_ceil(PART)));
                    let evicted = panic::catch_unwind(evict);
                    debug!(?evicted, "memory is short");
                    release_free_memory();
                }
            }
        };
        let thread = thread::Builder::new().name("pando-memory".into()).spawn(watch);
        let thread = thread.map_err(|error| Failure::system("cannot start a thread", &error))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// The memory that this process may use.
struct Memory {
    groups: Vec<Group>,
    /// How long programs have waited for memory, as the kernel reports it.
    pressure: PathBuf,
    /// In microseconds, when it was read last.
    waited: u64,
}

impl Memory {
    fn of_this_process() -> Self {
        let groups = memory_limits::groups();
        let of_group = groups.first().map(Group::pressure).filter(|path| path.exists());
        let pressure = of_group.unwrap_or_else(|| "/proc/pressure/memory".into());
        let waited = waited(&fs::read_to_string(&pressure).unwrap_or_default());
        Self { groups, pressure, waited }
    }

    fn is_short(&mut self) -> bool {
        let waited = waited(&fs::read_to_string(&self.pressure).unwrap_or_default());
        let more = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        more >= WAITED_US || self.groups.iter().any(is_near_its_limit)
    }
}

/// Whether a group needs nine tenths of the memory that it may use.
fn is_near_its_limit(group: &Group) -> bool {
    let limit = group.limits().map(|limit| limit.bytes).min();
    limit.zip(group.needed_bytes()).is_some_and(|(limit, needed)| needed >= limit / 10 * 9)
}

/// The time in a file of PSI, in microseconds: `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`.
fn waited(text: &str) -> u64 {
    let total = text.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total="));
    total.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_from_psi() {
        let text =
            "some avg10=0.00 avg60=0.12 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!((waited(text), waited(""), waited("some total=\n")), (4711, 0, 0));
    }
}
