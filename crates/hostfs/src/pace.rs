//! How many threads ask, and in which order: decided from what the last entries cost.
//!
//! *Threads.* While nobody waits, the caller does all by itself: another thread would cost more than a call. As soon
//! as an entry waits longer than [`WAIT_PAYS_NS`], threads take over: as many as it takes for one of them to be at
//! work while the others wait (waiting time over processor time). More threads that bring nothing are not asked again
//! for a while.
//!
//! *Order.* A rotating disk wants inode order. Elsewhere the first two jobs try one order each, and the one that waited
//! less stays.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{MAX_WORKERS, Order, Workers, device, meter::Cost};

/// An entry that waits this long is worth a thread.
const WAIT_PAYS_NS: u64 = 5_000;
/// An entry that waits less is better done by the caller.
const WAIT_IS_OVER_NS: u64 = 2_000;
/// One wait alone says nothing.
const TRIP_NS: u64 = 100_000;
/// Jobs for which more threads that brought nothing are not tried again.
const SETTLE_JOBS: u32 = 16;
/// What inode order must save to be worth the sorting and the larger windows.
const ORDER_GAIN_PERCENT: u64 = 10;

/// In which order a job asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOrder {
    Directory,
    Inode,
}

/// Whether jobs are sorted by inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sorting {
    Never,
    OnTrial,
    Always,
}

/// What is known about the order that pays.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// The device was not looked at.
    Unknown,
    /// Directory order is on trial.
    First,
    /// Inode order is on trial; directory order waited this long.
    Second {
        directory_wait_ns: u64,
    },
    Made(JobOrder),
}

struct Learned {
    choice: Choice,
    /// Threads of the last job, and entries a second.
    last: Option<(usize, f64)>,
    /// The most threads for now, and for how many jobs.
    cap: Option<(usize, u32)>,
}

/// Shared by all scans of a walk.
pub struct Pace {
    /// 1: the caller alone. A single independent value.
    threads: AtomicUsize,
    limit: usize,
    fixed: bool,
    learned: Mutex<Learned>,
}

impl Pace {
    /// `most` is what the memory allows.
    pub fn new(workers: Workers, order: Order, most: usize) -> Self {
        let (threads, limit, fixed) = match workers {
            Workers::Auto => (1, MAX_WORKERS, false),
            Workers::AtMost(most) => (1, most.min(MAX_WORKERS), false),
            Workers::Fixed(count) => (count, count, true),
        };
        let (threads, limit) = (threads.min(most), limit.min(most));
        let choice = match order {
            Order::Auto => Choice::Unknown,
            Order::Directory => Choice::Made(JobOrder::Directory),
            Order::Inode => Choice::Made(JobOrder::Inode),
        };
        let learned = Mutex::new(Learned { choice, last: None, cap: None });
        Self { threads: AtomicUsize::new(threads), limit, fixed, learned }
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many threads ask now; 1 means the caller.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Whether what the caller does need not be measured.
    pub fn is_fixed(&self) -> bool {
        self.fixed || self.limit == 1
    }

    /// What the caller's own calls cost. True if threads take over.
    pub fn after_inline(&self, cost: Cost) -> bool {
        if self.is_fixed() || cost.waited_ns < TRIP_NS || cost.wait_ns() < WAIT_PAYS_NS {
            return false;
        }
        self.threads.store(self.wanted(cost).max(2), Ordering::Relaxed);
        true
    }

    /// As many as keep one of them at work.
    fn wanted(&self, cost: Cost) -> usize {
        let wanted = 1 + cost.waited_ns / cost.cpu_ns.max(1000);
        usize::try_from(wanted).unwrap_or(usize::MAX).min(self.limit)
    }

    /// What a job cost that `threads` threads did in this time.
    pub fn after_job(&self, cost: Cost, threads: usize, order: JobOrder, elapsed: Duration) {
        let mut learned = self.learned();
        learned.judge_order(order, cost);
        if self.fixed || cost.entries == 0 {
            return;
        }
        if cost.wait_ns() < WAIT_IS_OVER_NS {
            learned.last = None;
            self.threads.store(1, Ordering::Relaxed);
            return;
        }
        let rate = cost.entries as f64 / elapsed.as_secs_f64().max(1e-9);
        if let Some((before, before_rate)) = learned.last.replace((threads, rate))
            && threads > before
            && rate < before_rate * 1.05
        {
            learned.cap = Some((before, SETTLE_JOBS));
        }
        let cap = match &mut learned.cap {
            None | Some((_, 0)) => self.limit,
            Some((cap, jobs)) => {
                *jobs -= 1;
                *cap
            }
        };
        self.threads.store(self.wanted(cost).clamp(2, cap.max(2)), Ordering::Relaxed);
    }

    /// What a directory cost that was read ahead.
    pub fn after_ahead(&self, cost: Cost) {
        if !self.fixed {
            let threads = if cost.wait_ns() < WAIT_IS_OVER_NS { 1 } else { self.wanted(cost).max(2) };
            self.threads.store(threads, Ordering::Relaxed);
        }
    }

    /// The order of the next job.
    pub fn order(&self, dir: BorrowedFd<'_>) -> JobOrder {
        let mut learned = self.learned();
        if matches!(learned.choice, Choice::Unknown) {
            learned.choice = if device::is_rotational(dir) { Choice::Made(JobOrder::Inode) } else { Choice::First };
        }
        match learned.choice {
            Choice::Made(order) => order,
            Choice::Second { .. } => JobOrder::Inode,
            Choice::Unknown | Choice::First => JobOrder::Directory,
        }
    }

    /// Whether jobs are sorted by inode: then the more entries are sorted at once the better.
    pub fn sorting(&self) -> Sorting {
        match self.learned().choice {
            Choice::Made(JobOrder::Inode) => Sorting::Always,
            Choice::Made(JobOrder::Directory) => Sorting::Never,
            Choice::Unknown | Choice::First | Choice::Second { .. } => Sorting::OnTrial,
        }
    }
}

impl Learned {
    fn judge_order(&mut self, order: JobOrder, cost: Cost) {
        // A job of a few entries says nothing.
        if cost.entries < 64 {
            return;
        }
        let wait_ns = cost.wait_ns();
        self.choice = match (self.choice, order) {
            (Choice::First, JobOrder::Directory) => Choice::Second { directory_wait_ns: wait_ns },
            (Choice::Second { directory_wait_ns }, JobOrder::Inode) => {
                let pays = wait_ns * 100 < directory_wait_ns * (100 - ORDER_GAIN_PERCENT);
                Choice::Made(if pays { JobOrder::Inode } else { JobOrder::Directory })
            }
            (other, _) => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(entries: u64, cpu_us: u64, wait_us: u64) -> Cost {
        Cost { entries, cpu_ns: entries * cpu_us * 1000, waited_ns: entries * wait_us * 1000 }
    }

    #[test]
    fn nobody_else_works_while_nobody_waits() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        assert!(!pace.after_inline(cost(340, 900, 0)));
        assert!(!pace.after_inline(cost(340, 2, 4)));
        assert!(!pace.after_inline(cost(8, 2, 10)), "80 us in all say nothing");
        assert_eq!(pace.threads(), 1);
    }

    #[test]
    fn threads_follow_the_wait() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        assert!(pace.after_inline(cost(16, 5, 500)));
        assert_eq!(pace.threads(), MAX_WORKERS);
        pace.after_job(cost(1000, 5, 20), 64, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 5);
        pace.after_job(cost(1000, 5, 1), 5, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 1);
    }

