//! lsl and xattrs: listing one directory of many files.
//!
//! The measurement behind xgetdents and directory read-ahead (gfs2, 2012 to 2014). Level 0 reads names, 1 also
//! attributes, 2 also the names of extended attributes, 3 also their values. One operation is one entry. Calls one by
//! one, as `ls -l` and `getfattr` make them, or the record stream of `pando ls`; with hot caches, or with cold ones.

use std::{io, time::Duration};

use super::{Pace, Part, Step, Task, Workload, tree::sketches};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    path::TreePath,
    target::{Actor, Forget, Level},
};

/// Listings of a directory of `files` files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    pub(crate) level: Level,
    pub(crate) files: u64,
    pub(crate) max_xattrs: u64,
    /// By the record stream, not one by one.
    pub(crate) records: bool,
    pub(crate) cold: bool,
}

/// The directory's contents do not depend on the run.
const SEED: u64 = 2012;

fn dir() -> TreePath {
    TreePath::new("listed")
}

impl Workload for Listing {
    fn pace(&self) -> Pace {
        if self.cold { Pace::Cold } else { Pace::Timed }
    }

    fn is_done_by_others(&self) -> bool {
        self.records
    }

    fn prepare(&self, actor: &mut dyn Actor, _: usize, halt: &Halt) -> Result<(), Failure> {
        actor.mkdir(&dir()).during(|| "mkdir listed".into())?;
        for (n, sketch) in sketches(SEED, self.files, self.max_xattrs).enumerate() {
            if n.is_multiple_of(256) {
                halt.check()?;
            }
            let path = TreePath::new(&format!("listed/{}", sketch.name));
            actor.create(&path).during(|| format!("create {}", path.relative()))?;
            for (name, value) in &sketch.xattrs {
                actor.set_xattr(&path, name, value).during(|| format!("setxattr {}", path.relative()))?;
            }
        }
        // Of what changed a moment ago, the record stream asks more, to be sure: directories are mostly older.
        if self.records && self.max_xattrs > 0 && self.files > FEW { halt.wait(SETTLED) } else { Ok(()) }
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Lister { how: *self, dir: dir(), empties: self.cold && part.worker == 0, done: false })
    }
}

/// So few files are a test, not a measurement.
const FEW: u64 = 1000;
/// After so long no file counts as just changed.
const SETTLED: Duration = Duration::from_secs(4);

#[repr(align(128))]
struct Lister {
    how: Listing,
    dir: TreePath,
    empties: bool,
    done: bool,
}

impl Step for Lister {
    /// A step is a whole listing.
    const BATCH: u32 = 1;

    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.done = false;
        if self.empties { actor.forget(Forget::Disk) } else { Ok(()) }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        if self.done {
            return Ok(0);
        }
        self.done = self.how.cold;
        let level = self.how.level;
        let listed = if self.how.records { actor.records(&self.dir, level)? } else { actor.list(&self.dir, level)? };
        if listed.entries != self.how.files {
            let say = format!("{} of {} entries were listed", listed.entries, self.how.files);
            return Err(io::Error::new(io::ErrorKind::InvalidData, say));
        }
        Ok(listed.entries)
    }
}
