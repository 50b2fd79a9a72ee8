//! One worker's way through a measurement, whether it is a thread or a process.

use std::{
    io,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    gate::Gate,
    locks::Locks,
    measure::{Latency, Used, now_ns},
    target::Actor,
    workload::{Task, Workload},
};

/// Where workers look between batches. On a line of its own, written a few times in a measurement.
#[repr(align(128))]
pub(crate) struct Phase {
    now: AtomicU8,
    /// Workers that are ready to count: all begin together, however crowded the machine.
    counting: AtomicUsize,
}

impl Phase {
    pub(crate) const WARM_UP: u8 = 0;
    pub(crate) const COUNT: u8 = 1;
    pub(crate) const STOP: u8 = 2;
    /// A worker has left: after [`Phase::STOP`] that is the end of it; before, it met an error, or the run is to end, and there is
    /// nothing to wait for.
    pub(crate) const LEFT: u8 = 3;

    pub(crate) fn new() -> Self {
        Self { now: AtomicU8::new(Self::WARM_UP), counting: AtomicUsize::new(0) }
    }

    // Relaxed: the phase says only when to count; what workers counted is handed over by joining them.
    pub(crate) fn get(&self) -> u8 {
        self.now.load(Relaxed)
    }

    pub(crate) fn advance(&self, to: u8) {
        self.now.fetch_max(to, Relaxed);
    }

    pub(crate) fn counting(&self) -> usize {
        self.counting.load(Relaxed)
    }
}

/// Says that a worker has left, also when it panics.
pub(crate) struct Leaving<'a>(pub(crate) &'a Phase, pub(crate) &'a Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.advance(Phase::LEFT);
        self.1.break_open();
    }
}

/// A stretch of time in which one worker counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) ops: u64,
    /// By [`now_ns`].
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) used: Used,
    /// Of the whole process, the first worker's; none if they are not counted.
    pub(crate) locks: Option<Locks>,
}

impl Round {
    pub(crate) fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// What one worker did.
#[derive(Debug)]
pub(crate) struct Record {
    /// One if the work was timed; none if it ended before it was counted.
    pub(crate) rounds: Vec<Round>,
    pub(crate) latency: Option<Latency>,
}

/// Whose processor time is a worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// Its own.
    Thread,
    /// Its own, and that of the programs that all workers run: the first one's.
    First,
    /// That of the whole process and of the programs that it runs.
    Process,
    /// None: another one's account is the whole process.
    Nothing,
}

impl Account {
    /// That of the worker of this number.
    pub(crate) fn of(worker: usize, workload: &dyn Workload) -> Self {
        match (workload.is_done_by_others(), worker) {
            (true, 0) => Self::Process,
            (true, _) => Self::Nothing,
            (false, 0) => Self::First,
            (false, _) => Self::Thread,
        }
    }

    /// Up to now, of this thread.
    fn own(self) -> io::Result<Used> {
        if matches!(self, Self::Thread | Self::First) { Used::by_thread() } else { Ok(Used::default()) }
    }

    /// Up to now, of the process, if this is the first worker's account.
    fn locks(self) -> Option<Locks> {
        if matches!(self, Self::First | Self::Process) { Locks::now() } else { None }
    }

    /// Up to now, of others: read when no worker works.
    fn others(self) -> io::Result<Used> {
        match self {
            Self::Thread | Self::Nothing => Ok(Used::default()),
            Self::First => Used::by_children(),
            Self::Process => Ok(Used::by_process()?.and(Used::by_children()?)),
        }
    }
}

/// Counts between [`Phase::COUNT`] and [`Phase::STOP`]. Comes to the gate five times: to begin; when all have warmed up, and again
/// when what they share has been read; when all have counted, and again when it has been read.
///
/// # Errors
/// What the target answers.
pub(crate) fn timed(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, gate): (&Phase, &Gate),
    account: Account,
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    // What all share, read while all stand still: between two gates. Also whether all have come.
    let shared = || {
        let came = gate.wait();
        let read = (account.others()?, account.locks());
        Ok::<_, io::Error>((came && gate.wait(), read))
    };
    task.begin(actor)?;
    if !gate.wait() {
        return Ok(Record { rounds: Vec::new(), latency: None });
    }
    let (mut from, mut ops) = (None, 0);
    loop {
        match phase.get() {
            Phase::WARM_UP => {}
            Phase::COUNT => {
                if from.is_none() {
                    phase.counting.fetch_add(1, Relaxed);
                    // What one did before the last has come would be in the time, and in nobody's operations.
                    let (came, before) = shared()?;
                    if !came {
                        break;
                    }
                    if let Some(latency) = &mut latency {
                        latency.reset();
                    }
                    (from, ops) = (Some((now_ns(), account.own()?, before)), 0);
                }
            }
            _ => break,
        }
        ops += task.batch(actor, latency.as_mut(), u64::MAX)?;
    }
    let (to_ns, own) = (now_ns(), account.own()?);
    // If somebody has not come, he has failed, and nobody asks for this.
    let (_, (others, locks)) = shared()?;
    task.end(actor)?;
    let round = from.map(|(from_ns, own_before, (others_before, locks_before))| Round {
        ops,
        from_ns,
        to_ns,
        used: own.since(own_before).and(others.since(others_before)),
        locks: locks.zip(locks_before).map(|(now, before)| now.since(before)),
    });
    Ok(Record { rounds: round.into_iter().collect(), latency })
}

