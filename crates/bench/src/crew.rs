//! One measurement: workers that start together and stop together, and what they found.

use std::{
    cell::Cell,
    io,
    panic::resume_unwind,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use crate::{
    failure::{Failure, While},
    gate::Gate,
    halt::Halt,
    locks::Locks,
    measure::{Latency, Used, forget_peak, peak_memory},
    target::Session,
    work::{Account, Beat, Budget, Leaving, Phase, Record, Round, rounds, timed},
    workload::{Pace, Part, Workload},
};

/// What is to be measured.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) workload: &'a dyn Workload,
    pub(crate) session: &'a dyn Session,
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
    pub(crate) latency: bool,
    /// Without the helpers.
    pub(crate) alone: bool,
}

/// One measurement.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    /// Of the workers, and of the programs that they ran.
    pub(crate) used: Used,
    /// The most memory that the process had resident meanwhile; of workers that are processes, all of them together.
    pub(crate) peak_bytes: u64,
    pub(crate) latency: Option<Latency>,
    /// Of the whole process; none if they are not counted, or if there were helpers.
    pub(crate) locks: Option<Locks>,
    /// If there were helpers.
    pub(crate) beside: Option<Beside>,
}

/// What stands beside a measurement with helpers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beside {
    /// What all helpers together did in a second, while the workers counted.
    pub(crate) helper_ops_per_s: f64,
    /// The workers' rate just before, without helpers.
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

    /// Voluntary ones.
    pub(crate) fn ctx_switches_per_s(&self) -> f64 {
        self.used.voluntary_switches as f64 / self.seconds
    }
}

impl Job<'_> {
    /// Those that disturb this measurement.
    fn helpers(&self) -> usize {
        if self.alone { 0 } else { self.workload.helpers() }
    }

    /// Measures, with threads; if there are helpers, first without them.
    ///
    /// # Errors
    /// What the target answers, or that the run is to end.
    pub(crate) fn measure(&self, halt: &Halt) -> Result<Sample, Failure> {
        if self.helpers() == 0 {
            return Ok(self.measure_once(halt)?.0);
        }
        let alone_ops_per_s = Job { alone: true, ..*self }.measure_once(halt)?.0.ops_per_s();
        let (sample, helper_ops_per_s) = self.measure_once(halt)?;
        // Locks are counted for the whole process: those of the helpers could not be told from the workers'.
        Ok(Sample { beside: Some(Beside { helper_ops_per_s, alone_ops_per_s }), locks: None, ..sample })
    }

    /// Also what the helpers did in a second.
    ///
    /// # Errors
    /// What the target answers, or that the run is to end.
    fn measure_once(&self, halt: &Halt) -> Result<(Sample, f64), Failure> {
        let mut actor = self.session.actor().during(|| "opening the target".into())?;
        let shared = self.workload.share(&mut *actor).during(|| "opening what all share".into())?;
        drop(actor);
        forget_peak();
        let phase = Phase::new();
        let (helpers, is_timed) = (self.helpers(), self.workload.pace() == Pace::Timed);
        let all = self.workers + helpers;
        let gate = Gate::new(all + usize::from(is_timed));
        let (conducted, records) = thread::scope(|scope| {
            let (phase, gate) = (&phase, &gate);
            let mut crew = Vec::with_capacity(all);
            let started = (0..all).try_for_each(|worker| {
                let seed = self.seed.wrapping_add(worker as u64);
                let part = Part { seed, worker, workers: self.workers, shared: shared.as_deref(), phase };
                let work = move || self.work(part, phase, gate);
                let started = thread::Builder::new().spawn_scoped(scope, work);
                crew.push(started.during(|| format!("starting thread {} of {all}", worker + 1))?);
                Ok(())
            });
            let conducted =
                started.and_then(|()| if is_timed { self.conduct(phase, gate, halt) } else { watch(&crew, halt) });
            phase.advance(Phase::STOP);
            if conducted.is_err() {
                // Whoever waits for the others would wait for ever: not all were started, or not all will come.
                drop(Leaving(phase, gate));
            }
            let join = |worker: ScopedJoinHandle<io::Result<Record>>| {
                worker.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            (conducted, crew.into_iter().map(join).collect::<io::Result<Vec<Record>>>())
        });
        conducted?;
        let mut records = records.during(|| "measuring".into())?;
        let helpers = records.split_off(self.workers);
        let peak_bytes = peak_memory().during(|| "reading how much memory is used".into())?;
        let sample = sample(&records, peak_bytes).expect("all workers counted");
        // In the workers' time: a helper that had to wait for a processor may have begun to count when they were almost done.
        #[allow(clippy::cast_precision_loss)] // Counts stay far below 2^53.
        let did = helpers.iter().flat_map(|helper| &helper.rounds).map(|round| round.ops).sum::<u64>() as f64;
        let helper_ops_per_s = did / sample.seconds;
        Ok((sample, helper_ops_per_s))
    }

    /// How long its rounds shall take together.
    pub(crate) fn budget(&self) -> Budget {
        // With cold caches there is nothing to warm up.
        let warm_up = if self.workload.pace() == Pace::Rounds { self.warm_up } else { Duration::ZERO };
        Budget::new(warm_up, self.time)
    }

    fn work(&self, part: Part<'_>, phase: &Phase, gate: &Gate) -> io::Result<Record> {
        let _leaving = Leaving(phase, gate);
        // Made here, so that what threads write comes from their own part of the heap.
        let mut task = self.workload.task(part);
        let mut actor = self.session.actor()?;
        let latency = (self.latency && part.helper().is_none()).then(Latency::new);
        let account = Account::of(part.worker, self.workload);
        if self.workload.pace() == Pace::Timed {
            return timed(&mut *task, &mut *actor, (phase, gate), account, latency);
        }
        let budget = (part.worker == 0).then(|| Cell::new(self.budget()));
        let beat = Together { phase, gate, budget };
        rounds(&mut *task, &mut *actor, (phase, &beat), account, latency)
    }

    /// Lets the workers warm up, then count.
    fn conduct(&self, phase: &Phase, gate: &Gate, halt: &Halt) -> Result<(), Failure> {
        const SLICE: Duration = Duration::from_millis(100);
        const LATE: Duration = Duration::from_millis(1);
        let all = self.workers + self.helpers();
        if !gate.wait() {
            // Somebody has left with an error, which joining tells.
            return Ok(());
        }
        halt.wait(self.warm_up)?;
        phase.advance(Phase::COUNT);
        while phase.counting() < all && phase.get() != Phase::LEFT {
            halt.wait(LATE)?;
        }
        if !gate.let_read() {
            return Ok(());
        }
        let until = Instant::now() + self.time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || phase.get() == Phase::LEFT {
                phase.advance(Phase::STOP);
                // Somebody who has not come has left with an error, which joining tells.
                let _ = gate.let_read();
                return Ok(());
            }
            halt.wait(left.min(SLICE))?;
        }
    }
}

