//! crunl: each thread creates, closes and unlinks one name of its own, all in one directory.
//!
//! This is the measurement of parallel directory operations. With one lock per directory, the
//! threads exclude each other. With one lock per name, they do not. One operation is the three
//! calls. The same struct also does it with a directory: mkdir + rmdir.

use std::io;

use super::{Part, Step, Task, Workload};
use crate::{
    base::{cancel::Cancel, failure::Failure, path::TreePath},
    target::Actor,
};

/// Create + close + unlink of one name of this thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crunl {
    /// Mkdir + rmdir instead.
    pub(crate) directory: bool,
}

impl Workload for Crunl {
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
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
