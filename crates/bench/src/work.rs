//! One worker's way through a measurement, whether it is a thread or a process.

use std::{
    io,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

use crate::{
    gate::Gate,
    measure::{Latency, Used, now_ns},
    target::Actor,
    workload::Task,
};

/// Where workers look between batches. On a line of its own, written a few times in a measurement.
#[repr(align(128))]
pub(crate) struct Phase {
    now: AtomicU8,
    /// Workers that have begun to count: the end waits for the last of them, however crowded the machine.
    counting: AtomicUsize,
}

impl Phase {
    pub(crate) const WARM_UP: u8 = 0;
    pub(crate) const COUNT: u8 = 1;
    pub(crate) const STOP: u8 = 2;
    /// A worker has left: after [`Phase::STOP`] that is the end of it; before, it met an error, and there is nothing to
    /// wait for.
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

/// Counts between [`Phase::COUNT`] and [`Phase::STOP`].
///
/// # Errors
/// What the target answers.
pub(crate) fn timed(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, gate): (&Phase, &Gate),
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    task.begin(actor)?;
    if !gate.wait() {
        return Ok(Record { rounds: Vec::new(), latency: None });
    }
    let mut from: Option<(u64, Used)> = None;
    let mut ops = 0;
    loop {
        match phase.get() {
            Phase::WARM_UP => {}
            Phase::COUNT => {
                if from.is_none() {
                    phase.counting.fetch_add(1, Relaxed);
                    if let Some(latency) = &mut latency {
                        latency.reset();
                    }
                    (from, ops) = (Some((now_ns(), Used::by_thread()?)), 0);
                }
            }
            _ => break,
        }
        ops += task.batch(actor, latency.as_mut())?;
    }
    let to_ns = now_ns();
    let used = Used::by_thread()?;
    task.end(actor)?;
    let round = from.map(|(from_ns, before)| Round { ops, from_ns, to_ns, used: used.since(before) });
    Ok(Record { rounds: round.into_iter().collect(), latency })
}

/// Where the workers of a round wait for each other. Each answers whether to go on.
pub(crate) trait Beat {
    /// All are prepared, and begin.
    fn start(&self) -> bool;

    /// All have done their part; nobody takes anything back before.
    fn finished(&self, round: &Round) -> bool;

    /// All have taken back what they made; whether there is another round.
    fn cleaned(&self) -> bool;
}

/// Counts rounds until there is no further one. What child processes use while the first worker waits for them is added
/// to that worker's: a workload may run programs.
///
/// # Errors
/// What the target answers.
pub(crate) fn rounds(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, beat): (&Phase, &dyn Beat),
    first: bool,
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    let mut rounds = Vec::new();
    let children = || if first { Used::by_children() } else { Ok(Used::default()) };
    loop {
        task.begin(actor)?;
        let by_children = children()?;
        if !beat.start() {
            break;
        }
        let (before, from_ns) = (Used::by_thread()?, now_ns());
        let mut ops = 0;
        while phase.get() < Phase::STOP {
            match task.batch(actor, latency.as_mut())? {
                0 => break,
                some => ops += some,
            }
        }
        let to_ns = now_ns();
        let used = Used::by_thread()?.since(before);
        let mut round = Round { ops, from_ns, to_ns, used };
        if !beat.finished(&round) {
            break;
        }
        round.used = round.used.and(children()?.since(by_children));
        rounds.push(round);
        task.end(actor)?;
        if !beat.cleaned() {
            break;
        }
    }
    Ok(Record { rounds, latency })
}
