//! `FairLock`: a mutex with bounded bypass.
//!
//! `std`'s mutex lets a newcomer take the lock before threads that sleep on it. That is fast, since
//! the lock is not idle while a sleeper wakes up, but a sleeper may lose every time. A strict queue
//! is the opposite: it is fair, and each transfer of the lock costs a context switch. Here
//! newcomers may pass, but only [`BARGES`] times while the same thread is at the head of the queue.
//! After that the lock goes to the head (bounded bypass).

use crate::facade::{self, Condvar, Mutex, MutexGuard};
use crate::tuning::{BARGES, WAKE_GROUPS};

#[derive(Default)]
struct Queue {
    held: bool,
    /// The head has been woken and has not run yet. A second wake-up would be wasted.
    woken: bool,
    /// How many newcomers have passed the current head.
    barged: u32,
    /// The ticket of the head, if it is below `next`.
    head: u64,
    /// The next ticket.
    next: u64,
}

impl Queue {
    fn has_waiters(&self) -> bool {
        self.head != self.next
    }

    /// Gives the lock to a newcomer, if the lock is free and the newcomer may pass the waiting
    /// threads.
    fn admit(&mut self) -> bool {
        if self.held || (self.has_waiters() && self.barged >= BARGES) {
            return false;
        }
        if self.has_waiters() {
            self.barged += 1;
        }
        self.held = true;
        true
    }
}

pub(crate) struct FairLock {
    /// Held for a few instructions only, never while the lock's owner works.
    queue: Mutex<Queue>,
    wake_ups: [Condvar; WAKE_GROUPS as usize],
}

pub(crate) struct FairGuard<'a>(&'a FairLock);

impl FairLock {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(Queue::default()), wake_ups: std::array::from_fn(|_| Condvar::new()) }
    }

    pub(crate) fn lock(&self) -> FairGuard<'_> {
        let mut queue = facade::lock(&self.queue);
        if !queue.admit() {
            drop(self.wait(queue));
        }
        FairGuard(self)
    }

    /// The lock, if it is free and a newcomer may pass. Does not wait.
    pub(crate) fn try_lock(&self) -> Option<FairGuard<'_>> {
        // The queue's lock is released before there is a guard, since the guard's drop takes it.
        let admitted = facade::lock(&self.queue).admit();
        if admitted { Some(FairGuard(self)) } else { None }
    }

    /// Joins the queue, and returns when the caller has the lock.
    fn wait<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let ticket = queue.next;
        queue.next += 1;
        while queue.held || queue.head != ticket {
            if queue.head == ticket {
                // A newcomer was faster. When it releases the lock, it wakes the head again.
                queue.woken = false;
            }
            let wake_up = &self.wake_ups[(ticket % WAKE_GROUPS) as usize];
            queue = wake_up.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        queue.head += 1;
        queue.woken = false;
        queue.barged = 0;
        queue.held = true;
        queue
    }
}

impl Drop for FairGuard<'_> {
    fn drop(&mut self) {
        let mut queue = facade::lock(&self.0.queue);
        queue.held = false;
        if queue.has_waiters() && !queue.woken {
            queue.woken = true;
            let head = queue.head;
            drop(queue);
            self.0.wake_ups[(head % WAKE_GROUPS) as usize].notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::stopper::Stopper;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    #[test]
    fn holders_exclude_each_other() {
        let (lock, count) = (FairLock::new(), AtomicU64::new(0));
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    for _ in 0..5000 {
                        let _guard = lock.lock();
                        count.store(count.load(SeqCst) + 1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(count.load(SeqCst), 30_000);
        let queue = facade::lock(&lock.queue);
        assert!(!queue.held && !queue.has_waiters());
    }

    #[test]
    fn try_lock_takes_a_free_lock_and_does_not_release_a_held_one() {
        let lock = FairLock::new();
        let held = lock.try_lock().expect("it is free");
        assert!(lock.try_lock().is_none());
        assert!(facade::lock(&lock.queue).held, "a failed try_lock released another thread's lock");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// Threads that take the lock as fast as they can pass a waiting thread a bounded number of
    /// times.
    #[test]
    fn bypass_is_bounded() {
        let (lock, taken, stop) = (FairLock::new(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(SeqCst) {
                        let _guard = lock.lock();
                        taken.fetch_add(1, SeqCst);
                        // Held most of the time, so that other threads wait.
                        (0..200).for_each(|_| std::hint::spin_loop());
                    }
                });
            }
            let _stopper = Stopper(&stop);
            // Threads already in the queue are served first, each with its own bypasses.
            let most = u64::from(BARGES + 1) * 4 + 1;
            let mut rounds = 0;
            while rounds < 100 {
                let queue = facade::lock(&lock.queue);
                if !queue.held {
                    drop(queue);
                    std::thread::yield_now();
                    continue;
                }
                rounds += 1;
                // Queued under the queue's mutex, so that the count starts exactly now.
                let before = taken.load(SeqCst);
                let queue = lock.wait(queue);
                let passed = taken.load(SeqCst) - before;
                drop(queue);
                drop(FairGuard(&lock));
                assert!(passed <= most, "{passed} threads passed");
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_model;