/// Waits until all workers have ended by themselves.
fn watch<T>(workers: &[ScopedJoinHandle<'_, T>], halt: &Halt) -> Result<(), Failure> {
    const SLICE: Duration = Duration::from_millis(5);
    while !workers.iter().all(ScopedJoinHandle::is_finished) {
        halt.wait(SLICE)?;
    }
    Ok(())
}

/// Threads wait for each other at a gate; the first of them says when it counts, and when it is enough.
struct Together<'a> {
    phase: &'a Phase,
    gate: &'a Gate,
    /// The first worker's, who keeps the time for all.
    budget: Option<Cell<Budget>>,
}

impl Beat for Together<'_> {
    fn prepared(&self) -> bool {
        self.gate.wait()
    }

    fn start(&self) -> bool {
        if self.budget.as_ref().is_some_and(|budget| budget.get().counts()) {
            self.phase.advance(Phase::COUNT);
        }
        self.gate.wait()
    }

    fn finished(&self, round: &Round) -> bool {
        let open = self.gate.wait();
        // Not before all have finished: whoever still works would leave his part undone.
        if let Some(left) = &self.budget {
            let mut budget = left.get();
            if budget.spend(round.ns()) {
                self.phase.advance(Phase::STOP);
            }
            left.set(budget);
        }
        open
    }

    fn noted(&self) -> bool {
        self.gate.wait()
    }

    fn cleaned(&self) -> bool {
        // Whoever leaves breaks the gate: so all leave after the same round, also when the run is to end.
        self.gate.wait() && self.phase.get() < Phase::STOP
    }
}

