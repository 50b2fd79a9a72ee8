//! The worker pool of one measurement: threads that start together and stop together, and the
//! counts that they return.

use std::{
    cell::Cell,
    io,
    panic::resume_unwind,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use crate::{
    base::{
        barrier::Barrier,
        cancel::Cancel,
        failure::{During, Failure},
        locks::Locks,
        measure::{Latency, Used, peak_memory, reset_peak},
        phase::{Leaving, Phase},
    },
    run::worker::{Account, Budget, Record, Round, RoundSync, rounds, timed},
    target::Session,
    workload::{Pace, Part, Workload},
};

/// The description of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) workload: &'a dyn Workload,
    pub(crate) session: &'a dyn Session,
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
    pub(crate) latency: bool,
    /// Measure without the helpers.
    pub(crate) alone: bool,
}

/// The result of one measurement.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    /// CPU time and context switches of the workers, and of the programs that they ran.
    pub(crate) used: Used,
    /// Peak resident memory of the process during the measurement. If the workers are processes,
    /// the sum over all of them.
    pub(crate) peak_bytes: u64,
    pub(crate) latency: Option<Latency>,
    /// Of the whole process. None if locks are not counted, or if there were helpers.
    pub(crate) locks: Option<Locks>,
    /// Set if there were helpers.
    pub(crate) beside: Option<Beside>,
}

/// The figures that accompany a measurement with helpers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beside {
    /// Operations per second of all helpers together, while the workers counted.
    pub(crate) helper_ops_per_s: f64,
    /// The workers' rate without helpers, measured just before.
    pub(crate) alone_ops_per_s: f64,
}

#[allow(clippy::cast_precision_loss)] // Counts of operations stay far below 2^53.
impl Sample {
    pub(crate) fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    pub(crate) fn cpu_ns_per_op(&self) -> f64 {
        self.used.cpu.as_secs_f64() * 1e9 / self.ops as f64
    }

    /// Voluntary context switches only.
    pub(crate) fn ctx_switches_per_s(&self) -> f64 {
        self.used.voluntary_switches as f64 / self.seconds
    }
}

impl Job<'_> {
    /// The number of helpers that disturb this measurement.
    fn helpers(&self) -> usize {
        if self.alone { 0 } else { self.workload.helpers() }
    }

    /// Measures with threads. If the workload has helpers, it is first measured without them.
    ///
    /// # Errors
    /// The target's error, or [`Failure::Interrupted`].
    pub(crate) fn measure(&self, cancel: &Cancel) -> Result<Sample, Failure> {
        if self.helpers() == 0 {
            return Ok(self.measure_once(cancel)?.0);
        }
        let alone_ops_per_s = Job { alone: true, ..*self }.measure_once(cancel)?.0.ops_per_s();
        let (sample, helper_ops_per_s) = self.measure_once(cancel)?;
        // Locks are counted for the whole process, so the helpers' locks cannot be told from the
        // workers'.
        Ok(Sample { beside: Some(Beside { helper_ops_per_s, alone_ops_per_s }), locks: None, ..sample })
    }

    /// Measures once. Also returns the helpers' operations per second.
    ///
    /// # Errors
    /// The target's error, or [`Failure::Interrupted`].
    fn measure_once(&self, cancel: &Cancel) -> Result<(Sample, f64), Failure> {
        let mut actor = self.session.actor().during(|| "opening the target".into())?;
        let shared = self.workload.share(&mut *actor).during(|| "opening what all share".into())?;
        drop(actor);
        reset_peak();
        let phase = Phase::new();
        let (helpers, is_timed) = (self.helpers(), self.workload.pace() == Pace::Timed);
        let all = self.workers + helpers;
        let barrier = Barrier::new(all + usize::from(is_timed));
        let (conducted, records) = thread::scope(|scope| {
            let (phase, barrier) = (&phase, &barrier);
            let mut pool = Vec::with_capacity(all);
            let started = (0..all).try_for_each(|worker| {
                let seed = self.seed.wrapping_add(worker as u64);
                let part = Part { seed, worker, workers: self.workers, shared: shared.as_deref(), phase };
                let work = move || self.work(part, phase, barrier);
                let started = thread::Builder::new().spawn_scoped(scope, work);
                pool.push(started.during(|| format!("starting thread {} of {all}", worker + 1))?);
                Ok(())
            });
            let conducted = started
                .and_then(|()| if is_timed { self.conduct(phase, barrier, cancel) } else { watch(&pool, cancel) });
            phase.advance(Phase::STOP);
            if conducted.is_err() {
                // The threads at the barrier would wait for ever: some were not started, or some
                // will not arrive.
                drop(Leaving(phase, barrier));
            }
            let join = |worker: ScopedJoinHandle<io::Result<Record>>| {
                worker.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            (conducted, pool.into_iter().map(join).collect::<io::Result<Vec<Record>>>())
        });
        conducted?;
        let mut records = records.during(|| "measuring".into())?;
        let helpers = records.split_off(self.workers);
        let peak_bytes = peak_memory().during(|| "reading how much memory is used".into())?;
        let sample = sample(&records, peak_bytes).expect("all workers counted");
        // Divide by the workers' time. A helper that had to wait for a core may have begun to count
        // when the workers were almost done.
        #[allow(clippy::cast_precision_loss)] // Counts stay far below 2^53.
        let did = helpers.iter().flat_map(|helper| &helper.rounds).map(|round| round.ops).sum::<u64>() as f64;
        let helper_ops_per_s = did / sample.seconds;
        Ok((sample, helper_ops_per_s))
    }

    /// The total time that the rounds of this job shall take.
    pub(crate) fn budget(&self) -> Budget {
        // With cold caches there is nothing to warm up.
        let warm_up = if self.workload.pace() == Pace::Rounds { self.warm_up } else { Duration::ZERO };
        Budget::new(warm_up, self.time)
    }

    fn work(&self, part: Part<'_>, phase: &Phase, barrier: &Barrier) -> io::Result<Record> {
        let _leaving = Leaving(phase, barrier);
        // Made in this thread, so that the memory that threads write comes from different arenas of
        // the heap.
        let mut task = self.workload.task(part);
        let mut actor = self.session.actor()?;
        let latency = (self.latency && part.helper().is_none()).then(Latency::new);
        let account = Account::of(part.worker, self.workload);
        if self.workload.pace() == Pace::Timed {
            return timed(&mut *task, &mut *actor, (phase, barrier), account, latency);
        }
        let budget = (part.worker == 0).then(|| Cell::new(self.budget()));
        let sync = ThreadSync { phase, barrier, budget };
        rounds(&mut *task, &mut *actor, (phase, &sync), account, latency)
    }

    /// Lets the workers warm up, then count.
    fn conduct(&self, phase: &Phase, barrier: &Barrier, cancel: &Cancel) -> Result<(), Failure> {
        const SLICE: Duration = Duration::from_millis(100);
        const LATE: Duration = Duration::from_millis(1);
        let all = self.workers + self.helpers();
        if !barrier.wait() {
            // A worker has left with an error. The join returns it.
            return Ok(());
        }
        cancel.wait(self.warm_up)?;
        phase.advance(Phase::COUNT);
        while phase.counting() < all && phase.get() != Phase::LEFT {
            cancel.wait(LATE)?;
        }
        if !barrier.wait_twice() {
            return Ok(());
        }
        let until = Instant::now() + self.time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || phase.get() == Phase::LEFT {
                phase.advance(Phase::STOP);
                // A worker that has not arrived has left with an error. The join returns it.
                let _ = barrier.wait_twice();
                return Ok(());
            }
            cancel.wait(left.min(SLICE))?;
        }
    }
}

