//! `FairLock`: mutual exclusion in which nobody is passed over for ever.
//!
//! `std`'s mutex lets a thread that comes by take the lock before those that sleep on it: fast, since the lock is not
//! idle while a sleeper wakes, but a sleeper may lose every time. A strict queue is the opposite: fair, and every
//! change of hands costs a context switch. Here newcomers may barge in, but only [`BARGES`] times while the same thread
//! is at the head of the queue; after that the lock goes to the head (bounded bypass).

use crate::facade::{self, Condvar, Mutex, MutexGuard};
use crate::tuning::{BARGES, WAKE_GROUPS};

#[derive(Default)]
struct Queue {
    held: bool,
    /// Whether the head has been woken and has not looked yet: a second wake-up would be wasted.
    woken: bool,
    /// How many newcomers have passed the present head.
    barged: u32,
    /// The ticket of the head, if it is below `next`.
    head: u64,
    /// The next ticket.
    next: u64,
}

impl Queue {
    fn someone_waits(&self) -> bool {
        self.head != self.next
    }

    /// Gives the lock to a newcomer, if it is free and he may pass whoever waits.
    fn admit(&mut self) -> bool {
        if self.held || (self.someone_waits() && self.barged >= BARGES) {
            return false;
        }
        if self.someone_waits() {
            self.barged += 1;
        }
        self.held = true;
        true
    }
}

pub(crate) struct FairLock {
    /// Held for a few instructions only, never while the lock's owner works.
    queue: Mutex<Queue>,
    turns: [Condvar; WAKE_GROUPS as usize],
}

pub(crate) struct FairGuard<'a>(&'a FairLock);

impl FairLock {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(Queue::default()), turns: std::array::from_fn(|_| Condvar::new()) }
    }

    pub(crate) fn lock(&self) -> FairGuard<'_> {
        let mut queue = facade::lock(&self.queue);
        if !queue.admit() {
            drop(self.wait(queue));
        }
        FairGuard(self)
    }

    /// The lock, if it is free and a newcomer may pass; never waits.
    pub(crate) fn try_lock(&self) -> Option<FairGuard<'_>> {
        // The queue's own lock is let go before there is a guard, whose drop takes it.
        let admitted = facade::lock(&self.queue).admit();
        if admitted { Some(FairGuard(self)) } else { None }
    }

    /// Queues up and returns when the lock is the caller's.
    fn wait<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let ticket = queue.next;
        queue.next += 1;
        while queue.held || queue.head != ticket {
            if queue.head == ticket {
                // Woken in vain: a newcomer was faster. Whoever holds the lock wakes again.
                queue.woken = false;
            }
            let turn = &self.turns[(ticket % WAKE_GROUPS) as usize];
            queue = turn.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
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
        if queue.someone_waits() && !queue.woken {
            queue.woken = true;
            let head = queue.head;
            drop(queue);
            self.0.turns[(head % WAKE_GROUPS) as usize].notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::stopper::Stopper;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    #[test]
    fn excludes() {
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
        assert!(!queue.held && !queue.someone_waits());
    }

    #[test]
    fn trying_takes_a_free_lock_and_leaves_a_held_one_alone() {
        let lock = FairLock::new();
        let held = lock.try_lock().expect("it is free");
        assert!(lock.try_lock().is_none());
        assert!(facade::lock(&lock.queue).held, "a vain try released somebody else's lock");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// Threads that take the lock again and again, as fast as they can, pass a waiting one only so often.
    #[test]
    fn bypass_is_bounded() {
        let (lock, taken, stop) = (FairLock::new(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(SeqCst) {
                        let _guard = lock.lock();
                        taken.fetch_add(1, SeqCst);
                        // It is held most of the time, so that who comes waits.
                        (0..200).for_each(|_| std::hint::spin_loop());
                    }
                });
            }
            let _stopper = Stopper(&stop);
            // Whoever is in the queue already is served before us, each with its own bypasses.
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
