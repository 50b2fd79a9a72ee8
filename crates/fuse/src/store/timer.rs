//! Things to be done at an instant, by one thread: a heap of them, ordered by time.

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

/// Does things at their time.
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
    /// How many were ever put in: those due at one instant are done in the order in which they came.
    count: u64,
    closed: bool,
}

struct Entry {
    due: Instant,
    number: u64,
    action: Action,
}

impl Timer {
    /// Starts its thread.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("pando-store".into()).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Does `action` at the instant `due`; drops it if the timer is closed first.
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

    /// Drops what still waits, and ends the thread.
    pub(crate) fn close(&self) {
        let mut waiting = self.shared.lock();
        waiting.closed = true;
        let heap = std::mem::take(&mut waiting.heap);
        drop(waiting);
        self.shared.changed.notify_one();
        drop(heap);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its actions are unwound one by one, so it cannot have panicked.
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
        // The kernel wakes sleepers up to 50 us late to spare wake-ups; that would be a tenth of a usual delay.
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
        // Unwind safety: an action owns what it uses, and nothing of it is used afterwards.
        if catch_unwind(AssertUnwindSafe(self.action)).is_err() {
            error!("an answer panicked; the others go on");
        }
    }
}

/// The greatest of the heap is the one due first.
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
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn in_order_of_time_and_never_early() {
        let timer = Timer::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        let start = Instant::now();
        // Until all are there, the first keeps the thread.
        let (release, released) = mpsc::channel();
        timer.at(start, Box::new(move || released.recv().unwrap()));
        for delay_ms in [30_u64, 10, 20, 10, 0] {
            let (sender, due) = (sender.clone(), start + Duration::from_millis(delay_ms));
            timer.at(due, Box::new(move || sender.send((delay_ms, Instant::now() >= due)).unwrap()));
        }
        release.send(()).unwrap();
        let done: Vec<_> = receiver.iter().take(5).collect();
        assert_eq!(done, [0, 10, 10, 20, 30].map(|delay_ms| (delay_ms, true)));
    }

    #[test]
    fn a_panic_costs_one() {
        let timer = Timer::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        timer.at(Instant::now(), Box::new(|| panic!("on purpose")));
        timer.at(Instant::now(), Box::new(move || sender.send(()).unwrap()));
        receiver.recv().unwrap();
    }

    #[test]
    fn what_waits_when_it_is_closed_is_dropped() {
        let timer = Timer::start().unwrap();
        let (sender, receiver) = mpsc::channel::<()>();
        let later = Instant::now() + Duration::from_secs(3600);
        let theirs = sender.clone();
        timer.at(later, Box::new(move || theirs.send(()).unwrap()));
        timer.close();
        timer.at(later, Box::new(move || sender.send(()).unwrap()));
        assert!(receiver.recv().is_err(), "both senders are gone, and nothing was sent");
        timer.close();
    }
}
