//! The threads of a scan or a walk.
//!
//! They are started when they are first needed, sleep when they are not, and end with the pool.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use super::job::Job;

/// A thread calls the kernel and little else.
const STACK_BYTES: usize = 128 << 10;

/// What threads do.
pub enum Work {
    /// Many may take part; it stays in the queue until all of it is dealt out.
    Shared(Arc<Job>),
    /// One does it.
    Single(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// How many threads may work at the same time.
    wanted: usize,
    /// How many do.
    busy: usize,
    ending: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Threads, and what they are to do.
pub struct Threads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    pub fn new() -> Self {
        let shared = Shared { queue: Mutex::default(), wake: Condvar::new() };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Gives work to at most `wanted` threads. False if there is no thread at all: the system allows none, and
    /// the caller has to do it.
    pub fn submit(&self, work: Work, wanted: usize) -> bool {
        let running = self.spawn(wanted);
        if running == 0 {
            return false;
        }
        let mut queue = lock(&self.shared.queue);
        queue.wanted = wanted;
        queue.work.push_back(work);
        drop(queue);
        self.shared.wake.notify_one();
        true
    }

    /// Starts threads until there are `wanted`; how many there are.
    fn spawn(&self, wanted: usize) -> usize {
        let mut threads = lock(&self.threads);
        while threads.len() < wanted {
            let shared = self.shared.clone();
            let builder = thread::Builder::new().name(format!("scan-{}", threads.len())).stack_size(STACK_BYTES);
            match builder.spawn(move || shared.serve()) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        threads.len()
    }
}

impl Shared {
    /// One is woken for each piece of work. It wakes another one if there is more to do, and whoever is done looks
    /// for more itself: nothing is left lying, and nobody is woken for nothing.
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        while !queue.ending {
            let next = if queue.busy < queue.wanted { queue.take() } else { None };
            let Some(work) = next else {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.busy += 1;
            let more = queue.busy < queue.wanted && !queue.work.is_empty();
            drop(queue);
            if more {
                self.wake.notify_one();
            }
            // A panic has been told, and whoever waits for the work has heard of it. The thread is still needed.
            let _ = catch_unwind(AssertUnwindSafe(|| match work {
                Work::Shared(job) => job.work(),
                Work::Single(work) => work(),
            }));
            queue = lock(&self.queue);
            queue.busy -= 1;
        }
    }
}

impl Queue {
    fn take(&mut self) -> Option<Work> {
        loop {
            match self.work.front()? {
                Work::Shared(job) if job.is_dealt() => drop(self.work.pop_front()),
                Work::Shared(job) => return Some(Work::Shared(job.clone())),
                Work::Single(_) => return self.work.pop_front(),
            }
        }
    }
}

impl Threads {
    /// Waits for the calls that are in the kernel, and starts no more. What one thread does alone is waited for:
    /// whoever gave it tells it to end.
    pub fn stop(&self) {
        let mut queue = lock(&self.shared.queue);
        queue.ending = true;
        let left = std::mem::take(&mut queue.work);
        drop(queue);
        for work in left {
            if let Work::Shared(job) = work {
                job.cancel();
            }
        }
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        // What the last thread lets go of may end the pool: it cannot wait for itself.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            drop(thread.join());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn a_panic_takes_no_thread_away() {
        let threads = Threads::new();
        let submit = |work: Box<dyn FnOnce() + Send>| assert!(threads.submit(Work::Single(work), 1));
        submit(Box::new(|| panic!("as work may")));
        let (done, is_done) = mpsc::channel();
        submit(Box::new(move || done.send(()).unwrap()));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