/// What is left to do in rounds: first those that warm up, then those that count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    warm_up_ns: u64,
    counted_ns: u64,
}

impl Budget {
    pub(crate) fn new(warm_up: Duration, counted: Duration) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { warm_up_ns: ns(warm_up), counted_ns: ns(counted) }
    }

    /// Whether the next round counts.
    pub(crate) fn counts(self) -> bool {
        self.warm_up_ns == 0
    }

    /// Takes a round's time off its part; whether that was the last one. What a round takes longer than there was to warm up is
    /// not counted, and so not taken off what is.
    #[must_use]
    pub(crate) fn spend(&mut self, ns: u64) -> bool {
        let counts = self.counts();
        let left = if counts { &mut self.counted_ns } else { &mut self.warm_up_ns };
        *left = left.saturating_sub(ns);
        counts && *left == 0
    }
}

/// Where the workers of a round wait for each other. Each answers whether to go on.
pub(crate) trait Beat {
    /// All are prepared, and nobody has begun: what they share can be read.
    fn prepared(&self) -> bool {
        true
    }

    /// All begin; in [`Phase::COUNT`] if this round and those after it count.
    fn start(&self) -> bool;

    /// All have done their part, and nobody takes anything back yet.
    fn finished(&self, round: &Round) -> bool;

    /// What they share has been read.
    fn noted(&self) -> bool {
        true
    }

    /// All have taken back what they made; whether there is another round.
    fn cleaned(&self) -> bool;
}

