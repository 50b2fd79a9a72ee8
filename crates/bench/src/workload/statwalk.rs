//! statwalk: each thread walks a tree of its own and stats each file; every look-up misses the inode cache.
//!
//! The measurement behind the inode look-up without a lock (2024): twenty threads that each bring in inodes of their
//! own waited for the one lock of the inode hash. One operation is one stat. Before each round the caches are emptied.

use std::io;

use super::{Pace, Part, Step, Task, Workload, tree::make_all};
use crate::{
    failure::Failure,
    halt::Halt,
    path::TreePath,
    target::{Actor, Forget},
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

    fn prepare(&self, actor: &mut dyn Actor, workers: usize, halt: &Halt) -> Result<(), Failure> {
        for worker in 0..workers {
            let dirs = (0..self.dirs).map(|dir| TreePath::new(&format!("tree{worker}/dir{dir}")));
            let dirs = [TreePath::new(&format!("tree{worker}"))].into_iter().chain(dirs);
            make_all(actor, dirs, self.files_of(worker), halt)?;
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
        if self.empties { actor.forget(Forget::Inodes) } else { Ok(()) }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let Some(path) = self.paths.get(self.next) else { return Ok(0) };
        actor.stat(path)?;
        self.next += 1;
        Ok(1)
    }
}
