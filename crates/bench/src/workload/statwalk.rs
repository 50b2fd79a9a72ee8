//! statwalk: each thread walks its own tree and stats each file. Every look-up misses the inode
//! cache.
//!
//! This is the measurement of the lockless inode look-up (2024). Twenty threads, each of which
//! reads its own inodes into the cache, waited for the single lock of the inode hash. One operation
//! is one stat. The caches are emptied before each round.

use std::io;

use super::{Pace, Part, Step, Task, Workload, tree::make_all};
use crate::{
    base::{cancel::Cancel, failure::Failure, path::TreePath},
    target::{Actor, Caches},
};

/// A walk over `dirs` directories of `files` files each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatWalk {
    pub(crate) dirs: u64,
    pub(crate) files: u64,
}

impl StatWalk {
    fn files_of(self, worker: usize) -> impl Iterator<Item = TreePath> {
        (0..self.dirs).flat_map(move |dir| {
            (0..self.files).map(move |file| TreePath::new(&format!("tree{worker}/dir{dir}/file{file}")))
        })
    }
}

impl Workload for StatWalk {
    fn pace(&self) -> Pace {
        Pace::Cold
    }

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, cancel: &Cancel) -> Result<(), Failure> {
        for worker in 0..workers {
            let dirs = (0..self.dirs).map(|dir| TreePath::new(&format!("tree{worker}/dir{dir}")));
            let dirs = [TreePath::new(&format!("tree{worker}"))].into_iter().chain(dirs);
            make_all(actor, dirs, self.files_of(worker), cancel)?;
        }
        Ok(())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let paths = self.files_of(part.worker).collect();
        Box::new(Walk { paths, next: 0, empties: part.worker == 0 })
    }
}

#[repr(align(128))]
struct Walk {
    paths: Vec<TreePath>,
    next: usize,
    /// One of the threads empties the caches for all.
    empties: bool,
}

impl Step for Walk {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.next = 0;
        if self.empties { actor.drop_caches(Caches::Inodes) } else { Ok(()) }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let Some(path) = self.paths.get(self.next) else { return Ok(0) };
        actor.stat(path)?;
        self.next += 1;
        Ok(1)
    }
}