    #[test]
    fn threads_that_bring_nothing_are_sent_home() {
        let pace = Pace::new(Workers::Auto, Order::Directory, 100);
        pace.after_job(cost(1000, 5, 30), 4, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 7);
        pace.after_job(cost(1000, 5, 60), 7, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 4);
        for _ in 0..SETTLE_JOBS {
            pace.after_job(cost(1000, 5, 60), 4, JobOrder::Directory, Duration::from_millis(10));
        }
        assert_eq!(pace.threads(), 13, "tried again after a while");
    }

    #[test]
    fn limits_are_kept() {
        for (workers, expected) in [(Workers::AtMost(6), 6), (Workers::Fixed(3), 3), (Workers::AtMost(1), 1)] {
            let pace = Pace::new(workers, Order::Auto, 100);
            pace.after_inline(cost(100, 5, 5000));
            assert_eq!(pace.threads(), expected);
        }
    }

    #[test]
    fn the_order_that_waits_less_stays() {
        for (inode_us, expected) in [(40, JobOrder::Inode), (95, JobOrder::Directory), (300, JobOrder::Directory)] {
            let pace = Pace::new(Workers::Auto, Order::Auto, 100);
            // Not a block device, so nothing rotates.
            let root = std::fs::File::open("/proc").unwrap();
            let dir = std::os::fd::AsFd::as_fd(&root);
            assert_eq!(pace.order(dir), JobOrder::Directory);
            pace.after_job(cost(10, 5, 1), 4, JobOrder::Directory, Duration::from_millis(1));
            assert_eq!(pace.order(dir), JobOrder::Directory, "ten entries say nothing");
            pace.after_job(cost(1000, 5, 100), 4, JobOrder::Directory, Duration::from_millis(1));
            assert_eq!(pace.order(dir), JobOrder::Inode);
            pace.after_job(cost(1000, 5, inode_us), 4, JobOrder::Inode, Duration::from_millis(1));
            assert_eq!(pace.order(dir), expected);
            let sorting = if expected == JobOrder::Inode { Sorting::Always } else { Sorting::Never };
            assert_eq!(pace.sorting(), sorting);
        }
    }
}
