//! How many threads ask, and in which order: decided from what the last entries cost.
//!
//! *Threads.* While nobody waits, the caller does all by itself: another thread would cost more than a call. As soon
//! as an entry waits longer than [`WAIT_PAYS_NS`], threads take over: as many as it takes for one of them to be at
//! work while the others wait (waiting time over processor time). More threads that bring nothing are not asked again
//! for a while. Short waits may be for one another (XFS looks names of one directory up one at a time): then the caller
//! goes on alone for some entries, and for long if that is as fast. Entries that are much work, once some have waited, are shared
//! as well, as long as there are processors: what was read has yet to be made into inodes and names.
//!
//! *Order.* A rotating disk wants inode order. Elsewhere the first two jobs try one order each, and the one that waited
//! less stays.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::available_parallelism,
    time::Duration,
};

use crate::{MAX_WORKERS, Order, Workers, device, meter::Cost};

/// An entry that waits this long is worth a thread.
const WAIT_PAYS_NS: u64 = 5_000;
/// An entry that waits less is better done by the caller.
const WAIT_IS_OVER_NS: u64 = 2_000;
/// What an entry takes of the processor, at most: the first few take many times that, as all is touched for the first time.
const CPU_AT_MOST_NS: u64 = 20_000;
/// An entry that takes so much of the processor is not in the kernel's caches, nor is what it is made of: another processor
/// halves that.
const WORK_PAYS_NS: u64 = 5_000;
/// As far as more processors have been seen to bring something.
const MOST_AT_WORK: usize = 4;
/// Fewer entries do not tell it from what is touched for the first time.
const WORK_ENTRIES: u64 = 64;
/// One wait alone says nothing.
const TRIP_NS: u64 = 100_000;
/// Jobs for which more threads that brought nothing are not tried again.
const SETTLE_JOBS: u32 = 16;
/// An entry that waits longer than this, for each thread there is, waits for a device, and not for another thread.
const WAIT_IS_FOR_A_DEVICE_NS: u64 = 50_000;
/// What threads did says something once they have done so many entries,
const THREADS_ENTRIES: u64 = 1024;
/// and what the caller did alone, once it has done so many.
const ALONE_ENTRIES: u64 = 256;
/// So few, if it was no comparison.
const ALONE_ENTRIES_HOPELESS: u64 = 32;
/// How often the caller, found to do as well alone, is looked at before threads are tried again; each time that it is
/// found so again, twice as often, up to so many times.
const ALONE_LOOKS: u32 = 2048;
const ALONE_DOUBLINGS: u32 = 4;
/// A look at which entries waited as for a device counts as so many: one wait alone says nothing.
const WAITED_LOOKS: u32 = 64;
/// After so many looks that compare nothing (directories are small), threads take over again.
const TRIAL_LOOKS: u32 = 64;
/// Jobs of threads that do better before the caller tries again alone.
const TOGETHER_JOBS: u32 = 4;
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

/// Whether the caller does as well alone, where waits are short.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Alone {
    Untried,
    /// The caller works alone, to be compared with what threads did, for at most so many looks.
    Trial {
        together: Together,
        looks: u32,
    },
    /// It does. Looked at so often before threads are tried again.
    AsWell {
        together: Together,
        looks: u32,
    },
    /// It does not: its entries cost this. Not tried again for so many jobs, while those do better.
    Worse {
        alone: Cost,
        jobs: u32,
    },
    /// Waits are for a device: the more threads the better.
    Hopeless,
}

/// What so many threads did, in this time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Together {
    threads: usize,
    cost: Cost,
    elapsed: Duration,
}

