//! The number of threads of a scan, by the waits of its entries (see `pando_concurrency` for the
//! others).
//!
//! While nothing waits, the caller works alone: another thread would cost more than a call. As soon
//! as an entry waits longer than [`WAIT_PAYS_NS`], threads take over: as many as keep one of them
//! at work while the others wait (waiting time over CPU time). A number of threads that brought
//! nothing is not tried again for a while.
//!
//! Short waits may be waits for the other threads (XFS looks up the names of one directory one at a
//! time). Then the caller continues alone for some entries, and for long if that is as fast.
//! Entries that are much work, once some have waited, are also shared, among the CPUs: a block that
//! was read must still become inodes and names.

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::available_parallelism,
    time::Duration,
};

use pando_concurrency::SAME_RATE;

use super::tuning::{
    ALONE_DOUBLINGS, ALONE_ENTRIES, ALONE_ENTRIES_HOPELESS, ALONE_LOOKS, CAPPED_JOBS, CPU_AT_MOST_NS, HOPELESS,
    IN_THE_WAY_CPU, IN_THE_WAY_SLOWER, TOGETHER_ENTRIES, TOGETHER_JOBS, TRIAL_LOOKS, WAIT_IS_OVER_NS, WAIT_PAYS_NS,
    WAITED_AT_LEAST_NS, WAITED_LOOKS, WAITS_FOR_DEVICE_NS, WORK_ENTRIES, WORK_PAYS_NS, WORKING_CPUS,
};
use crate::{MAX_WORKERS, Workers, kernel::meter::Cost};

/// Whether the caller does as well alone, where waits are short.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Alone {
    Untried,
    /// The caller works alone, to be compared with what threads did, for at most so many
    /// measurements.
    Trial {
        together: Together,
        looks: u32,
    },
    /// It does as well. So many measurements remain before threads are tried again.
    AsWell {
        together: Together,
        looks: u32,
    },
    /// It does worse: its entries cost this. Not tried again for so many jobs, while threads do
    /// better.
    Worse {
        alone: Cost,
        jobs: u32,
    },
    /// Entries wait for a device: the more threads the better.
    Hopeless,
}

/// Entries that so many threads did, in this time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Together {
    threads: usize,
    cost: Cost,
    elapsed: Duration,
}

