//! The metadata phases of IO500's mdtest: easy (empty files in directories of one's own) and hard (files of 3901 bytes,
//! all in one directory).
//!
//! One operation is one file. The phases before the measured one are done uncounted. As IO500 has it (mdtest's option -N 1), a
//! worker works on files of others, so that it does not ask for what it has in its caches itself: it stats those of the next one,
//! reads those of the second further, and deletes those of the third. They are counted round: of two workers each reads its own,
//! of three each deletes its own, and one alone has only its own.

use std::io;

use super::{Pace, Part, Step, Task, Workload, each};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    path::TreePath,
    target::{Actor, Open},
    work,
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

impl Phase {
    /// So many workers further is the one whose files it is done to.
    fn stride(self) -> usize {
        match self {
            Self::Write => 0,
            Self::Stat => 1,
            Self::Read => 2,
            Self::Delete => 3,
        }
    }
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

    /// What a worker has written.
    fn files(self, worker: usize) -> Vec<TreePath> {
        let dir = self.dir(worker);
        (0..self.files).map(|n| TreePath::new(&format!("{dir}/file.{worker}.{n}"))).collect()
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
        let other = (part.worker + self.phase.stride()) % part.workers;
        let (own, files) = (self.files(part.worker), self.files(other));
        Box::new(Files { until: part.phase, how: *self, own, files, data: vec![7; HARD_SIZE], next: 0 })
    }
}

#[repr(align(128))]
struct Files<'a> {
    /// What ends it before its time.
    until: &'a work::Phase,
    how: MdTest,
    /// Those that this worker writes.
    own: Vec<TreePath>,
    /// Those that the phase is done to.
    files: Vec<TreePath>,
    /// To be written, or read.
    data: Vec<u8>,
    next: usize,
}

/// Does one phase to one file.
fn one(how: MdTest, phase: Phase, file: &TreePath, data: &mut [u8], actor: &mut dyn Actor) -> io::Result<()> {
    let whole = |count: usize| if count == HARD_SIZE { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    match phase {
        Phase::Write if how.hard => actor.with_open(file, Open::Create, &mut |file| whole(file.write(data)?)),
        Phase::Write => actor.create(file),
        Phase::Stat => actor.stat(file),
        Phase::Read => actor.with_open(file, Open::Read, &mut |file| whole(file.read(data)?)),
        Phase::Delete => actor.unlink(file),
    }
}

impl Step for Files<'_> {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.next = 0;
        if self.how.phase == Phase::Write {
            return Ok(());
        }
        each(&self.own, self.until, |file| one(self.how, Phase::Write, file, &mut self.data, actor))
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
            Phase::Stat | Phase::Read => &self.own[..],
        };
        each(there, self.until, |file| actor.unlink(file))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::target::{Nothing, Work};

    /// Who is asked for what.
    #[derive(Default)]
    struct Noting {
        made: BTreeSet<String>,
        asked: BTreeSet<String>,
    }

    impl Actor for Noting {
        fn mkdir(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn create(&mut self, path: &TreePath) -> io::Result<()> {
            self.made.insert(path.relative().to_owned());
            Ok(())
        }
        fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
            self.stat(path)
        }
        fn stat(&mut self, path: &TreePath) -> io::Result<()> {
            self.asked.insert(path.relative().to_owned());
            Ok(())
        }
        fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
            match how {
                Open::Read => self.stat(path),
                Open::Create => self.create(path),
            }?;
            work(&Nothing)
        }
    }

    #[test]
    fn what_is_left_before_its_time_is_neither_prepared_nor_taken_back() {
        let phase = work::Phase::new();
        let how = MdTest { hard: false, phase: Phase::Stat, files: 3 };
        let mut task = how.task(Part { seed: 1, worker: 0, workers: 2, shared: None, phase: &phase });
        let mut noting = Noting::default();
        task.begin(&mut noting).expect("noting does not fail");
        assert_eq!(std::mem::take(&mut noting.made).len(), 3);
        phase.advance(work::Phase::STOP);
        task.end(&mut noting).expect("noting does not fail");
        assert_eq!(std::mem::take(&mut noting.asked).len(), 3, "the last round's");
        phase.advance(work::Phase::LEFT);
        task.begin(&mut noting).expect("noting does not fail");
        task.end(&mut noting).expect("noting does not fail");
        assert!(noting.made.is_empty() && noting.asked.is_empty());
    }

    #[test]
    fn a_worker_looks_at_files_of_another() {
        for (phase, hard, workers) in [
            (Phase::Stat, false, 2),
            (Phase::Delete, false, 2),
            (Phase::Stat, false, 5),
            (Phase::Delete, false, 5),
            // Two are two further than themselves.
            (Phase::Read, true, 3),
        ] {
            let (mut made, mut asked) = (BTreeSet::new(), BTreeSet::new());
            for worker in 0..workers {
                let (how, now) = (MdTest { hard, phase, files: 3 }, work::Phase::new());
                let mut task = how.task(Part { seed: 1, worker, workers, shared: None, phase: &now });
                let mut noting = Noting::default();
                task.begin(&mut noting).expect("noting does not fail");
                while task.batch(&mut noting, None, u64::MAX).expect("noting does not fail") > 0 {}
                assert!(noting.made.is_disjoint(&noting.asked), "{phase:?} of {workers}");
                made.append(&mut noting.made);
                asked.append(&mut noting.asked);
            }
            assert_eq!(made, asked, "{phase:?}: each file once");
        }
    }
}
