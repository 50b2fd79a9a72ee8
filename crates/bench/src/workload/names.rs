//! The metadata cells of FxMark, and opening one file: an operation, on names of one's own or on common ones.
//!
//! FxMark (Min, Kashyap, Maass, Kang, Kim: "Understanding Manycore Scalability of File Systems", USENIX ATC 2016)
//! varies one thing at a time: what is done, and how much of the tree the threads share. Paths are five components deep; of
//! what is private, only the root is shared. Not as there: random files (its MRPM) are those of one directory, not of a tree.

use std::io;

use super::{Pace, Part, Step, Task, Workload, each, stat::StatRounds, tree::make_all};
use crate::{
    failure::Failure,
    halt::Halt,
    path::TreePath,
    target::{Actor, Level},
    work::Phase,
};

/// What is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Nothing: each thread works in a directory of its own.
    Nothing,
    /// The directory; names are the thread's own.
    Directory,
    /// The file as well.
    File,
}

/// What is done over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Stat,
    /// Open and close.
    Open,
    /// Read all entries; one operation is one entry.
    Readdir,
    Create,
    Unlink,
    /// Within the own directory; if the directory is shared: from the own one into that.
    Rename,
}

/// One cell: a verb and what is shared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    pub(crate) share: Share,
    /// Files in a directory, or of a thread in one round.
    pub(crate) files: u64,
}

/// Below the root, what leads to the directory of a worker, or to that of all; the directory comes last.
fn way(worker: Option<usize>) -> [String; 4] {
    let top = worker.map_or_else(|| "common".to_owned(), |worker| format!("of{worker}"));
    ["", "/a", "/a/b", "/a/b/c"].map(|below| format!("{top}{below}"))
}

/// The directory of a worker, or that of all.
fn dir(worker: Option<usize>) -> String {
    let [.., dir] = way(worker);
    dir
}

impl Cell {
    /// Which worker's directory a worker works in; none: everybody's.
    fn owner(self, worker: usize) -> Option<usize> {
        (self.share == Share::Nothing).then_some(worker)
    }

    /// What the directory of `owner` holds before the clock starts.
    fn standing(self, owner: Option<usize>) -> Vec<TreePath> {
        let files = match self.verb {
            Verb::Create | Verb::Unlink | Verb::Rename => 0,
            // One's own file among nobody else's; everybody's one file.
            Verb::Stat | Verb::Open if self.share != Share::Directory => 1,
            Verb::Stat | Verb::Open | Verb::Readdir => self.files,
        };
        (0..files).map(|n| TreePath::new(&format!("{}/file{n}", dir(owner)))).collect()
    }
}

impl Workload for Cell {
    fn pace(&self) -> Pace {
        match self.verb {
            Verb::Create | Verb::Unlink | Verb::Rename => Pace::Rounds,
            Verb::Stat | Verb::Open | Verb::Readdir => Pace::Timed,
        }
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, halt: &Halt) -> Result<(), Failure> {
        // A rename into the common directory starts in one's own.
        (0..workers).map(Some).chain([None]).try_for_each(|owner| {
            let is_used = (self.share == Share::Nothing) == owner.is_some();
            let files = if is_used { self.standing(owner) } else { Vec::new() };
            make_all(actor, way(owner).iter().map(|dir| TreePath::new(dir)), files, halt)
        })
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let owner = self.owner(part.worker);
        match self.verb {
            Verb::Stat => Box::new(StatRounds::new(&self.standing(owner), part)),
            Verb::Open => Box::new(Open { path: self.standing(owner).swap_remove(0) }),
            Verb::Readdir => Box::new(Read { dir: TreePath::new(&dir(owner)), files: self.files }),
            Verb::Create | Verb::Unlink | Verb::Rename => Box::new(Change::new(*self, part)),
        }
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
        let say = format!("{entries} of {} entries were listed", self.files);
        Err(io::Error::new(io::ErrorKind::InvalidData, say))
    }
}

/// Creates, unlinks or renames each of some names once; then the round is over.
#[repr(align(128))]
struct Change<'a> {
    phase: &'a Phase,
    verb: Verb,
    names: Vec<TreePath>,
    /// Where renames lead; otherwise empty.
    renamed: Vec<TreePath>,
    next: usize,
}

impl<'a> Change<'a> {
    fn new(cell: Cell, part: Part<'a>) -> Self {
        let mut rng = part.rng();
        let mut draw = |owner, count| -> Vec<TreePath> {
            let dir = dir(owner);
            // The number of the worker keeps names of two threads apart.
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
        // A round that was broken off has done a part of its names.
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
    fn only_the_root_is_shared_by_what_is_private() {
        let cell = Cell { verb: Verb::Stat, share: Share::Nothing, files: 1 };
        let [one, other] = [0, 1].map(|worker| cell.standing(cell.owner(worker)).swap_remove(0));
        let [one, other] = [&one, &other].map(|path| path.relative().split('/').collect::<Vec<_>>());
        assert_eq!((one.len(), other.len()), (5, 5));
        assert_ne!(one[0], other[0]);
    }
}