impl Together {
    /// How the caller alone compares.
    fn compared_with(&self, alone: Cost) -> Verdict {
        if alone.entries >= ALONE_ENTRIES && alone.wait_ns() >= WAITS_FOR_DEVICE_NS {
            // A disk that serves one call at a time: threads are no faster, but calls in inode
            // order are.
            return Verdict::Hopeless;
        }
        let cpu_ns = |cost: &Cost| cost.cpu_ns as f64 / cost.entries.max(1) as f64;
        let ns = self.elapsed.as_nanos() as f64 / self.cost.entries.max(1) as f64;
        let in_the_way = cpu_ns(&self.cost) > IN_THE_WAY_CPU * cpu_ns(&alone);
        match alone.ns() / ns {
            ratio if ratio <= if in_the_way { IN_THE_WAY_SLOWER } else { SAME_RATE } => Verdict::AsWell,
            ratio if ratio < HOPELESS => Verdict::Worse,
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
    alone: Alone,
    /// How often in a row the caller was found to do as well alone.
    matched: u32,
    /// Threads of the last job, and entries in a second.
    last: Option<(usize, f64)>,
    /// The most threads for now, and for how many jobs.
    cap: Option<(usize, u32)>,
}

/// Finds the number of threads. Shared by all scans of a walk.
pub(crate) struct ByWaits {
    /// 1: the caller alone. A single independent value.
    threads: AtomicUsize,
    limit: usize,
    fixed: bool,
    /// Read when it matters: that reads files of the control groups.
    cpus: OnceLock<usize>,
    /// Whether entries wait, if not for long. A single independent value.
    waits: AtomicBool,
    learned: Mutex<Learned>,
}

impl ByWaits {
    /// The memory allows at most `max` threads.
    pub fn new(workers: Workers, max: usize) -> Self {
        let (threads, limit, fixed) = match workers {
            Workers::Auto => (1, MAX_WORKERS, false),
            Workers::AtMost(most) => (1, most.min(MAX_WORKERS), false),
            Workers::Fixed(count) => (count, count, true),
        };
        let (threads, limit) = (threads.min(max), limit.min(max));
        let learned = Mutex::new(Learned { alone: Alone::Untried, matched: 0, last: None, cap: None });
        let (cpus, waits) = (OnceLock::new(), AtomicBool::new(false));
        Self { threads: AtomicUsize::new(threads), limit, fixed, cpus, waits, learned }
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many threads work now; 1 means the caller.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Whether the caller's own entries need not be measured.
    pub fn is_fixed(&self) -> bool {
        self.fixed || self.limit == 1
    }

    /// Takes in the cost of the caller's own entries. True if threads take over.
    pub fn after_caller(&self, cost: Cost) -> bool {
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
        let waits = cost.waited_ns >= WAITED_AT_LEAST_NS && cost.wait_ns() >= WAIT_PAYS_NS;
        if alone || !(waits || self.work_pays(cost)) {
            return false;
        }
        self.threads.store(self.wanted(cost).max(self.least(cost)), Ordering::Relaxed);
        true
    }

    /// Whether entries are much work, after some have waited. Extended attributes in the caches are
    /// much work too, but none of them waits.
    fn work_pays(&self, cost: Cost) -> bool {
        cost.entries >= WORK_ENTRIES
            && cost.cpu_ns >= cost.entries * WORK_PAYS_NS
            && self.waits.load(Ordering::Relaxed)
            && self.cpus() > 1
    }

    fn cpus(&self) -> usize {
        *self.cpus.get_or_init(|| available_parallelism().map_or(1, usize::from))
    }

    /// So many threads, if more than the caller alone.
    fn least(&self, cost: Cost) -> usize {
        if self.work_pays(cost) { self.cpus().min(WORKING_CPUS).min(self.limit) } else { 2 }
    }

    fn note_waits(&self, cost: Cost) {
        if cost.waited_ns >= WAITED_AT_LEAST_NS {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a thread reads inode clusters ahead of the caller.
    pub fn reads_ahead(&self) -> bool {
        !self.is_fixed() && self.waits.load(Ordering::Relaxed)
    }

    /// Takes in the cost of the thread that read ahead. It has not waited if all is in the kernel's
    /// caches by now.
    pub fn after_readahead(&self, cost: Cost) {
        if cost.entries > 0 {
            self.waits.store(cost.waited_ns >= WAITED_AT_LEAST_NS, Ordering::Relaxed);
        }
    }

    /// As many threads as keep one of them at work.
    fn wanted(&self, cost: Cost) -> usize {
        let cpu_ns = cost.cpu_ns.min(cost.entries * CPU_AT_MOST_NS);
        let wanted = 1 + cost.waited_ns / cpu_ns.max(1000);
        usize::try_from(wanted).unwrap_or(usize::MAX).min(self.limit)
    }

    /// Takes in the cost of a job that `threads` threads did in this time.
    pub fn after_job(&self, cost: Cost, threads: usize, elapsed: Duration) {
        if self.fixed || cost.entries == 0 {
            return;
        }
        let mut learned = self.learned();
        self.note_waits(cost);
        if cost.wait_ns() < WAIT_IS_OVER_NS && !self.work_pays(cost)
            || learned.try_alone(Together { threads, cost, elapsed })
        {
            learned.last = None;
            self.threads.store(1, Ordering::Relaxed);
            return;
        }
        let rate = cost.entries as f64 / elapsed.as_secs_f64().max(1e-9);
        if let Some((before, before_rate)) = learned.last.replace((threads, rate))
            && threads > before
            && rate < before_rate * SAME_RATE
        {
            learned.cap = Some((before, CAPPED_JOBS));
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

    /// Takes in the cost of a directory that was read ahead.
    pub fn after_directory(&self, cost: Cost) {
        if !self.fixed {
            let threads = if cost.wait_ns() < WAIT_IS_OVER_NS { 1 } else { self.wanted(cost).max(2) };
            self.learned().last = None;
            self.threads.store(threads, Ordering::Relaxed);
        }
    }

    /// How many jobs may be in progress at once: one, until it is known whether threads are to do
    /// them.
    pub fn jobs(&self, max: usize) -> usize {
        let untried = !self.fixed && self.learned().alone == Alone::Untried;
        if untried { 1 } else { max }
    }

    /// Whether the number of threads is given, or entries are known to wait for a device.
    pub fn is_decided(&self) -> bool {
        self.fixed || self.learned().alone == Alone::Hopeless
    }
}

impl Learned {
    /// Threads have done a job. True if the caller is to continue alone, for comparison. Jobs that
    /// were already in progress are compared too.
    fn try_alone(&mut self, job: Together) -> bool {
        let is_enough = job.cost.entries >= TOGETHER_ENTRIES;
        if let Alone::Worse { alone, .. } = self.alone
            && is_enough
            && alone.entries >= ALONE_ENTRIES
            && job.compared_with(alone) == Verdict::AsWell
        {
            // The threads did better, and are in one another's way since.
            self.alone = Alone::Untried;
        }
        match &mut self.alone {
            Alone::Untried if is_enough => {
                let short = job.cost.wait_ns() < WAITS_FOR_DEVICE_NS * job.threads as u64;
                self.alone = if short { Alone::Trial { together: job, looks: TRIAL_LOOKS } } else { Alone::Hopeless };
                short
            }
            Alone::Trial { together, .. } => {
                // The later job counts: the first one has paid for blocks that the others found in
                // the caches.
                if is_enough {
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

    /// Takes in the cost of the caller's entries. Returns the number of threads that are to take
    /// over, if they do better.
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
            // In the trial, the caller may have found entries that threads had read.
            Alone::AsWell { together, .. }
                if cost.entries >= ALONE_ENTRIES && together.compared_with(cost) != Verdict::AsWell =>
            {
                self.alone = Alone::Worse { alone: cost, jobs: TOGETHER_JOBS };
                Some(together.threads)
            }
            Alone::AsWell { together, looks } => {
                let waited = cost.wait_ns() >= WAITS_FOR_DEVICE_NS;
                let counts = if waited { WAITED_LOOKS } else { 1 };
                let over = looks < counts || (waited && cost.entries >= ALONE_ENTRIES_HOPELESS);
                self.alone = if over { Alone::Untried } else { Alone::AsWell { together, looks: looks - counts } };
                None
            }
            Alone::Untried | Alone::Worse { .. } | Alone::Hopeless => None,
        }
    }
}

#[cfg(test)]
mod tests;
