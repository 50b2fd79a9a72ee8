//! Room that is about to come back.
//!
//! What has lost its last name is kept until the kernel has closed and forgotten it, which it says without waiting: its
//! next request may find another thread of the server first, and no room. So what finds none is tried once more, in case the
//! kernel has said so just before; and if something was removed lately, again for a while. Only so many threads do that at
//! once that one is left to hear what the kernel says; where each thread has its own to hear, none does, and the transport tries
//! again.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pando_vfs::{Error, Result};

/// What was removed longer ago has come back, or somebody keeps it.
const RECENT_MS: u64 = 100;

/// The pauses between tries, each twice as long as the one before: 200 ms in all.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const PAUSES: u32 = 11;

pub(super) struct Room {
    /// So many threads may wait at once.
    patient: usize,
    waiting: AtomicUsize,
    start: Instant,
    /// When something was removed last, in milliseconds since the start.
    removed_ms: AtomicU64,
}

impl Room {
    /// For a server with so many threads.
    pub(super) fn new(threads: NonZeroUsize) -> Self {
        Self {
            patient: threads.get() - 1,
            waiting: AtomicUsize::new(0),
            start: Instant::now(),
            removed_ms: AtomicU64::new(0),
        }
    }

    /// Something may have lost its last name, or its last handle.
    pub(super) fn removed(&self) {
        let now_ms = self.now_ms();
        // Relaxed: the kernel has an answer of ours before it asks for the next that matters. Most find the line as it is.
        if self.removed_ms.load(Ordering::Relaxed) != now_ms {
            self.removed_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Does what needs room, again while some may come.
    pub(super) fn make<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let mut done = attempt();
        if !matches!(done, Err(Error::NoSpace)) {
            return done;
        }
        // Relaxed: a single independent value.
        let waiting = |now: usize| (now < self.patient).then_some(now + 1);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, waiting).is_ok() {
            let _turn = Turn(&self.waiting);
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

    /// How long to wait after the first attempt and so many further ones that found no room; none if that is all.
    pub(super) fn pause(&self, tries: u32) -> Option<Duration> {
        let worth_it = match tries {
            0 => true,
            1 => self.may_come_back(),
            _ => tries < PAUSES,
        };
        worth_it.then(|| FIRST_PAUSE * (1 << tries))
    }

    fn may_come_back(&self) -> bool {
        self.now_ms() <= self.removed_ms.load(Ordering::Relaxed) + RECENT_MS
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// One of those who may wait, also if an attempt panics.
struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The kernel may have closed a file just now that lost its name long ago.
    #[test]
    fn what_finds_no_room_is_tried_once_more() {
        let room = |threads| Room {
            start: Instant::now().checked_sub(Duration::from_secs(1)).expect("a machine that has run for a while"),
            ..Room::new(NonZeroUsize::new(threads).expect("some"))
        };
        let (tries, comes_with) = (Cell::new(0), Cell::new(u32::MAX));
        let attempt = || {
            tries.set(tries.get() + 1);
            if tries.get() < comes_with.get() { Err(Error::NoSpace) } else { Ok(()) }
        };
        assert_eq!((room(2).make(attempt), tries.replace(0)), (Err(Error::NoSpace), 2));
        comes_with.set(2);
        assert_eq!((room(2).make(attempt), tries.replace(0)), (Ok(()), 2));
        assert_eq!((room(1).make(attempt), tries.replace(0)), (Err(Error::NoSpace), 1), "nobody else would hear of it");
        comes_with.set(5);
        let room = room(2);
        room.removed();
        assert_eq!((room.make(attempt), tries.get()), (Ok(()), 5));
    }
}