impl Together {
    /// How the caller compares, if it did entries for this, alone. Threads that are in one another's way show it first by
    /// the processor time that they need; how fast they are varies more from one moment to the next.
    fn compared_with(&self, alone: Cost) -> Verdict {
        if alone.entries >= ALONE_ENTRIES && alone.wait_ns() >= WAIT_IS_FOR_A_DEVICE_NS {
            // A disk that serves one at a time: threads are no faster, but what is asked for in order is.
            return Verdict::Hopeless;
        }
        let cpu_ns = |cost: &Cost| cost.cpu_ns as f64 / cost.entries.max(1) as f64;
        let alone_ns = alone.ns();
        let ns = self.elapsed.as_nanos() as f64 / self.cost.entries.max(1) as f64;
        let in_the_way = cpu_ns(&self.cost) > 1.25 * cpu_ns(&alone);
        match alone_ns / ns {
            ratio if ratio <= if in_the_way { 1.3 } else { 1.05 } => Verdict::AsWell,
            ratio if ratio < 4.0 => Verdict::Worse,
            _ => Verdict::Hopeless,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    AsWell,
    Worse,
    Hopeless,
}

struct Learned {
    choice: Choice,
    alone: Alone,
    /// How often in a row the caller was found to do as well alone.
    matched: u32,
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
    /// Asked for when it matters: that reads files of the control groups.
    processors: OnceLock<usize>,
    /// Whether entries wait, if not for long. A single independent value.
    waits: AtomicBool,
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
        let learned = Mutex::new(Learned { choice, alone: Alone::Untried, matched: 0, last: None, cap: None });
        let (processors, waits) = (OnceLock::new(), AtomicBool::new(false));
        Self { threads: AtomicUsize::new(threads), limit, fixed, processors, waits, learned }
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
        if self.is_fixed() {
            return false;
        }
        self.note_waits(cost);
        let mut learned = self.learned();
        if let Some(threads) = learned.judge_alone(cost) {
            self.threads.store(threads, Ordering::Relaxed);
            return true;
        }
        let alone = matches!(learned.alone, Alone::Trial { .. } | Alone::AsWell { .. });
        let waits = cost.waited_ns >= TRIP_NS && cost.wait_ns() >= WAIT_PAYS_NS;
        if alone || !(waits || self.work_pays(cost)) {
            return false;
        }
        self.threads.store(self.wanted(cost).max(self.least(cost)), Ordering::Relaxed);
        true
    }

    /// Whether entries are much work, and were so since some waited: not for extended attributes that are in the caches.
    fn work_pays(&self, cost: Cost) -> bool {
        cost.entries >= WORK_ENTRIES
            && cost.cpu_ns >= cost.entries * WORK_PAYS_NS
            && self.waits.load(Ordering::Relaxed)
            && self.processors() > 1
    }

    fn processors(&self) -> usize {
        *self.processors.get_or_init(|| available_parallelism().map_or(1, usize::from))
    }

    /// So many threads, if more than the caller alone.
    fn least(&self, cost: Cost) -> usize {
        if self.work_pays(cost) { self.processors().min(MOST_AT_WORK).min(self.limit) } else { 2 }
    }

    fn note_waits(&self, cost: Cost) {
        if cost.waited_ns >= TRIP_NS {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a thread is to read ahead of the caller.
    pub fn reads_ahead(&self) -> bool {
        !self.is_fixed() && self.waits.load(Ordering::Relaxed)
    }

    /// What a thread that read ahead had to pay: nothing, if all is in the kernel's caches by now.
    pub fn after_readahead(&self, cost: Cost) {
        if cost.entries > 0 {
            self.waits.store(cost.waited_ns >= TRIP_NS, Ordering::Relaxed);
        }
    }

    /// As many as keep one of them at work.
    fn wanted(&self, cost: Cost) -> usize {
        let cpu_ns = cost.cpu_ns.min(cost.entries * CPU_AT_MOST_NS);
        let wanted = 1 + cost.waited_ns / cpu_ns.max(1000);
        usize::try_from(wanted).unwrap_or(usize::MAX).min(self.limit)
    }

    /// What a job cost that `threads` threads did in this time.
    pub fn after_job(&self, cost: Cost, threads: usize, order: JobOrder, elapsed: Duration) {
        let mut learned = self.learned();
        learned.judge_order(order, cost, threads);
        if self.fixed || cost.entries == 0 {
            return;
        }
        self.note_waits(cost);
        if cost.wait_ns() < WAIT_IS_OVER_NS && !self.work_pays(cost) {
            learned.last = None;
            self.threads.store(1, Ordering::Relaxed);
            return;
        }
        if learned.try_alone(Together { threads, cost, elapsed }) {
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
        let least = self.least(cost);
        self.threads.store(self.wanted(cost).clamp(least, cap.max(least)), Ordering::Relaxed);
    }

    /// What a directory cost that was read ahead.
    pub fn after_ahead(&self, cost: Cost) {
        if !self.fixed {
            let threads = if cost.wait_ns() < WAIT_IS_OVER_NS { 1 } else { self.wanted(cost).max(2) };
            self.learned().last = None;
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

    /// How many jobs may be under way at once: one, until it is known whether threads are to do them.
    pub fn jobs(&self, most: usize) -> usize {
        let untried = !self.fixed && self.learned().alone == Alone::Untried;
        if untried { 1 } else { most }
    }

    /// Whether jobs are sorted by inode: then the more entries are sorted at once the better, once it is known that
    /// they wait for a device.
    pub fn sorting(&self) -> Sorting {
        let learned = self.learned();
        match learned.choice {
            Choice::Made(JobOrder::Inode) if self.fixed || learned.alone == Alone::Hopeless => Sorting::Always,
            Choice::Made(JobOrder::Inode) => Sorting::OnTrial,
            Choice::Made(JobOrder::Directory) => Sorting::Never,
            Choice::Unknown | Choice::First | Choice::Second { .. } => Sorting::OnTrial,
        }
    }
}

impl Learned {
    /// A job of threads is done: whether the caller is to go on alone, for comparison. Jobs that were under way already
    /// are compared, too.
    fn try_alone(&mut self, job: Together) -> bool {
        let says = job.cost.entries >= THREADS_ENTRIES;
        if let Alone::Worse { alone, .. } = self.alone
            && says
            && alone.entries >= ALONE_ENTRIES
            && job.compared_with(alone) == Verdict::AsWell
        {
            // They did better, and have got into one another's way since.
            self.alone = Alone::Untried;
        }
        match &mut self.alone {
            Alone::Untried if says => {
                let short = job.cost.wait_ns() < WAIT_IS_FOR_A_DEVICE_NS * job.threads as u64;
                self.alone = if short { Alone::Trial { together: job, looks: TRIAL_LOOKS } } else { Alone::Hopeless };
                short
            }
            Alone::Trial { together, .. } => {
                // The later one: the first has paid for what the others found read.
                if says {
                    *together = job;
                }
                true
            }
            Alone::AsWell { .. } => true,
            Alone::Worse { jobs: 0, .. } => {
                self.alone = Alone::Untried;
                false
            }
            Alone::Worse { jobs, .. } => {
                *jobs -= 1;
                false
            }
            Alone::Untried | Alone::Hopeless => false,
        }
    }

    /// What the caller's entries cost alone. The number of threads that are to take over, if they do better.
    fn judge_alone(&mut self, cost: Cost) -> Option<usize> {
        match self.alone {
            Alone::Trial { together, looks } => {
                let worse = Alone::Worse { alone: cost, jobs: TOGETHER_JOBS };
                self.alone = match together.compared_with(cost) {
                    Verdict::Hopeless if cost.entries >= ALONE_ENTRIES_HOPELESS => Alone::Hopeless,
                    _ if cost.entries < ALONE_ENTRIES && looks == 0 => worse,
                    _ if cost.entries < ALONE_ENTRIES => {
                        self.alone = Alone::Trial { together, looks: looks - 1 };
                        return None;
                    }
                    Verdict::AsWell => {
                        Alone::AsWell { together, looks: ALONE_LOOKS << self.matched.min(ALONE_DOUBLINGS) }
                    }
                    Verdict::Worse | Verdict::Hopeless => worse,
                };
                let as_well = matches!(self.alone, Alone::AsWell { .. });
                self.matched = if as_well { self.matched + 1 } else { 0 };
                (!as_well).then_some(together.threads)
            }
            // In the trial it may have found what threads had read.
            Alone::AsWell { together, .. }
                if cost.entries >= ALONE_ENTRIES && together.compared_with(cost) != Verdict::AsWell =>
            {
                self.alone = Alone::Worse { alone: cost, jobs: TOGETHER_JOBS };
                Some(together.threads)
            }
            Alone::AsWell { together, looks } => {
                let waited = cost.wait_ns() >= WAIT_IS_FOR_A_DEVICE_NS;
                let counts = if waited { WAITED_LOOKS } else { 1 };
                let over = looks < counts || (waited && cost.entries >= ALONE_ENTRIES_HOPELESS);
                self.alone = if over { Alone::Untried } else { Alone::AsWell { together, looks: looks - counts } };
                None
            }
            Alone::Untried | Alone::Worse { .. } | Alone::Hopeless => None,
        }
    }

    fn judge_order(&mut self, order: JobOrder, cost: Cost, threads: usize) {
        // A job of a few entries says nothing.
        if cost.entries < 64 {
            return;
        }
        // Of each thread: the more there are, the longer all of them wait together.
        let wait_ns = cost.wait_ns() / threads.max(1) as u64;
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
    fn one_thread_reads_ahead_while_entries_wait_a_little() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        assert!(!pace.after_inline(cost(340, 4, 0)) && !pace.reads_ahead());
        assert!(!pace.after_inline(cost(340, 4, 2)) && pace.reads_ahead());
        pace.after_readahead(cost(20, 9, 100));
        assert!(pace.reads_ahead());
        pace.after_readahead(cost(0, 0, 0));
        assert!(pace.reads_ahead(), "told to end before it began, it says nothing");
        pace.after_readahead(cost(20, 9, 0));
        assert!(!pace.reads_ahead(), "all is in the kernel's caches");
        let alone = Pace::new(Workers::AtMost(1), Order::Auto, 100);
        assert!(!alone.after_inline(cost(340, 9, 2)) && !alone.reads_ahead());
    }

    #[test]
    fn threads_follow_the_wait() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        assert!(pace.after_inline(cost(16, 5, 500)));
        assert_eq!(pace.threads(), MAX_WORKERS);
        pace.after_job(cost(1000, 5, 20), 64, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 5);
        pace.after_job(cost(1000, 4, 1), 5, JobOrder::Directory, Duration::from_millis(10));
        assert_eq!(pace.threads(), 1);
    }

    /// Eight entries on a slow server, as they were measured.
    #[test]
    fn what_the_first_entries_take_of_the_processor_says_little() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        assert!(pace.after_inline(cost(8, 342, 865)));
        assert_eq!(pace.threads(), 44);
    }

    /// On a machine of so many processors.
    fn on(processors: usize) -> Pace {
        Pace { processors: processors.into(), ..Pace::new(Workers::Auto, Order::Directory, 100) }
    }

    /// As ext4's inodes are: some reads, and then blocks to be made into inodes.
    #[test]
    fn threads_share_much_work_where_entries_have_waited() {
        let pace = on(2);
        assert!(!pace.after_inline(cost(340, 9, 0)), "attributes in the caches, extended ones among them");
        pace.after_inline(cost(32, 9, 4));
        assert!(!pace.after_inline(cost(32, 9, 0)), "too few");
        assert!(pace.after_inline(cost(340, 9, 0)));
        assert_eq!(pace.threads(), 2);
        // Nine alone, five together.
        pace.after_job(cost(4096, 9, 0), 2, JobOrder::Directory, Duration::from_millis(20));
        assert_eq!(pace.threads(), 1, "the caller tries alone");
        assert!(pace.after_inline(cost(256, 9, 0)));
        pace.after_job(cost(4096, 9, 0), 2, JobOrder::Directory, Duration::from_millis(20));
        assert_eq!(pace.threads(), 2);
        pace.after_job(cost(4096, 2, 0), 2, JobOrder::Directory, Duration::from_millis(4));
        assert_eq!(pace.threads(), 1, "the caches have it");

        let pace = on(1);
        pace.after_inline(cost(32, 9, 4));
        assert!(!pace.after_inline(cost(340, 9, 0)), "there is nobody to share with");
    }

    #[test]
    fn a_trial_alone_of_what_threads_had_read_is_taken_back() {
        let pace = on(2);
        pace.after_job(cost(4096, 10, 20), 2, JobOrder::Directory, Duration::from_millis(32));
        assert!(!pace.after_inline(cost(256, 3, 0)), "as good alone");
        assert!(pace.after_inline(cost(256, 12, 0)), "and then it is not");
        assert_eq!(pace.threads(), 2);
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
    fn threads_in_one_anothers_way_are_sent_home() {
        let pace = Pace::new(Workers::Auto, Order::Directory, 100);
        assert!(pace.after_inline(cost(64, 8, 10)));
        // Two threads do 4096 entries in 70 ms, 17 us each, with twice the work.
        pace.after_job(cost(4096, 16, 16), 2, JobOrder::Directory, Duration::from_millis(70));
        assert_eq!(pace.threads(), 1, "the caller tries alone");
        pace.after_job(cost(4096, 16, 16), 2, JobOrder::Directory, Duration::from_millis(70));
        assert_eq!(pace.threads(), 1, "a job that was under way says the same");
        assert!(!pace.after_inline(cost(64, 8, 10)), "too few to compare");
        assert!(!pace.after_inline(cost(256, 8, 10)), "18 us each: as good as that");
        assert!(!pace.after_inline(cost(256, 8, 12)), "decided");
        assert!(pace.after_inline(cost(64, 8, 500)) || pace.after_inline(cost(64, 8, 500)), "a device: threads again");
    }

    #[test]
    fn threads_that_bring_something_are_called_back() {
        let pace = Pace::new(Workers::Auto, Order::Directory, 100);
        pace.after_job(cost(4096, 8, 30), 4, JobOrder::Directory, Duration::from_millis(35));
        assert_eq!(pace.threads(), 1);
        assert!(pace.after_inline(cost(256, 8, 10)), "18 us alone, 8.5 us with four threads");
        assert_eq!(pace.threads(), 4);
        pace.after_job(cost(4096, 8, 30), 4, JobOrder::Directory, Duration::from_millis(35));
        assert_eq!(pace.threads(), 4, "not tried again at once");
    }

    #[test]
    fn threads_that_get_into_one_anothers_way_are_sent_home_at_once() {
        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 5, 8), 2, JobOrder::Inode, Duration::from_millis(28));
        assert!(pace.after_inline(cost(256, 6, 3)), "9 us alone, 7 us with two threads");
        pace.after_job(cost(4096, 5, 8), 2, JobOrder::Inode, Duration::from_millis(28));
        assert_eq!(pace.threads(), 2);
        pace.after_job(cost(200, 25, 25), 2, JobOrder::Inode, Duration::from_millis(5));
        assert_eq!(pace.threads(), 2, "too few to compare");
        pace.after_job(cost(4096, 25, 25), 2, JobOrder::Inode, Duration::from_millis(100));
        assert_eq!(pace.threads(), 1, "25 us now, 9 us alone");
        assert!(!pace.after_inline(cost(256, 6, 3)), "and alone it is 9 us still");

        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 5, 8), 2, JobOrder::Inode, Duration::from_millis(28));
        assert!(pace.after_inline(cost(256, 6, 3)));
        pace.after_job(cost(4096, 5, 800), 2, JobOrder::Inode, Duration::from_millis(1640));
        assert_eq!(pace.sorting(), Sorting::Always, "slower, but it is a device that they wait for");
        assert_ne!(pace.threads(), 1);
    }

    /// What threads did in another directory, at another time, says nothing of these.
    #[test]
    fn a_rate_from_before_the_caller_took_over_caps_nothing() {
        let pace = Pace::new(Workers::AtMost(64), Order::Directory, 100);
        let job = |wait_us, threads, millis| {
            pace.after_job(cost(4096, 8, wait_us), threads, JobOrder::Directory, Duration::from_millis(millis));
        };
        job(30, 4, 35);
        assert!(pace.after_inline(cost(256, 8, 10)));
        job(30, 4, 35);
        pace.after_job(cost(4096, 25, 75), 4, JobOrder::Directory, Duration::from_millis(100));
        assert_eq!(pace.threads(), 1, "in one another's way");
        assert!(!pace.after_inline(cost(256, 8, 10)));
        assert!(pace.after_inline(cost(32, 5, 5000)), "a slow store");
        assert_eq!(pace.threads(), 64);
        job(5000, 64, 330);
        assert_eq!(pace.threads(), 64);
    }

    #[test]
    fn waits_for_a_device_are_not_tried_alone() {
        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 5, 4000), 64, JobOrder::Inode, Duration::from_millis(260));
        assert_eq!((pace.threads(), pace.sorting()), (64, Sorting::Always));
    }

    #[test]
    fn a_trial_alone_that_has_no_hope_ends_soon() {
        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 5, 800), 64, JobOrder::Inode, Duration::from_millis(70));
        assert_eq!((pace.threads(), pace.sorting()), (1, Sorting::OnTrial));
        assert!(pace.after_inline(cost(32, 5, 600)));
        assert_eq!((pace.threads(), pace.sorting()), (64, Sorting::Always));
        pace.after_job(cost(4096, 5, 800), 64, JobOrder::Inode, Duration::from_millis(70));
        assert_eq!(pace.threads(), 64, "nor tried again");
    }

    #[test]
    fn a_disk_that_serves_one_at_a_time_is_asked_in_order() {
        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 5, 800), 64, JobOrder::Inode, Duration::from_millis(1000));
        assert_eq!(pace.sorting(), Sorting::OnTrial);
        assert!(!pace.after_inline(cost(128, 5, 250)), "one read alone may have been long");
        assert!(pace.after_inline(cost(256, 5, 250)));
        assert_eq!((pace.threads(), pace.sorting()), (64, Sorting::Always));
    }

    #[test]
    fn an_order_is_not_judged_by_the_number_of_threads() {
        let pace = Pace::new(Workers::Auto, Order::Auto, 100);
        let root = std::fs::File::open("/proc").unwrap();
        let dir = std::os::fd::AsFd::as_fd(&root);
        assert_eq!(pace.order(dir), JobOrder::Directory);
        // One entry in 200 us, then one in 100 us.
        pace.after_job(cost(4096, 5, 800), 4, JobOrder::Directory, Duration::from_millis(820));
        pace.after_job(cost(4096, 5, 6400), 64, JobOrder::Inode, Duration::from_millis(410));
        assert_eq!(pace.order(dir), JobOrder::Inode);
    }

    #[test]
    fn a_tree_of_small_directories_does_not_stay_with_the_caller() {
        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 16, 16), 2, JobOrder::Inode, Duration::from_millis(70));
        assert!((0..=TRIAL_LOOKS).any(|_| pace.after_inline(cost(8, 8, 500))), "no look had enough to compare");
        assert_eq!(pace.threads(), 2);

        let pace = Pace::new(Workers::Auto, Order::Inode, 100);
        pace.after_job(cost(4096, 16, 16), 2, JobOrder::Inode, Duration::from_millis(70));
        assert!(!pace.after_inline(cost(256, 8, 10)), "as good alone");
        let slow = (1..).find(|_| pace.after_inline(cost(8, 8, 500))).expect("some look");
        assert!(slow <= ALONE_LOOKS / WAITED_LOOKS + 2, "{slow} looks at entries that waited");
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
            let pace = Pace::new(Workers::Fixed(4), Order::Auto, 100);
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
