//! The metadata phases of IO500's mdtest: easy (empty files in directories of one's own) and hard (files of 3901 bytes,
//! all in one directory).
//!
//! One operation is one file. The phases before the measured one are done uncounted.

use std::io;

use super::{Pace, Part, Step, Task, Workload};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    path::TreePath,
    target::Actor,
};

/// Bytes in each file of the hard variant.
const HARD_SIZE: usize = 3901;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Create; in the hard variant also write.
    Write,
    Stat,
    /// Open, read and close: the hard variant's.
    Read,
    Delete,
}

/// A phase of one of the two variants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MdTest {
    pub(crate) hard: bool,
    pub(crate) phase: Phase,
    /// Files of each thread.
    pub(crate) files: u64,
}

impl MdTest {
    fn dir(self, worker: usize) -> String {
        if self.hard { "hard".into() } else { format!("easy{worker}") }
    }
}

impl Workload for MdTest {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, _: &Halt) -> Result<(), Failure> {
        let dirs = if self.hard { 1 } else { workers };
        (0..dirs)
            .map(|worker| self.dir(worker))
            .try_for_each(|dir| actor.mkdir(&TreePath::new(&dir)).during(|| format!("mkdir {dir}")))
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let dir = self.dir(part.worker);
        let path = |n| TreePath::new(&format!("{dir}/file.{}.{n}", part.worker));
        let files = (0..self.files).map(path).collect();
        Box::new(Files { how: *self, files, data: vec![7; HARD_SIZE], next: 0 })
    }
}

#[repr(align(128))]
struct Files {
    how: MdTest,
    files: Vec<TreePath>,
    /// To be written, or read.
    data: Vec<u8>,
    next: usize,
}

/// Does one phase to one file.
fn one(how: MdTest, phase: Phase, file: &TreePath, data: &mut [u8], actor: &mut dyn Actor) -> io::Result<()> {
    let whole = |count: usize| if count == HARD_SIZE { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    match phase {
        Phase::Write if how.hard => whole(actor.open(file)?.write(data)?),
        Phase::Write => actor.create(file),
        Phase::Stat => actor.stat(file),
        Phase::Read => whole(actor.open(file)?.read(data)?),
        Phase::Delete => actor.unlink(file),
    }
}

impl Step for Files {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.next = 0;
        if self.how.phase == Phase::Write {
            return Ok(());
        }
        self.files.iter().try_for_each(|file| one(self.how, Phase::Write, file, &mut self.data, actor))
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let Some(file) = self.files.get(self.next) else { return Ok(0) };
        one(self.how, self.how.phase, file, &mut self.data, actor)?;
        self.next += 1;
        Ok(1)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        let there = match self.how.phase {
            Phase::Write => &self.files[..self.next],
            Phase::Delete => &self.files[self.next..],
            Phase::Stat | Phase::Read => &self.files[..],
        };
        there.iter().try_for_each(|file| actor.unlink(file))
    }
}
