//! What a thread does, over and over.

mod crunl;
mod dpath;
mod limited;
mod listing;
mod mdtest;
mod names;
mod programs;
mod read;
mod registry;
mod rndrename;
mod seek;
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
    failure::Failure,
    halt::Halt,
    measure::Latency,
    path::TreePath,
    target::{Actor, Handle},
    work::Phase,
};

/// How a measurement goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The work has no end: it is counted for the time asked for.
    Timed,
    /// The work has an end and needs preparing: it is done in rounds, each prepared uncounted, until the time asked for
    /// has been counted. Warm-up rounds come first.
    Rounds,
    /// As `Rounds`, and each begins with cold caches: nothing is warmed up.
    Cold,
}

/// A workload: what is there before, and what each thread then does.
pub(crate) trait Workload: Sync {
    /// How a measurement goes.
    fn pace(&self) -> Pace {
        Pace::Timed
    }

    /// Threads that disturb the others: their operations and their processor time are not counted.
    fn helpers(&self) -> usize {
        0
    }

    /// What the helpers do, as a plural: "reads".
    fn helpers_do(&self) -> &'static str {
        "operations"
    }

    /// How much of it all helpers together are to do in a second; none if it is as much as they can.
    fn helpers_per_s(&self) -> Option<u64> {
        None
    }

    /// Whether workers need no memory in common, and may be processes.
    fn may_be_processes(&self) -> bool {
        self.helpers() == 0
    }

    /// Whether a target does this work with threads of its own: then processor time is that of the whole process.
    fn is_done_by_others(&self) -> bool {
        false
    }

    /// Makes what must be there before the clock starts, for up to `workers` workers; once per session.
    ///
    /// # Errors
    /// What the target answers, or that the run is to end.
    fn prepare(&self, actor: &mut dyn Actor, workers: usize, halt: &Halt) -> Result<(), Failure>;

    /// What the workers of one measurement have in common: an open file.
    ///
    /// # Errors
    /// What the target answers.
    fn share(&self, _actor: &mut dyn Actor) -> io::Result<Option<Box<dyn Handle>>> {
        Ok(None)
    }

    /// One thread's part in one measurement. The same part gives the same names and the same order, so that every
    /// target of a repeat gets the same work.
    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a>;
}

/// Which part of a measurement is a thread's.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Where names and orders come from; neighbours in `worker` have neighbouring seeds.
    pub(crate) seed: u64,
    /// From 0; helpers come after the workers.
    pub(crate) worker: usize,
    /// How many workers there are, without helpers.
    pub(crate) workers: usize,
    /// What [`Workload::share`] made.
    pub(crate) shared: Option<&'a dyn Handle>,
    /// How far the measurement is.
    pub(crate) phase: &'a Phase,
}

impl Part<'_> {
    /// A generator of this part's own: seeds are mixed, for threads' seeds are neighbours and their names shall not be.
    pub(crate) fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(fastrand::Rng::with_seed(self.seed).u64(..))
    }

    /// Which helper this is; none if it is a worker.
    pub(crate) fn helper(&self) -> Option<usize> {
        self.worker.checked_sub(self.workers)
    }
}

/// Does something with each of many paths, unless the measurement ends before its time: then it leaves the rest, and the whole
/// tree goes.
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

/// One thread's part. What it writes while it runs lies on cache lines of its own.
pub(crate) trait Task {
    /// Makes ready, uncounted: before a timed measurement, and before each round. What takes long looks at [`Part::phase`], here
    /// and in [`Task::end`].
    ///
    /// # Errors
    /// What the target answers; for all three.
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()>;

    /// Does some steps, at most `most`, and so many that asking whether to go on costs nothing beside them; returns how many
    /// operations that were. None: the round is over.
    fn batch(&mut self, actor: &mut dyn Actor, latency: Option<&mut Latency>, most: u64) -> io::Result<u64>;

    /// Takes back what was made since `begin`, uncounted.
    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()>;
}

/// A part as single steps: what most workloads are written as.
pub(crate) trait Step {
    /// Steps between two looks at the clock.
    const BATCH: u32 = 64;

    /// See [`Task::begin`].
    fn begin(&mut self, _actor: &mut dyn Actor) -> io::Result<()> {
        Ok(())
    }

    /// One operation, or some that cannot be told apart; returns how many. None: the round is over, and stays so.
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
                    // One reading is the end of a step and the start of the next.
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
