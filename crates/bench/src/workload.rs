//! Workloads: the operations that each thread repeats.

mod crunl;
mod dpath;
mod durable;
mod limited;
mod listing;
mod mdtest;
mod names;
mod programs;
mod read;
mod registry;
mod rndrename;
mod seek;
mod settings;
mod spec;
mod stat;
mod statwalk;
pub(crate) mod tree;

use std::{io, time::Instant};

#[cfg(test)]
pub(crate) use self::registry::WORKLOADS;
pub(crate) use self::{
    registry::{describe, shown},
    spec::{Named, WorkloadSpec, parse_all},
};
use crate::{
    base::{cancel::Cancel, failure::Failure, measure::Latency, path::TreePath, phase::Phase},
    target::{Actor, Handle},
};

/// How a workload is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The work has no end. It is counted for the requested time.
    Timed,
    /// The work ends and needs preparation. It runs in rounds, each prepared without counting,
    /// until the requested time has been counted. Warm-up rounds come first.
    Rounds,
    /// As `Rounds`, but each round begins with cold caches, so there is no warm-up.
    Cold,
}

/// A workload: its preparation, and the tasks of its threads.
pub(crate) trait Workload: Sync {
    /// How it is measured.
    fn pace(&self) -> Pace {
        Pace::Timed
    }

    /// Number of threads that disturb the workers. Their operations and their CPU time are not
    /// counted.
    fn helpers(&self) -> usize {
        0
    }

    /// The helpers' operation, as a plural noun such as "reads".
    fn helpers_do(&self) -> &'static str {
        "operations"
    }

    /// Requested operations per second of all helpers together; none if they run at full speed.
    fn helpers_per_s(&self) -> Option<u64> {
        None
    }

    /// Whether workers need no shared memory, and may be processes.
    fn may_be_processes(&self) -> bool {
        self.helpers() == 0
    }

    /// Whether a target does this work in threads of its own. Then the CPU time of the whole
    /// process is counted.
    fn is_done_by_others(&self) -> bool {
        false
    }

    /// Whether the caches of a target are to hold all files of the workload.
    fn fits_into_cache(&self) -> bool {
        false
    }

    /// Makes the files that must exist before the clock starts, for up to `workers` workers. Called
    /// once per session.
    ///
    /// # Errors
    /// The target's error, or [`Failure::Interrupted`].
    fn prepare(&self, actor: &mut dyn Actor, workers: usize, cancel: &Cancel) -> Result<(), Failure>;

    /// Makes what the workers of one measurement share: an open file.
    ///
    /// # Errors
    /// The target's error.
    fn share(&self, _actor: &mut dyn Actor) -> io::Result<Option<Box<dyn Handle>>> {
        Ok(None)
    }

    /// The task of one thread in one measurement. The same part gives the same names and the same
    /// order, so that every target of a repeat gets the same work.
    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a>;
}

/// One thread's part of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Seed of names and orders. Threads with consecutive numbers have consecutive seeds.
    pub(crate) seed: u64,
    /// Counted from 0; helpers follow the workers.
    pub(crate) worker: usize,
    /// Number of workers, without helpers.
    pub(crate) workers: usize,
    /// The handle that [`Workload::share`] made.
    pub(crate) shared: Option<&'a dyn Handle>,
    /// The phase of the measurement.
    pub(crate) phase: &'a Phase,
}

impl Part<'_> {
    /// A random generator for this part. The seed is mixed, as consecutive seeds must not give
    /// similar names.
    pub(crate) fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(fastrand::Rng::with_seed(self.seed).u64(..))
    }

    /// The number of this helper; none if it is a worker.
    pub(crate) fn helper(&self) -> Option<usize> {
        self.worker.checked_sub(self.workers)
    }
}

/// Calls `act` for each path. If the measurement is cancelled, the rest is left out: the whole tree
/// will be removed anyway.
fn each<'p>(
    paths: impl IntoIterator<Item = &'p TreePath>,
    phase: &Phase,
    mut act: impl FnMut(&TreePath) -> io::Result<()>,
) -> io::Result<()> {
    for (n, path) in paths.into_iter().enumerate() {
        if n.is_multiple_of(256) && phase.get() == Phase::LEFT {
            break;
        }
        act(path)?;
    }
    Ok(())
}

/// One thread's task. The data that it writes while it runs lies on cache lines of its own.
pub(crate) trait Task {
    /// Prepares, without counting: before a timed measurement, and before each round. Here and in
    /// [`Task::end`], long work checks [`Part::phase`].
    ///
    /// # Errors
    /// The target's error; this holds for all three methods.
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()>;

    /// Runs at most `most` steps, and so many that the check of the phase between batches costs
    /// little in comparison. Returns the number of operations; 0 means that the round is over.
    fn batch(&mut self, actor: &mut dyn Actor, latency: Option<&mut Latency>, most: u64) -> io::Result<u64>;

    /// Removes what was made since `begin`, without counting.
    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()>;
}

/// A task as a sequence of single steps. Most workloads are written in this form.
pub(crate) trait Step {
    /// Number of steps between two checks of the phase.
    const BATCH: u32 = 64;

    /// See [`Task::begin`].
    fn begin(&mut self, _actor: &mut dyn Actor) -> io::Result<()> {
        Ok(())
    }

    /// One operation, or several that cannot be separated. Returns their number. 0 means that the
    /// round is over, and every later call returns 0 as well.
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64>;

    /// See [`Task::end`].
    fn end(&mut self, _actor: &mut dyn Actor) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Step> Task for T {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        Step::begin(self, actor)
    }

    fn batch(&mut self, actor: &mut dyn Actor, latency: Option<&mut Latency>, most: u64) -> io::Result<u64> {
        let (steps, mut ops) = (most.min(T::BATCH.into()), 0);
        match latency {
            None => {
                for _ in 0..steps {
                    match self.step(actor)? {
                        0 => break,
                        some => ops += some,
                    }
                }
            }
            Some(latency) => {
                let mut before = Instant::now();
                for _ in 0..steps {
                    match self.step(actor)? {
                        0 => break,
                        some => ops += some,
                    }
                    // One reading is the end of a step and the start of the next one.
                    let now = Instant::now();
                    latency.record(now - before);
                    before = now;
                }
            }
        }
        Ok(ops)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        Step::end(self, actor)
    }
}
