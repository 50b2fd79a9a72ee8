//! crunl: each thread creates, closes and unlinks one name of its own, all in one directory.
//!
//! The measurement behind parallel directory operations: with a lock per directory the threads take turns, with a lock
//! per name they do not meet. One operation is the three calls. The same with a directory: mkdir + rmdir.

use std::io;

use super::{Part, Step, Task, Workload};
use crate::{failure::Failure, halt::Halt, path::TreePath, target::Actor};

/// Create + close + unlink of one own name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crunl {
    /// Mkdir + rmdir instead.
    pub(crate) directory: bool,
}

impl Workload for Crunl {
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Halt) -> Result<(), Failure> {
        Ok(())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let path = TreePath::new(&format!("{:016x}", part.rng().u64(..)));
        if self.directory { Box::new(OneDirectory { path }) } else { Box::new(OneFile { path }) }
    }
}

#[repr(align(128))]
struct OneFile {
    path: TreePath,
}

impl Step for OneFile {
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.create(&self.path)?;
        actor.unlink(&self.path)?;
        Ok(1)
    }
}

#[repr(align(128))]
struct OneDirectory {
    path: TreePath,
}

impl Step for OneDirectory {
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.mkdir(&self.path)?;
        actor.rmdir(&self.path)?;
        Ok(1)
    }
}
