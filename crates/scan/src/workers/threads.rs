//! The threads of a scan or a walk.
//!
//! They are started when they are first needed, sleep when they are not needed, and end with this
//! object.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use super::job::Job;

/// A thread calls the kernel and does little else.
const STACK_BYTES: usize = 128 << 10;

/// Work for threads.
pub enum Work {
    /// Many threads may take part. It stays in the queue until all of it is dealt out.
    Shared(Arc<Job>),
    /// One thread does it.
    Single(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// How many threads may work at the same time.
    wanted: usize,
    /// How many threads are working.
    busy: usize,
    ending: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Threads and the queue of their work.
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

    /// Gives work to at most `wanted` threads. False if there is no thread at all, because the
    /// system allows none: the caller has to do the work.
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

    /// Starts threads until there are `wanted`. Returns how many there are.
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
    /// One thread is woken for each piece of work. It wakes another one if there is more to do, and
    /// a thread that has finished looks for more itself. So no work is left in the queue, and no
    /// thread is woken for nothing.
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
            // The panic is reported, and the thread that waits for the work knows. This thread is
            // still needed.
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
    /// Waits for the calls that are in the kernel, and begins no more. Work of a single thread is
    /// waited for too: the thread that submitted it must tell it to end.
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
        // The last thread may drop the last reference to this object. It cannot wait for itself.
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
    fn panic_leaves_the_thread_working() {
        let threads = Threads::new();
        let submit = |work: Box<dyn FnOnce() + Send>| assert!(threads.submit(Work::Single(work), 1));
        submit(Box::new(|| panic!("for the test")));
        let (done, is_done) = mpsc::channel();
        submit(Box::new(move || done.send(()).unwrap()));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
