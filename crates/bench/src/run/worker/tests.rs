use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

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

/// The first `warm` rounds of `all` are warm-up.
struct WarmUpRounds<'a> {
    phase: &'a Phase,
    begun: Cell<u64>,
    warm: u64,
    all: u64,
}

impl RoundSync for WarmUpRounds<'_> {
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

/// Its first step is long: it ends when `may_end` is set.
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
fn no_worker_counts_before_all_are_ready() {
    let (phase, barrier) = (Phase::new(), Barrier::new(3));
    let [begun, may_end, other_begun, at_once] = [false, false, false, true].map(AtomicBool::new);
    let work = |begun, may_end| {
        let how = (&phase, &barrier);
        timed(&mut Long { begun, may_end }, &mut Nothing, how, Account::Thread, None).expect("nothing fails")
    };
    thread::scope(|scope| {
        let workers =
            [(&begun, &may_end), (&other_begun, &at_once)].map(|(begun, may_end)| scope.spawn(|| work(begun, may_end)));
        assert!(barrier.wait());
        wait_until(|| begun.load(Relaxed));
        phase.advance(Phase::COUNT);
        // One of the two is in the middle of a step.
        wait_until(|| phase.counting() == 1);
        let ready_ns = now_ns();
        may_end.store(true, Relaxed);
        assert!(barrier.wait_twice());
        phase.advance(Phase::STOP);
        assert!(barrier.wait_twice());
        for worker in workers {
            let record = worker.join().expect("no panic");
            assert!(record.rounds[0].from_ns >= ready_ns);
        }
    });
}

/// One of two workers. Once the phase is STOP, it keeps working for a while.
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
fn cpu_time_of_process_is_read_when_all_have_stopped() {
    let (phase, barrier, cpu) = (Phase::new(), Barrier::new(3), Duration::from_millis(300));
    let accounts = [(Account::Process, Duration::ZERO), (Account::Nothing, cpu)];
    let rounds = thread::scope(|scope| {
        let (phase, barrier) = (&phase, &barrier);
        let workers = accounts.map(|(account, cpu)| {
            let work = move || timed(&mut Late { phase, cpu }, &mut Nothing, (phase, barrier), account, None);
            scope.spawn(move || work().expect("nothing fails").rounds[0])
        });
        assert!(barrier.wait());
        phase.advance(Phase::COUNT);
        assert!(barrier.wait_twice());
        phase.advance(Phase::STOP);
        assert!(barrier.wait_twice());
        workers.map(|worker| worker.join().expect("no panic"))
    });
    assert!(rounds[0].used.cpu >= cpu, "{:?}", rounds[0].used);
    assert!(rounds[1].ops > 0 && rounds[1].used == Used::default());
}

#[test]
fn rounds_count_for_the_requested_time() {
    for (warm_up, counted, round, expected) in [
        // A round longer than the whole time: one is warm-up, and the next one counts.
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
fn warm_up_rounds_are_in_no_figure() {
    // However long the warm-up is, the last round counts.
    for (warm, all, counted) in [(0, 4, 4), (3, 5, 2), (5, 5, 1), (9, 5, 1)] {
        let phase = Phase::new();
        let warm_up_rounds = WarmUpRounds { phase: &phase, begun: Cell::new(0), warm, all };
        let how = (&phase, &warm_up_rounds as &dyn RoundSync);
        let record = rounds(&mut OneStep(false), &mut Nothing, how, Account::Thread, Some(Latency::new()));
        let record = record.expect("nothing fails");
        assert_eq!(record.rounds.iter().map(|round| round.ops).sum::<u64>(), counted, "{warm} of {all}");
        let steps: u64 = record.latency.expect("asked for").counts().iter().map(|count| count.1).sum();
        assert_eq!(steps, counted, "{warm} of {all}");
    }
}
