//! Waiting for space that will be freed soon.
//!
//! A file that has lost its last name is kept until the kernel has closed and forgotten it. The
//! kernel says so without waiting for a reply. Its next request may reach another thread of the
//! server first, and find no space. So an operation that finds no space is tried once more, in case
//! the kernel has just said so. If something was removed lately, it is tried again for a while.
//!
//! At most all threads but one wait at the same time, so that one is left to hear the kernel. If
//! each thread has a queue of its own, none waits here, and the transport tries again.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pando_vfs::{Error, Result};

/// Space of what was removed longer ago has been freed, or the file is still in use.
const RECENT_MS: u64 = 100;

/// The pauses between tries. Each is twice as long as the one before: 200 ms in all.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const PAUSES: u32 = 11;

pub(super) struct SpaceWaiter {
    /// How many threads may wait at the same time. A single independent value.
    waiters_max: AtomicUsize,
    waiting: AtomicUsize,
    start: Instant,
    /// When something was removed last, in milliseconds since `start`.
    removed_ms: AtomicU64,
}

impl SpaceWaiter {
    /// For a server with this many threads.
    pub(super) fn new(threads: NonZeroUsize) -> Self {
        Self {
            waiters_max: AtomicUsize::new(threads.get() - 1),
            waiting: AtomicUsize::new(0),
            start: Instant::now(),
            removed_ms: AtomicU64::new(0),
        }
    }

    /// Of `threads` threads, all but one may wait from now on.
    pub(super) fn share_among(&self, threads: NonZeroUsize) {
        self.waiters_max.store(threads.get() - 1, Ordering::Relaxed);
    }

    /// Something may have lost its last name, or its last handle.
    pub(super) fn removed(&self) {
        let now_ms = self.now_ms();
        // Relaxed: the kernel has our reply before it sends the next request that matters. Most
        // calls find the value up to date and do not write the cache line.
        if self.removed_ms.load(Ordering::Relaxed) != now_ms {
            self.removed_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Runs `attempt`, and runs it again while it finds no space but some may be freed soon.
    pub(super) fn retry<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let mut done = attempt();
        if !matches!(done, Err(Error::NoSpace)) {
            return done;
        }
        // Relaxed: a single independent value.
        let waiters_max = self.waiters_max.load(Ordering::Relaxed);
        let waiting = |now: usize| (now < waiters_max).then_some(now + 1);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, waiting).is_ok() {
            let _waiting = Waiting(&self.waiting);
            let mut tries = 0;
            while matches!(done, Err(Error::NoSpace))
                && let Some(pause) = self.pause(tries)
            {
                thread::sleep(pause);
                done = attempt();
                tries += 1;
            }
        }
        done
    }

    /// How long to wait after the first attempt and `tries` more that found no space. None if that
    /// was the last one.
    pub(super) fn pause(&self, tries: u32) -> Option<Duration> {
        let worth_it = match tries {
            0 => true,
            1 => self.is_recent(),
            _ => tries < PAUSES,
        };
        worth_it.then(|| FIRST_PAUSE * (1 << tries))
    }

    /// Whether something was removed lately.
    fn is_recent(&self) -> bool {
        self.now_ms() <= self.removed_ms.load(Ordering::Relaxed) + RECENT_MS
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// One waiting thread. Its drop counts the thread out, also if an attempt panics.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
