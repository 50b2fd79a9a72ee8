//! stat: by path, four components deep, over many files in random order; everything hot.
//!
//! The measurement behind silent reads: threads that only look must not slow each other down.

use std::io;

use super::{Part, Step, Task, Workload, tree::make_all};
use crate::{failure::Failure, halt::Halt, path::TreePath, target::Actor};

/// How many directories stand in each of the three levels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Directories in each directory of three levels: its cube is the number of directories with files.
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
    /// All paths, made now.
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
    fn prepare(&self, actor: &mut dyn Actor, _: usize, halt: &Halt) -> Result<(), Failure> {
        make_all(actor, self.dirs.iter().cloned(), self.files.iter().cloned(), halt)
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(StatRounds::new(&self.files, part))
    }
}

/// stat of each path of a set, in an order of this part's own, over and over.
#[repr(align(128))]
pub(super) struct StatRounds {
    paths: Vec<TreePath>,
    next: usize,
}

impl StatRounds {
    pub(super) fn new(files: &[TreePath], part: Part<'_>) -> Self {
        // A shuffle, not independent draws: in one round each path comes once, and the generator costs nothing later.
        let mut order: Vec<u32> = (0..files.len()).map(|n| u32::try_from(n).expect("few files")).collect();
        part.rng().shuffle(&mut order);
        // Copies, made in the order of use: memory is then read from one end to the other, which the processor
        // foresees. Otherwise each operation would pay for cache misses of its own before the target's first.
        Self { paths: order.iter().map(|&file| files[file as usize].clone()).collect(), next: 0 }
    }
}

impl Step for StatRounds {
    const BATCH: u32 = 256;

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        actor.stat(&self.paths[self.next])?;
        self.next += 1;
        if self.next == self.paths.len() {
            self.next = 0;
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::work::Phase;

    /// Counts how often each path is asked for.
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
    fn the_shape_is_the_documented_one() {
        let stat = Stat::new(Shape::default());
        assert_eq!(stat.files.len(), 100_000);
        assert_eq!(stat.dirs.len(), 10 + 100 + 1000);
        assert!(stat.files.iter().all(|path| path.relative().split('/').count() == 4));
    }

    #[test]
    fn a_round_meets_each_path_once() {
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