/// Counts rounds until there is no further one: those from [`Phase::COUNT`] on, or if it does not come to that, the last one.
///
/// # Errors
/// What the target answers.
pub(crate) fn rounds(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, beat): (&Phase, &dyn Beat),
    account: Account,
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    let (mut rounds, mut counting) = (Vec::new(), false);
    loop {
        task.begin(actor)?;
        if !beat.prepared() {
            break;
        }
        let (others, locks) = (account.others()?, account.locks());
        if !beat.start() {
            break;
        }
        if !counting {
            // What there is was to warm up.
            rounds.clear();
            latency.iter_mut().for_each(Latency::reset);
            counting = phase.get() >= Phase::COUNT;
        }
        let (before, from_ns) = (account.own()?, now_ns());
        let mut ops = 0;
        while phase.get() < Phase::STOP {
            match task.batch(actor, latency.as_mut(), u64::MAX)? {
                0 => break,
                some => ops += some,
            }
        }
        let to_ns = now_ns();
        let used = account.own()?.since(before);
        let mut round = Round { ops, from_ns, to_ns, used, locks: None };
        if !beat.finished(&round) {
            break;
        }
        round.used = round.used.and(account.others()?.since(others));
        round.locks = account.locks().zip(locks).map(|(now, before)| now.since(before));
        rounds.push(round);
        if !beat.noted() {
            break;
        }
        task.end(actor)?;
        if !beat.cleaned() {
            break;
        }
    }
    Ok(Record { rounds, latency })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::atomic::AtomicBool, thread};

    use super::*;
    use crate::{target::Nothing, workload::Step};

    /// A round is one step.
    struct OneStep(bool);

    impl Step for OneStep {
        fn begin(&mut self, _: &mut dyn Actor) -> io::Result<()> {
            self.0 = false;
            Ok(())
        }
        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            Ok(u64::from(!std::mem::replace(&mut self.0, true)))
        }
    }

    /// So many rounds that warm up, of so many.
    struct Beats<'a> {
        phase: &'a Phase,
        begun: Cell<u64>,
        warm: u64,
        all: u64,
    }

    impl Beat for Beats<'_> {
        fn start(&self) -> bool {
            if self.begun.replace(self.begun.get() + 1) == self.warm {
                self.phase.advance(Phase::COUNT);
            }
            true
        }
        fn finished(&self, _: &Round) -> bool {
            true
        }
        fn cleaned(&self) -> bool {
            self.begun.get() < self.all
        }
    }

    /// Its first step is long: it ends when it may.
    struct Long<'a> {
        begun: &'a AtomicBool,
        may_end: &'a AtomicBool,
    }

    impl Step for Long<'_> {
        const BATCH: u32 = 1;

        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            self.begun.store(true, Relaxed);
            wait_until(|| self.may_end.load(Relaxed));
            Ok(1)
        }
    }

    fn wait_until(done: impl Fn() -> bool) {
        while !done() {
            thread::yield_now();
        }
    }

    #[test]
    fn nobody_counts_before_all_are_ready_to() {
        let (phase, gate) = (Phase::new(), Gate::new(3));
        let [begun, may_end, other_begun, at_once] = [false, false, false, true].map(AtomicBool::new);
        let work = |begun, may_end| {
            let how = (&phase, &gate);
            timed(&mut Long { begun, may_end }, &mut Nothing, how, Account::Thread, None).expect("nothing fails")
        };
        thread::scope(|scope| {
            let workers = [(&begun, &may_end), (&other_begun, &at_once)]
                .map(|(begun, may_end)| scope.spawn(|| work(begun, may_end)));
            assert!(gate.wait());
            wait_until(|| begun.load(Relaxed));
            phase.advance(Phase::COUNT);
            // One of them is in the middle of something.
            wait_until(|| phase.counting() == 1);
            let ready_ns = now_ns();
            may_end.store(true, Relaxed);
            assert!(gate.let_read());
            phase.advance(Phase::STOP);
            assert!(gate.let_read());
            for worker in workers {
                let record = worker.join().expect("no panic");
                assert!(record.rounds[0].from_ns >= ready_ns);
            }
        });
    }

    /// One of two. Once it is told to stop, it works for a while yet.
    struct Late<'a> {
        phase: &'a Phase,
        cpu: Duration,
    }

    impl Step for Late<'_> {
        const BATCH: u32 = 1;

        fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
            if self.phase.counting() < 2 {
                return Ok(1);
            }
            wait_until(|| self.phase.get() == Phase::STOP);
            let before = Used::by_thread()?;
            while Used::by_thread()?.since(before).cpu < self.cpu {}
            Ok(1)
        }
    }

    #[test]
    fn the_time_of_the_process_is_read_when_all_have_stopped() {
        let (phase, gate, cpu) = (Phase::new(), Gate::new(3), Duration::from_millis(300));
        let accounts = [(Account::Process, Duration::ZERO), (Account::Nothing, cpu)];
        let rounds = thread::scope(|scope| {
            let (phase, gate) = (&phase, &gate);
            let workers = accounts.map(|(account, cpu)| {
                let work = move || timed(&mut Late { phase, cpu }, &mut Nothing, (phase, gate), account, None);
                scope.spawn(move || work().expect("nothing fails").rounds[0])
            });
            assert!(gate.wait());
            phase.advance(Phase::COUNT);
            assert!(gate.let_read());
            phase.advance(Phase::STOP);
            assert!(gate.let_read());
            workers.map(|worker| worker.join().expect("no panic"))
        });
        assert!(rounds[0].used.cpu >= cpu, "{:?}", rounds[0].used);
        assert!(rounds[1].ops > 0 && rounds[1].used == Used::default());
    }

    #[test]
    fn rounds_count_for_the_time_that_was_asked_for() {
        for (warm_up, counted, round, expected) in [
            // Longer than all of it: one is cold, and the next one counts.
            (10, 20, 50, (1, 1)),
            (10, 20, 6, (2, 4)),
            (10, 20, 10, (1, 2)),
            (0, 20, 15, (0, 2)),
            (0, 0, 5, (0, 1)),
        ] {
            let mut budget = Budget::new(Duration::from_nanos(warm_up), Duration::from_nanos(counted));
            let (mut warm, mut counting) = (0, 0);
            loop {
                *(if budget.counts() { &mut counting } else { &mut warm }) += 1;
                if budget.spend(round) {
                    break;
                }
            }
            assert_eq!((warm, counting), expected, "rounds of {round} after {warm_up} for {counted}");
        }
    }

    #[test]
    fn rounds_that_warm_up_are_in_no_figure() {
        // However long the warm-up: the last round counts.
        for (warm, all, counted) in [(0, 4, 4), (3, 5, 2), (5, 5, 1), (9, 5, 1)] {
            let phase = Phase::new();
            let beats = Beats { phase: &phase, begun: Cell::new(0), warm, all };
            let how = (&phase, &beats as &dyn Beat);
            let record = rounds(&mut OneStep(false), &mut Nothing, how, Account::Thread, Some(Latency::new()));
            let record = record.expect("nothing fails");
            assert_eq!(record.rounds.iter().map(|round| round.ops).sum::<u64>(), counted, "{warm} of {all}");
            let steps: u64 = record.latency.expect("asked for").counts().iter().map(|count| count.1).sum();
            assert_eq!(steps, counted, "{warm} of {all}");
        }
    }
}
