//! In-memory file systems of other crates, in process.

use std::io;

use rsfs::GenFS;
use vfs::FileSystem;

use super::{Actor, Session, Target};
use crate::{failure::Failure, path::TreePath};

/// The crate `vfs`: one map from whole paths to files, behind one lock for readers or a writer.
pub(crate) struct VfsTarget;

impl Target for VfsTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(VfsSession(vfs::MemoryFS::new())))
    }
}

struct VfsSession(vfs::MemoryFS);

impl Session for VfsSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(VfsActor(&self.0)))
    }
}

struct VfsActor<'a>(&'a vfs::MemoryFS);

impl Actor for VfsActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.create_dir(path.absolute()).map_err(io::Error::other)
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        drop(self.0.create_file(path.absolute()).map_err(io::Error::other)?);
        Ok(())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.remove_file(path.absolute()).map_err(io::Error::other)
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        std::hint::black_box(self.0.metadata(path.absolute()).map_err(io::Error::other)?);
        Ok(())
    }
}

/// The crate `rsfs`: a tree of hash maps behind one mutex.
pub(crate) struct RsfsTarget;

impl Target for RsfsTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(RsfsSession(rsfs::mem::FS::new())))
    }
}

struct RsfsSession(rsfs::mem::FS);

impl Session for RsfsSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(RsfsActor(&self.0)))
    }
}

struct RsfsActor<'a>(&'a rsfs::mem::FS);

impl Actor for RsfsActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.create_dir(path.absolute())
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        drop(self.0.create_file(path.absolute())?);
        Ok(())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.remove_file(path.absolute())
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        std::hint::black_box(self.0.metadata(path.absolute())?);
        Ok(())
    }
}
