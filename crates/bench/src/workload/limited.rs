//! A workload that would go on for ever, cut to a number of operations: `NAME:steps=N`.
//!
//! The measurements of old gave each worker a number of iterations and took the time.

use std::io;

use super::{Pace, Part, Task, Workload};
use crate::{
    failure::Failure,
    halt::Halt,
    measure::Latency,
    target::{Actor, Handle},
};

/// Each worker does `ops` operations, or those of a step more that are done at once; that is a round.
pub(super) struct Limited {
    pub(super) inner: Box<dyn Workload>,
    pub(super) ops: u64,
}

impl Workload for Limited {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }

    fn may_be_processes(&self) -> bool {
        self.inner.may_be_processes()
    }

    fn is_done_by_others(&self) -> bool {
        self.inner.is_done_by_others()
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, halt: &Halt) -> Result<(), Failure> {
        self.inner.prepare(actor, workers, halt)
    }

    fn share(&self, actor: &mut dyn Actor) -> io::Result<Option<Box<dyn Handle>>> {
        self.inner.share(actor)
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Counted { inner: self.inner.task(part), ops: self.ops, left: self.ops })
    }
}

#[repr(align(128))]
struct Counted<'a> {
    inner: Box<dyn Task + 'a>,
    ops: u64,
    left: u64,
}

impl Task for Counted<'_> {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.left = self.ops;
        self.inner.begin(actor)
    }

    fn batch(&mut self, actor: &mut dyn Actor, latency: Option<&mut Latency>, most: u64) -> io::Result<u64> {
        if self.left == 0 {
            return Ok(0);
        }
        let ops = self.inner.batch(actor, latency, most.min(self.left))?;
        self.left = self.left.saturating_sub(ops);
        Ok(ops)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.inner.end(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{target::Nothing, work::Phase, workload::parse_all};

    #[test]
    fn a_round_has_as_many_operations_as_were_asked_for() {
        // Of batches of 64, 256 and 1024.
        for name in ["crunl:steps=1", "stat:steps=300", "lseek:steps=2049"] {
            let workload = parse_all(&[name.parse().expect("a workload")])[0].workload();
            let phase = Phase::new();
            let mut task = workload.task(Part { seed: 1, worker: 0, workers: 1, shared: None, phase: &phase });
            for _ in 0..2 {
                task.begin(&mut Nothing).expect("nothing fails");
                let batches =
                    std::iter::from_fn(|| Some(task.batch(&mut Nothing, None, u64::MAX).expect("nothing fails")));
                let ops: u64 = batches.take_while(|&ops| ops > 0).sum();
                assert!(name.ends_with(&format!("={ops}")), "{name}: {ops}");
                task.end(&mut Nothing).expect("nothing fails");
            }
        }
    }
}
