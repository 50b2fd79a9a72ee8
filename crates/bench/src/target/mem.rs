//! pandofs in process: the name space over the in-memory driver, called as a library.

use std::io;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs, Walk};

use super::{Actor, Session, Target};
use crate::{
    failure::{Failure, While},
    path::TreePath,
};

/// Who calls: not root, so that permissions are checked and not passed over.
const UID: u32 = 1000;

/// An in-memory tree without limits.
pub(crate) struct MemTarget;

impl Target for MemTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let vfs = Vfs::with_root_attributes(MemFs::new(MemOptions::default()), UID, UID, 0o755);
        Ok(Box::new(MemSession(vfs.during(|| "making a tree in memory".into())?)))
    }
}

struct MemSession(Vfs);

impl Session for MemSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        // A context of its own, as each task has one.
        Ok(Box::new(MemActor { vfs: &self.0, context: Context::new(&self.0, Credentials::user(UID, UID, &[])) }))
    }
}

struct MemActor<'a> {
    vfs: &'a Vfs,
    context: Context,
}

impl Actor for MemActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.vfs.mkdir(&self.context, At::Cwd, path.relative(), 0o700)?;
        Ok(())
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::EXCL;
        drop(self.vfs.open(&self.context, At::Cwd, path.relative(), flags, 0o600)?);
        Ok(())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(self.vfs.unlink(&self.context, At::Cwd, path.relative())?)
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        std::hint::black_box(self.vfs.stat(&self.context, At::Cwd, path.relative(), Walk::empty())?);
        Ok(())
    }
}
