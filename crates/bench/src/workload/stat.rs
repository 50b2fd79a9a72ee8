//! stat: by path, four components deep, over many files in random order; everything hot.
//!
//! The measurement behind silent reads: threads that only look must not slow each other down.

use std::io;

use super::{Task, Workload};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    path::TreePath,
    target::Actor,
};

const BATCH: usize = 256;

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
    fn name(&self) -> &'static str {
        "stat"
    }

    fn prepare(&self, actor: &mut dyn Actor, halt: &Halt) -> Result<(), Failure> {
        for dir in &self.dirs {
            actor.mkdir(dir).during(|| format!("mkdir {}", dir.relative()))?;
        }
        for (n, file) in self.files.iter().enumerate() {
            if n.is_multiple_of(BATCH) {
                halt.check()?;
            }
            actor.create(file).during(|| format!("create {}", file.relative()))?;
        }
        Ok(())
    }

    fn task(&self, seed: u64) -> Box<dyn Task + '_> {
        // A shuffle, not independent draws: in one round each path comes once, and the generator costs nothing later.
        let mut order: Vec<u32> = (0..self.files.len()).map(|n| u32::try_from(n).expect("few files")).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        // Copies, made in the order of use: memory is then read from one end to the other, which the processor
        // foresees. Otherwise each operation would pay for cache misses of its own before the target's first.
        let paths = order.iter().map(|&file| self.files[file as usize].clone()).collect();
        Box::new(Rounds { paths, next: 0 })
    }
}

#[repr(align(128))]
struct Rounds {
    paths: Vec<TreePath>,
    next: usize,
}

impl Task for Rounds {
    fn batch(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let part = &self.paths[self.next..self.paths.len().min(self.next + BATCH)];
        for path in part {
            actor.stat(path)?;
        }
        self.next = (self.next + part.len()) % self.paths.len();
        Ok(part.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

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
        let mut task = stat.task(7);
        while done < 2 * stat.files.len() as u64 {
            done += task.batch(&mut actor).expect("counting does not fail");
        }
        assert_eq!(done, 2 * stat.files.len() as u64);
        assert_eq!(actor.0.len(), stat.files.len());
        assert!(actor.0.values().all(|&n| n == 2));
    }
}
