//! A timer: one thread that runs actions when they are due. They wait in a heap, ordered by time.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    io,
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use tracing::{debug, error};

type Action = Box<dyn FnOnce() + Send>;

/// Runs actions when they are due.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    heap: BinaryHeap<Entry>,
    /// How many actions were ever added. Actions that are due at the same instant run in the order
    /// in which they were added.
    count: u64,
    closed: bool,
}

struct Entry {
    due: Instant,
    number: u64,
    action: Action,
}

impl Timer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("pando-inject".into()).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `action` at the instant `due`. Drops it if the timer is closed first.
    pub(crate) fn at(&self, due: Instant, action: Action) {
        let mut waiting = self.shared.lock();
        if waiting.closed {
            drop(waiting);
            drop(action);
            return;
        }
        let first = waiting.heap.peek().is_none_or(|entry| due < entry.due);
        waiting.count += 1;
        let number = waiting.count;
        waiting.heap.push(Entry { due, number, action });
        drop(waiting);
        if first {
            self.shared.changed.notify_one();
        }
    }

    /// Drops the actions that are not due yet, and ends the thread.
    pub(crate) fn close(&self) {
        let mut waiting = self.shared.lock();
        waiting.closed = true;
        let heap = std::mem::take(&mut waiting.heap);
        drop(waiting);
        self.shared.changed.notify_one();
        drop(heap);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It catches the panic of each action, so it cannot have panicked itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that can panic runs under the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // By default the kernel wakes a sleeper up to 50 us late, to save wake-ups. That would be a
        // tenth of a usual delay.
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            debug!(%error, "delays are longer by up to 50 us");
        }
        let mut due = Vec::new();
        let mut waiting = self.lock();
        while !waiting.closed {
            let now = Instant::now();
            while waiting.heap.peek().is_some_and(|entry| entry.due <= now) {
                due.extend(waiting.heap.pop());
            }
            if !due.is_empty() {
                drop(waiting);
                due.drain(..).for_each(Entry::run);
                waiting = self.lock();
                continue;
            }
            waiting = match waiting.heap.peek().map(|entry| entry.due) {
                Some(next) => {
                    let left = next.saturating_duration_since(now);
                    self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Entry {
    fn run(self) {
        // Unwind safety: an action owns what it uses, and nothing uses it afterwards.
        if catch_unwind(AssertUnwindSafe(self.action)).is_err() {
            error!("a held reply panicked; the others are sent");
        }
    }
}

/// The greatest entry of the heap is the one that is due first.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests;
