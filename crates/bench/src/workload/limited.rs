//! An endless workload, limited to a number of operations: `NAME:steps=N`.
//!
//! The published measurements gave each worker a number of iterations, and measured the time.

use std::io;

use super::{Pace, Part, Task, Workload};
use crate::{
    base::{cancel::Cancel, failure::Failure, measure::Latency},
    target::{Actor, Handle},
};

/// A round is `ops` operations of each worker, or slightly more if a step does several at once.
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

    fn fits_into_cache(&self) -> bool {
        self.inner.fits_into_cache()
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, cancel: &Cancel) -> Result<(), Failure> {
        self.inner.prepare(actor, workers, cancel)
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
    use crate::{base::phase::Phase, target::Nothing, workload::parse_all};

    #[test]
    fn round_has_the_requested_number_of_operations() {
        // The batches of these workloads are 64, 256 and 1024 steps.
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
