//! rndrename: each thread creates a random name, renames it to another random name and unlinks it,
//! all in one directory.
//!
//! This is the second measurement of parallel directory operations (2005). The names use varying
//! locks, and a rename takes two of them. One operation is the three calls.

use std::io;

use super::{Part, Step, Task, Workload};
use crate::{
    base::{cancel::Cancel, failure::Failure, path::TreePath},
    target::Actor,
};

/// Number of names of a thread, made before the clock starts. They are reused in order.
const NAMES: usize = 8192;

/// Create a random name + rename it to another + unlink it.
pub(crate) struct RndRename;

impl Workload for RndRename {
    fn prepare(&self, _: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
        Ok(())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let mut rng = part.rng();
        // The number of the worker makes the names of two threads different.
        let name = |_| TreePath::new(&format!("{:016x}.{}", rng.u64(..), part.worker));
        Box::new(Renames { names: (0..NAMES).map(name).collect(), next: 0 })
    }
}

#[repr(align(128))]
struct Renames {
    names: Vec<TreePath>,
    next: usize,
}

impl Step for Renames {
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let [old, new] = [&self.names[self.next], &self.names[self.next + 1]];
        actor.create(old)?;
        actor.rename(old, new)?;
        actor.unlink(new)?;
        self.next = (self.next + 2) % NAMES;
        Ok(1)
    }
}
