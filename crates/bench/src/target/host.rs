//! pandofs in process over a directory of the host (`pando-hostfs`): what `pando mount --source`
//! serves, without the mount. It shows the cost of a miss in the inode cache when a real file
//! system is behind it. The cache is kept small.

use std::{io, path::Path};

use pando_hostfs::{HostFs, HostOptions, Recheck};
use pando_vfs::{Credentials, Vfs, VfsOptions};
use rustix::process;

use super::{Actor, Session, Target, backed::CACHE, calls::DirActor, dir::DirTarget, tree::TreeActor};
use crate::base::failure::{During, Failure};

/// A tree over a directory of its own, with a cache of [`CACHE`] inodes.
pub(crate) struct HostTarget(DirTarget);

impl HostTarget {
    pub(crate) fn new(path: &Path) -> Self {
        Self(DirTarget::new(path))
    }

    fn with_cache(&self, cache: usize) -> Result<Box<dyn Session>, Failure> {
        let dir = self.0.open()?;
        let tree = dir.tree().expect("a directory of the host has a path");
        // Nobody else changes it: it was made for this run.
        let driver = HostFs::open(&tree, HostOptions::new().recheck(Recheck::Never));
        let driver = driver.during(|| format!("opening {}", tree.display()))?;
        let options = VfsOptions::new().cached_inodes(cache).cached_bytes(usize::MAX);
        let vfs = Vfs::with_options(driver, options).during(|| "making a tree over a directory".into())?;
        Ok(Box::new(HostSession { vfs, dir }))
    }
}

impl Target for HostTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        self.with_cache(CACHE)
    }

    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        self.with_cache(usize::MAX)
    }
}

/// The user who runs this process.
pub(super) fn caller() -> Credentials {
    let (user, group) = (process::geteuid().as_raw(), process::getegid().as_raw());
    if user == 0 { Credentials::root() } else { Credentials::user(user, group, &[]) }
}

struct HostSession {
    /// Dropped before the directory is removed.
    vfs: Vfs,
    dir: Box<dyn Session>,
}

impl Session for HostSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        let below = DirActor::at(self.dir.tree().expect("a directory of the host has a path"))?;
        Ok(Box::new(TreeActor::over(below, &self.vfs, caller())))
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { vfs, dir } = *self;
        drop(vfs);
        dir.close()
    }
}