/// Waits until all workers have ended by themselves.
fn watch<T>(workers: &[ScopedJoinHandle<'_, T>], cancel: &Cancel) -> Result<(), Failure> {
    const SLICE: Duration = Duration::from_millis(5);
    while !workers.iter().all(ScopedJoinHandle::is_finished) {
        cancel.wait(SLICE)?;
    }
    Ok(())
}

/// Round synchronization of threads: they wait for each other at a barrier. The first worker
/// decides when rounds count, and when the last one is done.
struct ThreadSync<'a> {
    phase: &'a Phase,
    barrier: &'a Barrier,
    /// Only the first worker has it: it keeps the time for all.
    budget: Option<Cell<Budget>>,
}

impl RoundSync for ThreadSync<'_> {
    fn prepared(&self) -> bool {
        self.barrier.wait()
    }

    fn start(&self) -> bool {
        if self.budget.as_ref().is_some_and(|budget| budget.get().counts()) {
            self.phase.advance(Phase::COUNT);
        }
        self.barrier.wait()
    }

    fn finished(&self, round: &Round) -> bool {
        let open = self.barrier.wait();
        // Only after all have finished: a worker that still runs would stop in the middle of its
        // part.
        if let Some(left) = &self.budget {
            let mut budget = left.get();
            if budget.spend(round.ns()) {
                self.phase.advance(Phase::STOP);
            }
            left.set(budget);
        }
        open
    }

    fn counters_read(&self) -> bool {
        self.barrier.wait()
    }

    fn cleaned(&self) -> bool {
        // A worker that leaves breaks the barrier. So all workers leave after the same round, also
        // when the run is interrupted.
        self.barrier.wait() && self.phase.get() < Phase::STOP
    }
}

/// All operations, divided by the time from the first worker's start to the last worker's end,
/// round by round. A sum of rates would be wrong: on a crowded machine a worker may run for an
/// instant only, and its rate in that instant is not a throughput. None if no operation was
/// counted.
#[allow(clippy::cast_precision_loss)] // Nanoseconds of a run stay far below 2^53.
pub(crate) fn sample(records: &[Record], peak_bytes: u64) -> Option<Sample> {
    let count = records.iter().map(|record| record.rounds.len()).min()?;
    let (mut ops, mut ns, mut used, mut locks) = (0, 0, Used::default(), None::<Locks>);
    for number in 0..count {
        let rounds = || records.iter().map(|record| &record.rounds[number]);
        ops += rounds().map(|round| round.ops).sum::<u64>();
        ns += rounds().map(|round| round.to_ns).max()? - rounds().map(|round| round.from_ns).min()?;
        used = rounds().fold(used, |used, round| used.and(round.used));
        locks = rounds().filter_map(|round| round.locks).fold(locks, |sum, one| Some(sum.unwrap_or_default().and(one)));
    }
    let latency = records.iter().filter_map(|record| record.latency.as_ref()).cloned().reduce(|mut all, one| {
        all.add(&one);
        all
    });
    (ops > 0).then(|| Sample { ops, seconds: ns as f64 / 1e9, used, peak_bytes, latency, locks, beside: None })
}

#[cfg(test)]
mod tests;
