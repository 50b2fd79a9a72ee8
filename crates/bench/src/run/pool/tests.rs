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

/// The first worker finishes at once. The others begin when it has finished, and take long.
struct Unequal(AtomicBool);

const STEPS: u64 = 200;

impl Workload for Unequal {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
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

/// The time is zero: after its part, the first worker knows that one round is enough.
fn job(workload: &dyn Workload) -> Job<'_> {
    let (warm_up, time) = (Duration::ZERO, Duration::ZERO);
    Job { workload, session: &Nothing, workers: 3, seed: 1, warm_up, time, latency: false, alone: false }
}

#[test]
fn round_ends_when_slowest_worker_is_done() {
    let workload = Unequal(AtomicBool::new(false));
    let sample = job(&workload).measure(&Cancel::default()).expect("it is measured");
    assert_eq!(sample.ops, 3 * STEPS);
}

/// Each round takes longer than the whole time, and does one operation more than the round before.
struct Growing(AtomicU64);

impl Workload for Growing {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
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
fn round_longer_than_whole_time_is_not_both_warm_up_and_measurement() {
    let workload = Growing(AtomicU64::new(0));
    let [warm_up, time] = [Duration::from_millis(1); 2];
    let sample = Job { workers: 1, warm_up, time, ..job(&workload) }.measure(&Cancel::default());
    assert_eq!(sample.expect("it is measured").ops, 2, "the second round's");
}

/// Prepares a round until the measurement is cancelled.
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
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
        Ok(())
    }
    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Preparing(part.phase))
    }
}

#[test]
fn cancellation_ends_preparation_of_round() {
    let cancel = Cancel::default();
    cancel.request();
    let ended = job(&Endless).measure(&cancel);
    assert!(matches!(ended, Err(Failure::Interrupted)));
}

#[test]
fn rate_is_over_the_whole_time() {
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
fn time_between_rounds_is_not_counted() {
    let records = [record(&[(10, 0, 10), (10, 100, 110)]), record(&[(10, 0, 5), (10, 95, 105)])];
    let both = sample(&records, 0).expect("operations");
    assert_eq!(both.ops, 40);
    assert!((both.seconds - 0.025).abs() < 1e-12, "{}", both.seconds);
}
