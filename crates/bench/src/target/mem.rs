//! pandofs in process: the VFS over the in-memory driver, called as a library.

use std::io;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Credentials, Vfs, VfsOptions};

use super::{Actor, Session, Target, tree::TreeActor};
use crate::base::failure::{During, Failure};

/// The user of all calls. Not root, so that permissions are checked.
const UID: u32 = 1000;

/// An in-memory tree without limits.
pub(crate) struct MemTarget;

impl Target for MemTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(MemSession::new()?))
    }
}

/// An in-memory tree.
pub(super) struct MemSession(Vfs);

impl MemSession {
    /// # Errors
    /// None is known, as the tree has no limits.
    pub(super) fn new() -> Result<Self, Failure> {
        let vfs = Vfs::with_options(MemFs::new(MemOptions::default()), VfsOptions::new().owner(UID, UID));
        Ok(Self(vfs.during(|| "making a tree in memory".into())?))
    }

    pub(super) fn vfs(&self) -> &Vfs {
        &self.0
    }
}

impl Session for MemSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(TreeActor::new(&self.0, Credentials::user(UID, UID, &[]), false)))
    }
}
