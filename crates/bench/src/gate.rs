//! A barrier that can be broken: whoever fails or panics lets the others go instead of keeping them for ever.

use std::sync::{Condvar, Mutex, PoisonError};

/// Where a fixed number of threads wait for each other, again and again.
pub(crate) struct Gate {
    parties: usize,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// Counts openings: whoever waits sees that his has come.
    openings: u64,
    broken: bool,
}

impl Gate {
    pub(crate) fn new(parties: usize) -> Self {
        Self { parties, state: Mutex::new(State::default()), opened: Condvar::new() }
    }

    /// Waits for all. False: the gate is broken, and somebody will not come.
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
        // Opened and then broken is opened: all came.
        state.openings != before
    }

    /// Waits for all, and again while those who come by [`Gate::wait`] read what all share: nobody works in between.
    #[must_use]
    pub(crate) fn let_read(&self) -> bool {
        self.wait() && self.wait()
    }

    /// Lets all go, now and later.
    pub(crate) fn break_open(&self) {
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
    fn nobody_goes_before_all_have_come() {
        const ROUNDS: usize = 200;
        let (gate, came) = (Gate::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=ROUNDS {
                        came.fetch_add(1, SeqCst);
                        assert!(gate.wait());
                        assert!(came.load(SeqCst) >= 3 * round);
                        assert!(gate.wait());
                    }
                });
            }
        });
        assert_eq!(came.load(SeqCst), 3 * ROUNDS);
    }

    #[test]
    fn a_broken_gate_keeps_nobody() {
        let gate = Gate::new(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait());
            gate.break_open();
            assert!(!waiter.join().expect("no panic"));
        });
        assert!(!gate.wait());
    }
}
