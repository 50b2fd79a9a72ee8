//! dpath and getcwd: rendering paths while directories on those paths are renamed.
//!
//! This is the measurement of the sequence read/write lock (dcache, 2013). Before, path rendering
//! was a writer of the rename lock, so programs that print paths delayed each other and every path
//! walk. One operation is one path, eight levels deep.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{Part, Step, Task, Workload};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
    },
    target::{Actor, Handle},
};

/// Renames between two readings of the clock. A renamer with 50,000 renames per second wakes a
/// thousand times per second.
const BURST: u32 = 50;

/// A renamer that is later than this drops the renames it has missed. Otherwise it would rename at
/// full speed until it has caught up, perhaps for longer than a measurement.
const LATEST: Duration = Duration::from_millis(100);

/// The level of the renamed directory on each path: the third of seven above the file.
const MOVED: usize = 3;

/// The workers render paths. `renamers` helpers rename.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rendering {
    pub(crate) renamers: u64,
    /// Renames per second of each renamer; 0: full speed.
    pub(crate) rate: u64,
    /// Render the working directory's path instead of an open file's.
    pub(crate) cwd: bool,
}

impl Rendering {
    /// Number of paths: each renamer has its own, and the renderers share them.
    fn chains(self) -> usize {
        usize::try_from(self.renamers.max(1)).expect("few renamers")
    }
}

/// The first `levels` directories of a path.
fn above(chain: usize, levels: usize) -> String {
    let mut path = format!("path{chain}");
    (1..levels).for_each(|level| path.push_str(&format!("/level{level}")));
    path
}

impl Workload for Rendering {
    fn helpers(&self) -> usize {
        usize::try_from(self.renamers).expect("few renamers")
    }

    fn helpers_do(&self) -> &'static str {
        "directory renames"
    }

    fn helpers_per_s(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.renamers * self.rate)
    }

    fn prepare(&self, actor: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
        for chain in 0..self.chains() {
            for levels in 1..=7 {
                let dir = above(chain, levels);
                actor.mkdir(&TreePath::new(&dir)).during(|| format!("mkdir {dir}"))?;
            }
            let file = TreePath::new(&format!("{}/file", above(chain, 7)));
            actor.create(&file).during(|| format!("create {}", file.relative()))?;
            let dir = TreePath::new(&format!("{}/cwd", above(chain, 7)));
            actor.mkdir(&dir).during(|| format!("mkdir {}", dir.relative()))?;
        }
        Ok(())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        if let Some(renamer) = part.helper() {
            let home = TreePath::new(&above(renamer, MOVED));
            let away = TreePath::new(&format!("{}.moved", above(renamer, MOVED)));
            return Box::new(Renamer { home, away, is_away: false, rate: self.rate, due: None });
        }
        let leaf = if self.cwd { "cwd" } else { "file" };
        let path = TreePath::new(&format!("{}/{leaf}", above(part.worker % self.chains(), 7)));
        Box::new(Renderer { path, cwd: self.cwd, handle: None })
    }
}

#[repr(align(128))]
struct Renderer {
    path: TreePath,
    cwd: bool,
    handle: Option<Box<dyn Handle>>,
}

impl Step for Renderer {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        // No renamer runs yet. Renamers start when all threads have begun, and move the directory
        // back when they end.
        if self.cwd {
            actor.chdir(&self.path)
        } else {
            self.handle = Some(actor.open(&self.path)?);
            Ok(())
        }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        let len = if self.cwd { actor.getcwd()? } else { self.handle.as_ref().expect("begun").path()? };
        std::hint::black_box(len);
        Ok(1)
    }

    fn end(&mut self, _: &mut dyn Actor) -> io::Result<()> {
        self.handle = None;
        Ok(())
    }
}

#[repr(align(128))]
struct Renamer {
    home: TreePath,
    away: TreePath,
    is_away: bool,
    rate: u64,
    /// When the next burst is due, if there is a fixed rate.
    due: Option<Instant>,
}

impl Renamer {
    fn rename(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        let (from, to) = if self.is_away { (&self.away, &self.home) } else { (&self.home, &self.away) };
        actor.rename(from, to)?;
        self.is_away = !self.is_away;
        Ok(())
    }
}

impl Step for Renamer {
    const BATCH: u32 = 1;

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        if self.rate == 0 {
            (0..BURST).try_for_each(|_| self.rename(actor))?;
            return Ok(u64::from(BURST));
        }
        // At a low rate, a burst is smaller, down to a single rename: it must not span more than a
        // tenth of a second.
        let burst = u64::from(BURST).min(self.rate / 10).max(1);
        let now = Instant::now();
        let due = self.due.map_or(now, |due| due.max(now.checked_sub(LATEST).unwrap_or(due)));
        std::thread::sleep(due.saturating_duration_since(now));
        (0..burst).try_for_each(|_| self.rename(actor))?;
        self.due = Some(due + Duration::from_secs(burst) / u32::try_from(self.rate).unwrap_or(u32::MAX));
        Ok(burst)
    }

    fn end(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        if self.is_away { self.rename(actor) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::phase::Phase, target::TargetSpec};

    #[test]
    fn renamer_is_never_ahead_of_its_rate_and_counts_its_renames() {
        const STEPS: u32 = 9;
        let workload = Rendering { renamers: 1, rate: 10_000, cwd: false };
        let target: TargetSpec = "mem".parse().expect("a target");
        let session = target.target().open().expect("it opens");
        let mut actor = session.actor().expect("an actor");
        workload.prepare(&mut *actor, 1, &Cancel::default()).expect("prepared");
        let phase = Phase::new();
        let mut renamer = workload.task(Part { seed: 1, worker: 1, workers: 1, shared: None, phase: &phase });
        renamer.begin(&mut *actor).expect("begun");
        let begin = Instant::now();
        let renames: u64 = (0..STEPS).map(|_| renamer.batch(&mut *actor, None, u64::MAX).expect("renamed")).sum();
        assert_eq!(renames, u64::from(STEPS * BURST));
        // The first burst is due at once. Sleeping may take longer than requested, but never less,
        // so this lower bound holds on any machine.
        let taken = begin.elapsed();
        assert!(taken >= Duration::from_millis(5) * (STEPS - 1));
        // Nine bursts of fifty: an even number of renames, so the directory has its first name, and
        // keeps it.
        renamer.end(&mut *actor).expect("ended");
        actor.stat(&TreePath::new(&format!("{}/file", above(0, 7)))).expect("the first name");
    }
}
