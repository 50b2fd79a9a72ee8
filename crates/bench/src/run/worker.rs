//! The loop of one worker, which is a thread or a process.

use std::{io, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    base::{
        barrier::Barrier,
        locks::Locks,
        measure::{Latency, Used, now_ns},
        phase::Phase,
    },
    target::Actor,
    workload::{Task, Workload},
};

/// A period in which one worker counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) ops: u64,
    /// As read by [`now_ns`].
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) used: Used,
    /// Of the whole process; only the first worker reads it. None if locks are not counted.
    pub(crate) locks: Option<Locks>,
}

impl Round {
    pub(crate) fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The counts of one worker.
#[derive(Debug)]
pub(crate) struct Record {
    /// One round if the work was timed. Empty if the worker ended before it counted.
    pub(crate) rounds: Vec<Round>,
    pub(crate) latency: Option<Latency>,
}

/// Whose CPU time a worker reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// The thread's own.
    Thread,
    /// The thread's own, and that of the programs that all workers run. The first worker has it.
    First,
    /// That of the whole process, and of the programs that it runs.
    Process,
    /// No CPU time: another worker's account covers the whole process.
    Nothing,
}

impl Account {
    /// The account of the worker with this number.
    pub(crate) fn of(worker: usize, workload: &dyn Workload) -> Self {
        match (workload.is_done_by_others(), worker) {
            (true, 0) => Self::Process,
            (true, _) => Self::Nothing,
            (false, 0) => Self::First,
            (false, _) => Self::Thread,
        }
    }

    /// Used up to now by this thread.
    fn own(self) -> io::Result<Used> {
        if matches!(self, Self::Thread | Self::First) { Used::by_thread() } else { Ok(Used::default()) }
    }

    /// Counted up to now by the process, if this is the first worker's account.
    fn locks(self) -> Option<Locks> {
        if matches!(self, Self::First | Self::Process) { Locks::now() } else { None }
    }

    /// Used up to now by others. Read while no worker works.
    fn others(self) -> io::Result<Used> {
        match self {
            Self::Thread | Self::Nothing => Ok(Used::default()),
            Self::First => Used::by_children(),
            Self::Process => Ok(Used::by_process()?.and(Used::by_children()?)),
        }
    }
}

/// Counts between [`Phase::COUNT`] and [`Phase::STOP`]. Waits at the barrier five times: to begin;
/// when all have warmed up, and again when the shared counters have been read; when all have
/// counted, and again when the shared counters have been read.
///
/// # Errors
/// The target's error.
pub(crate) fn timed(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, barrier): (&Phase, &Barrier),
    account: Account,
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    // Reads the shared counters between two waits at the barrier, while no worker works. Also
    // returns whether all workers arrived.
    let shared = || {
        let came = barrier.wait();
        let read = (account.others()?, account.locks());
        Ok::<_, io::Error>((came && barrier.wait(), read))
    };
    task.begin(actor)?;
    if !barrier.wait() {
        return Ok(Record { rounds: Vec::new(), latency: None });
    }
    let (mut from, mut ops) = (None, 0);
    loop {
        match phase.get() {
            Phase::WARM_UP => {}
            Phase::COUNT => {
                if from.is_none() {
                    phase.add_counting();
                    // Operations that a worker did before the last one arrived would be in the time
                    // but not in the counts.
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
    // A worker that has not arrived has failed, and then this result is not used.
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

/// The remaining time of rounds: first of those that warm up, then of those that count.
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

    /// Subtracts a round's time from its part. Returns whether that was the last round. If a round
    /// takes longer than the rest of the warm-up, the excess is not counted, and so not subtracted
    /// from the counted time.
    #[must_use]
    pub(crate) fn spend(&mut self, ns: u64) -> bool {
        let counts = self.counts();
        let left = if counts { &mut self.counted_ns } else { &mut self.warm_up_ns };
        *left = left.saturating_sub(ns);
        counts && *left == 0
    }
}

/// How the workers of a round wait for each other. Each method returns whether to continue.
pub(crate) trait RoundSync {
    /// All have prepared, and none has begun: the shared counters can be read.
    fn prepared(&self) -> bool {
        true
    }

    /// All begin. The phase is [`Phase::COUNT`] if this round and those after it count.
    fn start(&self) -> bool;

    /// All have done their part, and none has begun to clean up.
    fn finished(&self, round: &Round) -> bool;

    /// The shared counters have been read.
    fn counters_read(&self) -> bool {
        true
    }

    /// All have removed the files that they made. Returns whether there is another round.
    fn cleaned(&self) -> bool;
}

/// Runs rounds until the last one. Counts those from [`Phase::COUNT`] on. If that phase never
/// comes, counts the last round.
///
/// # Errors
/// The target's error.
pub(crate) fn rounds(
    task: &mut dyn Task,
    actor: &mut dyn Actor,
    (phase, sync): (&Phase, &dyn RoundSync),
    account: Account,
    mut latency: Option<Latency>,
) -> io::Result<Record> {
    let (mut rounds, mut counting) = (Vec::new(), false);
    loop {
        task.begin(actor)?;
        if !sync.prepared() {
            break;
        }
        let (others, locks) = (account.others()?, account.locks());
        if !sync.start() {
            break;
        }
        if !counting {
            // The rounds so far were warm-up.
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
        if !sync.finished(&round) {
            break;
        }
        round.used = round.used.and(account.others()?.since(others));
        round.locks = account.locks().zip(locks).map(|(now, before)| now.since(before));
        rounds.push(round);
        if !sync.counters_read() {
            break;
        }
        task.end(actor)?;
        if !sync.cleaned() {
            break;
        }
    }
    Ok(Record { rounds, latency })
}

#[cfg(test)]
mod tests;
