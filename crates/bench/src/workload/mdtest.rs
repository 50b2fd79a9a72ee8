//! The metadata phases of IO500's mdtest: easy (empty files, each worker in its own directory) and
//! hard (files of 3901 bytes, all in one directory).
//!
//! One operation is one file. The phases before the measured one run without counting. As in IO500
//! (mdtest's option -N 1), a worker works on the files of other workers, so that they are not in
//! its own caches. Worker n stats the files of worker n+1, reads those of worker n+2, and deletes
//! those of worker n+3. The numbers wrap around: with two workers each reads its own files, with
//! three each deletes its own, and a single worker always uses its own.

use std::io;

use super::{Pace, Part, Step, Task, Workload, each};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
        phase::Phase,
    },
    target::{Actor, Open},
};

/// Bytes in each file of the hard variant.
const HARD_SIZE: usize = 3901;

/// The measured phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TestPhase {
    /// Create; in the hard variant also write.
    Write,
    Stat,
    /// Open, read and close; only in the hard variant.
    Read,
    Delete,
}

impl TestPhase {
    /// Distance to the worker whose files this phase uses.
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
    pub(crate) phase: TestPhase,
    /// Files of each thread.
    pub(crate) files: u64,
}

impl MdTest {
    fn dir(self, worker: usize) -> String {
        if self.hard { "hard".into() } else { format!("easy{worker}") }
    }

    /// The files that a worker writes.
    fn files(self, worker: usize) -> Vec<TreePath> {
        let dir = self.dir(worker);
        (0..self.files).map(|n| TreePath::new(&format!("{dir}/file.{worker}.{n}"))).collect()
    }
}

impl Workload for MdTest {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, _: &Cancel) -> Result<(), Failure> {
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
    /// The measurement's phase, which may end the work early.
    until: &'a Phase,
    how: MdTest,
    /// The files that this worker writes.
    own: Vec<TreePath>,
    /// The files that the phase works on.
    files: Vec<TreePath>,
    /// Buffer to write from, or to read into.
    data: Vec<u8>,
    next: usize,
}

/// Runs one phase on one file.
fn one(how: MdTest, phase: TestPhase, file: &TreePath, data: &mut [u8], actor: &mut dyn Actor) -> io::Result<()> {
    let whole = |count: usize| if count == HARD_SIZE { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    match phase {
        TestPhase::Write if how.hard => actor.with_open(file, Open::Create, &mut |file| whole(file.write(data)?)),
        TestPhase::Write => actor.create(file),
        TestPhase::Stat => actor.stat(file),
        TestPhase::Read => actor.with_open(file, Open::Read, &mut |file| whole(file.read(data)?)),
        TestPhase::Delete => actor.unlink(file),
    }
}

impl Step for Files<'_> {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.next = 0;
        if self.how.phase == TestPhase::Write {
            return Ok(());
        }
        each(&self.own, self.until, |file| one(self.how, TestPhase::Write, file, &mut self.data, actor))
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let Some(file) = self.files.get(self.next) else { return Ok(0) };
        one(self.how, self.how.phase, file, &mut self.data, actor)?;
        self.next += 1;
        Ok(1)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        let there = match self.how.phase {
            TestPhase::Write => &self.files[..self.next],
            TestPhase::Delete => &self.files[self.next..],
            TestPhase::Stat | TestPhase::Read => &self.own[..],
        };
        each(there, self.until, |file| actor.unlink(file))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::target::{Nothing, Work};

    /// Records which files are made and which are used.
    #[derive(Default)]
    struct Recorder {
        made: BTreeSet<String>,
        asked: BTreeSet<String>,
    }

    impl Actor for Recorder {
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
    fn cancelled_part_is_neither_prepared_nor_cleaned_up() {
        let phase = Phase::new();
        let how = MdTest { hard: false, phase: TestPhase::Stat, files: 3 };
        let mut task = how.task(Part { seed: 1, worker: 0, workers: 2, shared: None, phase: &phase });
        let mut recorder = Recorder::default();
        task.begin(&mut recorder).expect("a recorder does not fail");
        assert_eq!(std::mem::take(&mut recorder.made).len(), 3);
        phase.advance(Phase::STOP);
        task.end(&mut recorder).expect("a recorder does not fail");
        assert_eq!(std::mem::take(&mut recorder.asked).len(), 3, "the files of the last round");
        phase.advance(Phase::LEFT);
        task.begin(&mut recorder).expect("a recorder does not fail");
        task.end(&mut recorder).expect("a recorder does not fail");
        assert!(recorder.made.is_empty() && recorder.asked.is_empty());
    }

    #[test]
    fn worker_uses_files_of_another_worker() {
        for (phase, hard, workers) in [
            (TestPhase::Stat, false, 2),
            (TestPhase::Delete, false, 2),
            (TestPhase::Stat, false, 5),
            (TestPhase::Delete, false, 5),
            // With two workers, worker n+2 is worker n itself.
            (TestPhase::Read, true, 3),
        ] {
            let (mut made, mut asked) = (BTreeSet::new(), BTreeSet::new());
            for worker in 0..workers {
                let (how, now) = (MdTest { hard, phase, files: 3 }, Phase::new());
                let mut task = how.task(Part { seed: 1, worker, workers, shared: None, phase: &now });
                let mut recorder = Recorder::default();
                task.begin(&mut recorder).expect("a recorder does not fail");
                while task.batch(&mut recorder, None, u64::MAX).expect("a recorder does not fail") > 0 {}
                assert!(recorder.made.is_disjoint(&recorder.asked), "{phase:?} of {workers}");
                made.append(&mut recorder.made);
                asked.append(&mut recorder.asked);
            }
            assert_eq!(made, asked, "{phase:?}: each file once");
        }
    }
}