/// All operations over the time from the first worker's start to the last one's end, round by round. Not a sum of rates:
/// on a crowded machine a worker may run for an instant only, and its rate in that instant is nobody's throughput.
/// None if nothing was counted.
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
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::{
        target::{Actor, Nothing},
        workload::{Step, Task},
    };

    fn record(rounds: &[(u64, u64, u64)]) -> Record {
        let used = Used { cpu: Duration::from_micros(150), voluntary_switches: 5, ..Used::default() };
        let round = |&(ops, from, to): &(u64, u64, u64)| {
            let [from_ns, to_ns] = [from, to].map(|millis| millis * 1_000_000);
            Round { ops, from_ns, to_ns, used, locks: None }
        };
        Record { rounds: rounds.iter().map(round).collect(), latency: None }
    }

    /// The first worker is done at once; the others begin when it is, and take their time.
    struct Unequal(AtomicBool);

    const STEPS: u64 = 200;

    impl Workload for Unequal {
        fn pace(&self) -> Pace {
            Pace::Rounds
        }
        fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Halt) -> Result<(), Failure> {
            Ok(())
        }
        fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
            Box::new(Slow { first_done: &self.0, first: part.worker == 0, left: 0 })
        }
    }

    struct Slow<'a> {
        first_done: &'a AtomicBool,
        first: bool,
        left: u64,
    }

    impl Step for Slow<'_> {
        const BATCH: u32 = 1;

        fn begin(&mut self, _: &mut dyn Actor) -> io::Result<()> {
            self.left = STEPS;
            Ok(())
        }
        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            if self.left == 0 {
                self.first_done.fetch_or(self.first, Relaxed);
                return Ok(0);
            }
            while !self.first && !self.first_done.load(Relaxed) {
                thread::yield_now();
            }
            (0..if self.first { 0 } else { 20 }).for_each(|_| thread::yield_now());
            self.left -= 1;
            Ok(1)
        }
    }

    /// No time at all: the first worker knows after its part that one round is enough.
    fn job(workload: &dyn Workload) -> Job<'_> {
        let (warm_up, time) = (Duration::ZERO, Duration::ZERO);
        Job { workload, session: &Nothing, workers: 3, seed: 1, warm_up, time, latency: false, alone: false }
    }

    #[test]
    fn a_round_ends_when_the_slowest_is_done() {
        let workload = Unequal(AtomicBool::new(false));
        let sample = job(&workload).measure(&Halt::default()).expect("it is measured");
        assert_eq!(sample.ops, 3 * STEPS);
    }

    /// Each round takes longer than all the time there is, and does one thing more than the one before.
    struct Growing(AtomicU64);

    impl Workload for Growing {
        fn pace(&self) -> Pace {
            Pace::Rounds
        }
        fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Halt) -> Result<(), Failure> {
            Ok(())
        }
        fn task<'a>(&'a self, _: Part<'a>) -> Box<dyn Task + 'a> {
            Box::new(Grown { begun: &self.0, left: 0 })
        }
    }

    struct Grown<'a> {
        begun: &'a AtomicU64,
        left: u64,
    }

    impl Step for Grown<'_> {
        const BATCH: u32 = 1;

        fn begin(&mut self, _: &mut dyn Actor) -> io::Result<()> {
            self.left = self.begun.fetch_add(1, Relaxed) + 1;
            Ok(())
        }
        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            if self.left == 0 {
                return Ok(0);
            }
            self.left -= 1;
            thread::sleep(Duration::from_millis(5));
            Ok(1)
        }
    }

    #[test]
    fn a_round_longer_than_all_the_time_is_not_both_the_warm_up_and_the_measurement() {
        let workload = Growing(AtomicU64::new(0));
        let [warm_up, time] = [Duration::from_millis(1); 2];
        let sample = Job { workers: 1, warm_up, time, ..job(&workload) }.measure(&Halt::default());
        assert_eq!(sample.expect("it is measured").ops, 2, "the second round's");
    }

    /// Prepares a round for as long as it may.
    struct Preparing<'a>(&'a Phase);

    impl Step for Preparing<'_> {
        fn begin(&mut self, _: &mut dyn Actor) -> io::Result<()> {
            while self.0.get() != Phase::LEFT {
                thread::yield_now();
            }
            Ok(())
        }
        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            Ok(1)
        }
    }

    struct Endless;

    impl Workload for Endless {
        fn pace(&self) -> Pace {
            Pace::Rounds
        }
        fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Halt) -> Result<(), Failure> {
            Ok(())
        }
        fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
            Box::new(Preparing(part.phase))
        }
    }

    #[test]
    fn a_round_that_is_prepared_hears_of_an_interruption() {
        let halt = Halt::default();
        halt.ask();
        let ended = job(&Endless).measure(&halt);
        assert!(matches!(ended, Err(Failure::Interrupted)));
    }

    #[test]
    fn a_rate_is_over_the_whole_time() {
        // The second worker ran for a millisecond only.
        let sample = sample(&[record(&[(200, 0, 1999)]), record(&[(100, 1999, 2000)])], 7).expect("operations");
        assert!((sample.ops_per_s() - 150.0).abs() < 1e-9);
        assert!((sample.cpu_ns_per_op() - 1000.0).abs() < 1e-9);
        assert!((sample.ctx_switches_per_s() - 5.0).abs() < 1e-9);
        assert_eq!(sample.peak_bytes, 7);
        assert!(super::sample(&[], 0).is_none());
        assert!(super::sample(&[record(&[])], 0).is_none());
    }

    #[test]
    fn rounds_are_summed_without_what_lies_between() {
        let records = [record(&[(10, 0, 10), (10, 100, 110)]), record(&[(10, 0, 5), (10, 95, 105)])];
        let both = sample(&records, 0).expect("operations");
        assert_eq!(both.ops, 40);
        assert!((both.seconds - 0.025).abs() < 1e-12, "{}", both.seconds);
    }
}
