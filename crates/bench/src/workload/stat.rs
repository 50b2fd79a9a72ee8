//! stat by path, four components deep, over many files in random order, with hot caches.
//!
//! This is the measurement of read operations that write no shared memory: threads that only read
//! must not slow each other down.

use std::io;

use super::{Part, Step, Task, Workload, tree::make_all};
use crate::{
    base::{cancel::Cancel, failure::Failure, path::TreePath},
    target::Actor,
};

/// The shape of the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Directories in each directory of three levels. The number of directories with files is the
    /// third power of it.
    pub(crate) fan_out: u32,
    /// Files in each directory of the third level.
    pub(crate) files: u32,
}

impl Default for Shape {
    /// 1000 directories of 100 files.
    fn default() -> Self {
        Self { fan_out: 10, files: 100 }
    }
}

/// stat of random paths.
pub(crate) struct Stat {
    dirs: Vec<TreePath>,
    files: Vec<TreePath>,
}

impl Stat {
    /// Makes all paths.
    pub(crate) fn new(shape: Shape) -> Self {
        let (mut dirs, mut files) = (Vec::new(), Vec::new());
        for a in 0..shape.fan_out {
            dirs.push(TreePath::new(&format!("d{a}")));
            for b in 0..shape.fan_out {
                dirs.push(TreePath::new(&format!("d{a}/d{b}")));
                for c in 0..shape.fan_out {
                    let dir = format!("d{a}/d{b}/d{c}");
                    dirs.push(TreePath::new(&dir));
                    files.extend((0..shape.files).map(|n| TreePath::new(&format!("{dir}/file{n}"))));
                }
            }
        }
        assert!(!files.is_empty(), "a shape has files");
        Self { dirs, files }
    }
}

impl Workload for Stat {
    fn prepare(&self, actor: &mut dyn Actor, _: usize, cancel: &Cancel) -> Result<(), Failure> {
        make_all(actor, self.dirs.iter().cloned(), self.files.iter().cloned(), cancel)
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(StatRounds::new(&self.files, part))
    }
}

/// stat of each path of a set, in an order that depends on the part, repeatedly.
#[repr(align(128))]
pub(super) struct StatRounds {
    paths: Vec<TreePath>,
    next: usize,
}

impl StatRounds {
    pub(super) fn new(files: &[TreePath], part: Part<'_>) -> Self {
        // A shuffle instead of random draws: each path occurs once per round, and the loop needs no
        // random generator.
        let mut order: Vec<u32> = (0..files.len()).map(|n| u32::try_from(n).expect("few files")).collect();
        part.rng().shuffle(&mut order);
        // Copies in the order of use, so that memory is read sequentially, which the CPU
        // prefetches. Otherwise each operation would include cache misses of the loop before the
        // target's first one.
        Self { paths: order.iter().map(|&file| files[file as usize].clone()).collect(), next: 0 }
    }

    /// The path of the next step.
    #[inline]
    pub(super) fn next(&mut self) -> &TreePath {
        let path = &self.paths[self.next];
        self.next += 1;
        if self.next == self.paths.len() {
            self.next = 0;
        }
        path
    }
}

impl Step for StatRounds {
    const BATCH: u32 = 256;

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.stat(self.next())?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::base::phase::Phase;

    /// Counts how often each path is used.
    #[derive(Default)]
    struct Counting(HashMap<String, u32>);

    impl Actor for Counting {
        fn mkdir(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn create(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn unlink(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn stat(&mut self, path: &TreePath) -> io::Result<()> {
            *self.0.entry(path.relative().to_owned()).or_default() += 1;
            Ok(())
        }
    }

    #[test]
    fn default_shape_is_the_documented_one() {
        let stat = Stat::new(Shape::default());
        assert_eq!(stat.files.len(), 100_000);
        assert_eq!(stat.dirs.len(), 10 + 100 + 1000);
        assert!(stat.files.iter().all(|path| path.relative().split('/').count() == 4));
    }

    #[test]
    fn round_uses_each_path_once() {
        let stat = Stat::new(Shape { fan_out: 3, files: 37 });
        let (mut actor, mut done) = (Counting::default(), 0);
        let phase = Phase::new();
        let mut task = stat.task(Part { seed: 7, worker: 0, workers: 1, shared: None, phase: &phase });
        while done < 2 * stat.files.len() as u64 {
            done += task.batch(&mut actor, None, u64::MAX).expect("counting does not fail");
        }
        assert_eq!(actor.0.len(), stat.files.len());
        assert_eq!(actor.0.values().map(|&n| u64::from(n)).sum::<u64>(), done);
        let rounds = u32::try_from(done / stat.files.len() as u64).expect("few");
        assert!(actor.0.values().all(|&n| n == rounds || n == rounds + 1));
    }
}
