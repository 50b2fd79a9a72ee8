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

/// Each worker does `ops` operations, or a batch more; that is a round.
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

    fn batch(&mut self, actor: &mut dyn Actor, latency: Option<&mut Latency>) -> io::Result<u64> {
        if self.left == 0 {
            return Ok(0);
        }
        let ops = self.inner.batch(actor, latency)?;
        self.left = self.left.saturating_sub(ops);
        Ok(ops)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.inner.end(actor)
    }
}
