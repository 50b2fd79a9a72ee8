//! The metadata workloads of FxMark, and opening one file: an operation on private or on shared
//! names.
//!
//! FxMark (Min, Kashyap, Maass, Kang, Kim: "Understanding Manycore Scalability of File Systems",
//! USENIX ATC 2016) varies one thing at a time: the operation, and how much of the tree the threads
//! share. Paths are five components deep. Private paths share only the root. One workload differs:
//! random files (FxMark's MRPM) are those of one directory here, not of a tree.

use std::io;

use super::{Pace, Part, Step, Task, Workload, each, stat::StatRounds, tree::make_all};
use crate::{
    base::{cancel::Cancel, failure::Failure, path::TreePath, phase::Phase},
    target::{Actor, Level},
};

/// How far the threads share directories and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Nothing: each thread works in its own directory.
    Nothing,
    /// The directory; each thread has its own names.
    Directory,
    /// The file as well.
    File,
}

/// The repeated operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Stat,
    /// stat of names that do not exist.
    Missing,
    /// Open and close.
    Open,
    /// Read all entries; one operation is one entry.
    Readdir,
    Create,
    Unlink,
    /// Within the thread's directory. If the directory is shared: from the thread's directory into
    /// the shared one.
    Rename,
}

/// One combination of an operation and what is shared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    pub(crate) share: Share,
    /// Files in a directory, or files of a thread in one round.
    pub(crate) files: u64,
}

/// The directories above a worker's files, or above the shared files. The last one contains the
/// files.
fn ancestors(worker: Option<usize>) -> [String; 4] {
    let top = worker.map_or_else(|| "common".to_owned(), |worker| format!("of{worker}"));
    ["", "/a", "/a/b", "/a/b/c"].map(|below| format!("{top}{below}"))
}

/// The directory of a worker, or the shared one.
fn dir(worker: Option<usize>) -> String {
    let [.., dir] = ancestors(worker);
    dir
}

impl Cell {
    /// The worker whose directory a worker uses; none: the shared one.
    fn owner(self, worker: usize) -> Option<usize> {
        (self.share == Share::Nothing).then_some(worker)
    }

    /// The files in the directory of `owner` before the clock starts.
    fn prepared_files(self, owner: Option<usize>) -> Vec<TreePath> {
        let files = match self.verb {
            Verb::Create | Verb::Unlink | Verb::Rename => 0,
            // Private: one file of each worker. Same file: one file for all.
            Verb::Stat | Verb::Open if self.share != Share::Directory => 1,
            Verb::Stat | Verb::Missing | Verb::Open | Verb::Readdir => self.files,
        };
        (0..files).map(|n| TreePath::new(&format!("{}/file{n}", dir(owner)))).collect()
    }
}

impl Workload for Cell {
    fn pace(&self) -> Pace {
        match self.verb {
            Verb::Create | Verb::Unlink | Verb::Rename => Pace::Rounds,
            Verb::Stat | Verb::Missing | Verb::Open | Verb::Readdir => Pace::Timed,
        }
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, cancel: &Cancel) -> Result<(), Failure> {
        // A rename into the shared directory starts in the worker's directory.
        (0..workers).map(Some).chain([None]).try_for_each(|owner| {
            let is_used = (self.share == Share::Nothing) == owner.is_some();
            let files = if is_used { self.prepared_files(owner) } else { Vec::new() };
            make_all(actor, ancestors(owner).iter().map(|dir| TreePath::new(dir)), files, cancel)
        })
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let owner = self.owner(part.worker);
        match self.verb {
            Verb::Stat => Box::new(StatRounds::new(&self.prepared_files(owner), part)),
            Verb::Missing => {
                let missing = |n| TreePath::new(&format!("{}/missing{n}", dir(owner)));
                let names: Vec<_> = (0..self.files).map(missing).collect();
                Box::new(Missing(StatRounds::new(&names, part)))
            }
            Verb::Open => Box::new(Open { path: self.prepared_files(owner).swap_remove(0) }),
            Verb::Readdir => Box::new(Read { dir: TreePath::new(&dir(owner)), files: self.files }),
            Verb::Create | Verb::Unlink | Verb::Rename => Box::new(Change::new(*self, part)),
        }
    }
}

struct Missing(StatRounds);

impl Step for Missing {
    const BATCH: u32 = StatRounds::BATCH;

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.stat_missing(self.0.next())?;
        Ok(1)
    }
}

#[repr(align(128))]
struct Open {
    path: TreePath,
}

impl Step for Open {
    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.open_close(&self.path)?;
        Ok(1)
    }
}

#[repr(align(128))]
struct Read {
    dir: TreePath,
    files: u64,
}

impl Step for Read {
    const BATCH: u32 = 1;

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let entries = actor.list(&self.dir, Level::Names)?.entries;
        if entries == self.files {
            return Ok(entries);
        }
        let text = format!("{entries} of {} entries were listed", self.files);
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// Creates, unlinks or renames each name once. Then the round is over.
#[repr(align(128))]
struct Change<'a> {
    phase: &'a Phase,
    verb: Verb,
    names: Vec<TreePath>,
    /// The targets of renames; otherwise empty.
    renamed: Vec<TreePath>,
    next: usize,
}

impl<'a> Change<'a> {
    fn new(cell: Cell, part: Part<'a>) -> Self {
        let mut rng = part.rng();
        let mut draw = |owner, count| -> Vec<TreePath> {
            let dir = dir(owner);
            // The number of the worker makes the names of two threads different.
            let name = |_| TreePath::new(&format!("{dir}/{:016x}.{}", rng.u64(..), part.worker));
            (0..count).map(name).collect()
        };
        let (own, common) = (Some(part.worker), cell.owner(part.worker));
        let (names, renamed) = if cell.verb == Verb::Rename {
            (draw(own, cell.files), draw(common, cell.files))
        } else {
            (draw(common, cell.files), Vec::new())
        };
        Self { phase: part.phase, verb: cell.verb, names, renamed, next: 0 }
    }
}

impl Step for Change<'_> {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.next = 0;
        if self.verb == Verb::Create { Ok(()) } else { each(&self.names, self.phase, |name| actor.create(name)) }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let Some(name) = self.names.get(self.next) else { return Ok(0) };
        match self.verb {
            Verb::Create => actor.create(name)?,
            Verb::Unlink => actor.unlink(name)?,
            _ => actor.rename(name, &self.renamed[self.next])?,
        }
        self.next += 1;
        Ok(1)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        // A cancelled round has processed only a part of its names.
        let (done, left) = self.names.split_at(self.next);
        let (done, left) = match self.verb {
            Verb::Create => (done, &[][..]),
            Verb::Unlink => (&[][..], left),
            _ => (&self.renamed[..self.next], left),
        };
        each(done.iter().chain(left), self.phase, |name| actor.unlink(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_paths_share_only_the_root() {
        let cell = Cell { verb: Verb::Stat, share: Share::Nothing, files: 1 };
        let [one, other] = [0, 1].map(|worker| cell.prepared_files(cell.owner(worker)).swap_remove(0));
        let [one, other] = [&one, &other].map(|path| path.relative().split('/').collect::<Vec<_>>());
        assert_eq!((one.len(), other.len()), (5, 5));
        assert_ne!(one[0], other[0]);
    }
}
