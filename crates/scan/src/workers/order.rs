//! The order in which a job asks for its entries.
//!
//! A rotating disk wants inode order. Elsewhere the first two jobs try one order each, and the
//! order that waited less stays.

use std::{
    os::fd::BorrowedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    Order,
    kernel::{device, meter::Cost},
};

/// The percentage of waiting time that inode order must save, to be worth the sorting and the
/// larger windows.
const GAIN_PERCENT: u64 = 10;
/// A job of fewer entries says nothing of its order.
const JUDGED_ENTRIES: u64 = 64;

/// The order of a job.
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

#[derive(Debug, Clone, Copy)]
enum Choice {
    /// The device was not looked at.
    Unknown,
    /// Directory order is on trial.
    First,
    /// Inode order is on trial. With directory order, an entry of each thread waited this long.
    Second {
        directory_wait_ns: u64,
    },
    Made(JobOrder),
}

/// Finds the order that waits less. Shared by all scans of a walk.
pub struct OrderTrial(Mutex<Choice>);

impl OrderTrial {
    pub fn new(order: Order) -> Self {
        Self(Mutex::new(match order {
            Order::Auto => Choice::Unknown,
            Order::Directory => Choice::Made(JobOrder::Directory),
            Order::Inode => Choice::Made(JobOrder::Inode),
        }))
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order of the next job.
    pub fn next(&self, dir: BorrowedFd<'_>) -> JobOrder {
        let mut choice = self.choice();
        if matches!(*choice, Choice::Unknown) {
            *choice = if device::is_rotational(dir) { Choice::Made(JobOrder::Inode) } else { Choice::First };
        }
        match *choice {
            Choice::Made(order) => order,
            Choice::Second { .. } => JobOrder::Inode,
            Choice::Unknown | Choice::First => JobOrder::Directory,
        }
    }

    /// Takes in the cost of a job.
    pub fn after_job(&self, order: JobOrder, cost: Cost, threads: usize) {
        if cost.entries < JUDGED_ENTRIES {
            return;
        }
        // Per thread: the more threads there are, the longer all of them wait together.
        let wait_ns = cost.wait_ns() / threads.max(1) as u64;
        let mut choice = self.choice();
        *choice = match (*choice, order) {
            (Choice::First, JobOrder::Directory) => Choice::Second { directory_wait_ns: wait_ns },
            (Choice::Second { directory_wait_ns }, JobOrder::Inode) => {
                let pays = wait_ns * 100 < directory_wait_ns * (100 - GAIN_PERCENT);
                Choice::Made(if pays { JobOrder::Inode } else { JobOrder::Directory })
            }
            (other, _) => other,
        };
    }

    /// Whether jobs are sorted. Once the number of threads is decided, the more entries are sorted
    /// at once the better.
    pub fn sorting(&self, threads_are_decided: bool) -> Sorting {
        match *self.choice() {
            Choice::Made(JobOrder::Inode) if threads_are_decided => Sorting::Always,
            Choice::Made(JobOrder::Directory) => Sorting::Never,
            _ => Sorting::OnTrial,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::*;

    fn cost(entries: u64, wait_us: u64) -> Cost {
        Cost { entries, cpu_ns: entries * 5000, waited_ns: entries * wait_us * 1000 }
    }

    #[test]
    fn order_that_waits_less_stays() {
        for (inode_us, expected) in [(40, JobOrder::Inode), (95, JobOrder::Directory), (300, JobOrder::Directory)] {
            let trial = OrderTrial::new(Order::Auto);
            // Not a block device, so nothing rotates.
            let proc = File::open("/proc").unwrap();
            assert_eq!(trial.next(proc.as_fd()), JobOrder::Directory);
            trial.after_job(JobOrder::Directory, cost(10, 1), 4);
            assert_eq!(trial.next(proc.as_fd()), JobOrder::Directory, "ten entries say nothing");
            trial.after_job(JobOrder::Directory, cost(1000, 100), 4);
            assert_eq!(trial.next(proc.as_fd()), JobOrder::Inode);
            assert_eq!(trial.sorting(true), Sorting::OnTrial);
            trial.after_job(JobOrder::Inode, cost(1000, inode_us), 4);
            assert_eq!(trial.next(proc.as_fd()), expected);
            let sorting = if expected == JobOrder::Inode { Sorting::Always } else { Sorting::Never };
            assert_eq!(trial.sorting(true), sorting);
        }
    }

    #[test]
    fn number_of_threads_does_not_decide_the_order() {
        let trial = OrderTrial::new(Order::Auto);
        let proc = File::open("/proc").unwrap();
        assert_eq!(trial.next(proc.as_fd()), JobOrder::Directory);
        // One entry in 200 us, then one in 100 us.
        trial.after_job(JobOrder::Directory, cost(4096, 800), 4);
        trial.after_job(JobOrder::Inode, cost(4096, 6400), 64);
        assert_eq!(trial.next(proc.as_fd()), JobOrder::Inode);
    }

    #[test]
    fn windows_grow_once_threads_are_decided() {
        let trial = OrderTrial::new(Order::Inode);
        assert_eq!((trial.sorting(false), trial.sorting(true)), (Sorting::OnTrial, Sorting::Always));
        assert_eq!(OrderTrial::new(Order::Directory).sorting(true), Sorting::Never);
    }
}
