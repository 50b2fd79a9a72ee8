//! A barrier that can be broken. A thread that fails or panics breaks it, so that the other threads
//! do not wait for ever.

use std::sync::{Condvar, Mutex, PoisonError};

/// A reusable barrier for a fixed number of threads.
pub(crate) struct Barrier {
    parties: usize,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// Number of times the barrier has opened. A waiting thread compares it with the value that it
    /// read on arrival.
    openings: u64,
    broken: bool,
}

impl Barrier {
    pub(crate) fn new(parties: usize) -> Self {
        Self { parties, state: Mutex::new(State::default()), opened: Condvar::new() }
    }

    /// Waits for all threads. Returns false if the barrier is broken: some thread will not arrive.
    #[must_use]
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return false;
        }
        state.waiting += 1;
        if state.waiting == self.parties {
            state.waiting = 0;
            state.openings += 1;
            self.opened.notify_all();
            return true;
        }
        let before = state.openings;
        while state.openings == before && !state.broken {
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Opened and then broken counts as opened: all arrived.
        state.openings != before
    }

    /// Waits for all threads twice. In between, the threads that call [`Barrier::wait`] read the
    /// shared counters, and no thread works.
    #[must_use]
    pub(crate) fn wait_twice(&self) -> bool {
        self.wait() && self.wait()
    }

    /// Releases all waiting threads, and makes every later wait return false.
    pub(crate) fn break_for_all(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
        self.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        thread,
    };

    use super::*;

    #[test]
    fn no_thread_passes_before_all_have_arrived() {
        const ROUNDS: usize = 200;
        let (barrier, came) = (Barrier::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=ROUNDS {
                        came.fetch_add(1, SeqCst);
                        assert!(barrier.wait());
                        assert!(came.load(SeqCst) >= 3 * round);
                        assert!(barrier.wait());
                    }
                });
            }
        });
        assert_eq!(came.load(SeqCst), 3 * ROUNDS);
    }

    #[test]
    fn broken_barrier_releases_its_waiters() {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| barrier.wait());
            barrier.break_for_all();
            assert!(!waiter.join().expect("no panic"));
        });
        assert!(!barrier.wait());
    }
}
