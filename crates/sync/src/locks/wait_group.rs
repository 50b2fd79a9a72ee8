//! `WaitGroup`: threads that work on one thing, and threads that wait until none of them does.
//!
//! A thread *enters* the group, works, and leaves. The group can be *closed*: no thread enters any
//! more, and those inside see it and leave soon. A thread that waits returns when no thread is
//! inside. The group *keeps* values for as long as threads are inside: the last one to leave drops
//! them. (Closing and waiting are known as rundown protection on Windows.)
//!
//! Everything happens under one mutex. Kept values are dropped under it, so their drops take only
//! locks under which no thread enters or leaves a group. Threads often ask whether the group is
//! closed, so that is an atomic value of its own, written under the mutex.

use std::sync::{Arc, PoisonError};

use crate::{
    facade::{self, AtomicBool, Condvar, Mutex, Ordering},
    reclaim::assert_unpinned,
};

/// Threads that work on one thing.
pub struct WaitGroup {
    state: Mutex<State>,
    empty: Condvar,
    closed: AtomicBool,
}

struct State {
    inside: usize,
    kept: Vec<Box<dyn Send>>,
}

impl std::fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitGroup").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread inside a group. It leaves when this is dropped, also in a panic.
#[must_use = "the thread leaves the group when this is dropped"]
#[derive(Debug)]
pub struct Member(Arc<WaitGroup>);

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = facade::lock(&self.0.state);
        state.inside -= 1;
        if state.inside == 0 {
            // Before a thread can see that the group is empty.
            state.kept.clear();
            self.0.empty.notify_all();
        }
    }
}

impl WaitGroup {
    /// An open group with no thread inside.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State { inside: 0, kept: Vec::new() }),
            empty: Condvar::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Enters the group. None if it is closed, or if `most` threads are inside already.
    pub fn enter(self: &Arc<Self>, most: usize) -> Option<Member> {
        let mut state = facade::lock(&self.state);
        if self.is_closed() || state.inside >= most {
            return None;
        }
        state.inside += 1;
        Some(Member(self.clone()))
    }

    /// No thread enters from now on.
    pub fn close(&self) {
        let _state = facade::lock(&self.state);
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the group was closed. Acquire: a thread that sees it sees what led to it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many threads are inside.
    #[must_use]
    pub fn inside(&self) -> usize {
        facade::lock(&self.state).inside
    }

    /// Keeps a value until no thread is inside. It is dropped under the lock of the group.
    pub fn keep(&self, value: impl Send + 'static) {
        let mut state = facade::lock(&self.state);
        if state.inside > 0 {
            state.kept.push(Box::new(value));
        }
    }

    /// Waits until no thread is inside. The caller must not be inside.
    pub fn wait(&self) {
        assert_unpinned("threads that may need a grace period");
        let mut state = facade::lock(&self.state);
        while state.inside > 0 {
            state = self.empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, TryRecvError};

    #[test]
    fn group_admits_so_many_threads_until_it_is_closed() {
        let group = Arc::new(WaitGroup::new());
        let (one, two) = (group.enter(2), group.enter(2));
        assert!(one.is_some() && two.is_some());
        assert!(group.enter(2).is_none());
        drop(one);
        assert!(group.enter(2).is_some());
        group.close();
        assert!(group.enter(9).is_none() && group.is_closed());
        assert_eq!(group.inside(), 1);
        drop(two);
        group.wait();
    }

    #[test]
    fn kept_value_is_dropped_by_the_last_thread_also_in_a_panic() {
        let group = Arc::new(WaitGroup::new());
        let (value, dropped) = mpsc::channel::<()>();
        let member = group.enter(1).expect("open");
        group.keep(value);
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Empty));
        let panicked = std::thread::spawn(move || {
            let _member = member;
            std::panic::panic_any("on purpose")
        });
        group.wait();
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Disconnected));
        assert!(panicked.join().is_err());
        let (late, dropped) = mpsc::channel::<()>();
        group.keep(late);
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Disconnected), "no thread is inside");
    }
}

#[cfg(all(test, loom))]
mod loom_model;
