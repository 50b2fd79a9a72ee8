//! crunl: each thread creates, closes and unlinks one name of its own, all in one directory.
//!
//! The measurement behind parallel directory operations: with a lock per directory the threads take turns, with a lock
//! per name they do not meet. One operation is the three calls.

use std::io;

use super::{Task, Workload};
use crate::{failure::Failure, halt::Halt, path::TreePath, target::Actor};

const BATCH: u64 = 64;

/// Create + close + unlink of one own name.
pub(crate) struct Crunl;

impl Workload for Crunl {
    fn name(&self) -> &'static str {
        "crunl"
    }

    fn prepare(&self, _: &mut dyn Actor, _: &Halt) -> Result<(), Failure> {
        Ok(())
    }

    fn task(&self, seed: u64) -> Box<dyn Task + '_> {
        // The seed is mixed first: threads' seeds are neighbours, their names shall not be.
        let name = fastrand::Rng::with_seed(seed).u64(..);
        Box::new(OneName { path: TreePath::new(&format!("{name:016x}")) })
    }
}

#[repr(align(128))]
struct OneName {
    path: TreePath,
}

impl Task for OneName {
    fn batch(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        for _ in 0..BATCH {
            actor.create(&self.path)?;
            actor.unlink(&self.path)?;
        }
        Ok(BATCH)
    }
}
