//! Durable creates: each thread creates a file in one directory, writes into it, and waits until
//! the file and its name survive a crash. A file system that commits many at once does more of them
//! than its disk does flushes.

use std::io;

use super::{Part, Step, Task, Workload};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
    },
    target::{Actor, Open},
};

const DIR: &str = "durable";

/// Create + write + fsync + close, fsync of the directory, and unlink, which nothing waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DurableCreate;

impl Workload for DurableCreate {
    fn prepare(&self, actor: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
        actor.mkdir(&TreePath::new(DIR)).during(|| "making a directory".into())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let path = TreePath::new(&format!("{DIR}/{:016x}", part.rng().u64(..)));
        Box::new(OneFile { dir: TreePath::new(DIR), path })
    }
}

#[repr(align(128))]
struct OneFile {
    dir: TreePath,
    path: TreePath,
}

impl Step for OneFile {
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.with_open(&self.path, Open::Create, &mut |file| file.write(b"contents").and_then(|_| file.fsync()))?;
        actor.with_open(&self.dir, Open::Read, &mut |dir| dir.fsync())?;
        actor.unlink(&self.path)?;
        Ok(1)
    }
}
