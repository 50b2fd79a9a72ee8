//! lsl and xattrs: listing one directory of many files.
//!
//! This is the measurement of xgetdents and directory read-ahead (gfs2, 2012 to 2014). Level 0
//! reads names, level 1 also attributes, level 2 also the names of extended attributes, level 3
//! also their values. One operation is one entry. Either there are separate calls for each entry,
//! as in `ls -l` and `getfattr`, or one call returns many: xgetdents of a tree, or the record
//! stream of `pando ls`. Caches are hot or cold. A read-ahead may go before the listing.

use std::{io, time::Duration};

use super::{Pace, Part, Step, Task, Workload, tree::file_specs};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
    },
    target::{Actor, Caches, Level, ReadAhead},
};

/// Listings of a directory of `files` files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    pub(crate) level: Level,
    pub(crate) files: u64,
    pub(crate) max_xattrs: u64,
    /// One call for many entries instead of separate calls.
    pub(crate) records: bool,
    /// A read-ahead of the directory begins before the listing, and ends during it.
    pub(crate) ahead: bool,
    pub(crate) cold: bool,
}

/// The content of the directory does not depend on the run's seed.
const SEED: u64 = 2012;

fn dir() -> TreePath {
    TreePath::new("listed")
}

impl Workload for Listing {
    fn pace(&self) -> Pace {
        if self.cold { Pace::Cold } else { Pace::Timed }
    }

    fn is_done_by_others(&self) -> bool {
        self.records || self.ahead
    }

    fn fits_into_cache(&self) -> bool {
        true
    }

    fn prepare(&self, actor: &mut dyn Actor, _: usize, cancel: &Cancel) -> Result<(), Failure> {
        actor.mkdir(&dir()).during(|| "mkdir listed".into())?;
        for (n, spec) in file_specs(SEED, self.files, self.max_xattrs).enumerate() {
            if n.is_multiple_of(256) {
                cancel.check()?;
            }
            let path = TreePath::new(&format!("listed/{}", spec.name));
            actor.create(&path).during(|| format!("create {}", path.relative()))?;
            for (name, value) in &spec.xattrs {
                actor.set_xattr(&path, name, value).during(|| format!("setxattr {}", path.relative()))?;
            }
        }
        // For entries that changed a moment ago, the record stream makes additional calls to be
        // safe. Directories are usually older, so wait.
        if self.records && self.max_xattrs > 0 && self.files > FEW { cancel.wait(SETTLED) } else { Ok(()) }
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Lister { how: *self, dir: dir(), empties: self.cold && part.worker == 0, done: false })
    }
}

/// Up to this many files, the run is a test and need not wait.
const FEW: u64 = 1000;
/// After this time no file counts as recently changed.
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
        if self.empties { actor.drop_caches(Caches::Disk) } else { Ok(()) }
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        if self.done {
            return Ok(0);
        }
        self.done = self.how.cold;
        let level = self.how.level;
        let ahead = self.how.ahead.then(|| actor.read_ahead(&self.dir, level)).transpose()?;
        let listed = if self.how.records { actor.records(&self.dir, level)? } else { actor.list(&self.dir, level)? };
        ahead.map_or(Ok(()), ReadAhead::wait)?;
        if listed.entries != self.how.files {
            let text = format!("{} of {} entries were listed", listed.entries, self.how.files);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(listed.entries)
    }
}
