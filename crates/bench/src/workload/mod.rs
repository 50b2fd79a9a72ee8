//! What a thread does, over and over.

mod crunl;
mod stat;

use std::io;

pub(crate) use self::{
    crunl::Crunl,
    stat::{Shape, Stat},
};
use crate::{failure::Failure, halt::Halt, target::Actor};

/// A workload: what is there before, and what each thread then does.
pub(crate) trait Workload: Sync {
    /// As in the report.
    fn name(&self) -> &'static str;

    /// Makes what must be there before the clock starts; once per session.
    ///
    /// # Errors
    /// What the target answers, or that the run is to end.
    fn prepare(&self, actor: &mut dyn Actor, halt: &Halt) -> Result<(), Failure>;

    /// One thread's part in one repeat. The same seed gives the same names and the same order, so that every target
    /// of a repeat gets the same work; threads of one repeat get different seeds.
    fn task(&self, seed: u64) -> Box<dyn Task + '_>;
}

/// One thread's part. What it writes while it runs lies on cache lines of its own.
pub(crate) trait Task {
    /// Does some operations, so many that asking whether to go on costs nothing beside them; returns how many.
    ///
    /// # Errors
    /// What the target answers.
    fn batch(&mut self, actor: &mut dyn Actor) -> io::Result<u64>;
}
