//! In-memory file systems of other crates, in process.

use std::io;

use rsfs::{DirEntry as _, GenFS};
use vfs::FileSystem;

use super::{Actor, Level, Listed, Session, Target, consume, unsupported};
use crate::base::{failure::Failure, path::TreePath};

/// The crate `vfs`: one map from whole paths to files, behind one readers-writer lock.
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
        consume(self.0.metadata(path.absolute())).map_err(|error| match error.kind() {
            vfs::error::VfsErrorKind::FileNotFound => io::ErrorKind::NotFound.into(),
            _ => io::Error::other(error),
        })
    }

    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.remove_dir(path.absolute()).map_err(io::Error::other)
    }

    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        drop(self.0.open_file(path.absolute()).map_err(io::Error::other)?);
        Ok(())
    }

    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let mut listed = Listed::default();
        if level > Level::Stat {
            return unsupported(dir);
        }
        for name in self.0.read_dir(dir.absolute()).map_err(io::Error::other)? {
            listed.entries += 1;
            if level == Level::Stat {
                let path = format!("{}/{name}", dir.absolute());
                std::hint::black_box(self.0.metadata(&path).map_err(io::Error::other)?);
            }
        }
        Ok(listed)
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
        consume(self.0.metadata(path.absolute()))
    }

    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.0.remove_dir(path.absolute())
    }

    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        self.0.rename(from.absolute(), to.absolute())
    }

    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        drop(self.0.open_file(path.absolute())?);
        Ok(())
    }

    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let mut listed = Listed::default();
        if level > Level::Stat {
            return unsupported(dir);
        }
        for entry in self.0.read_dir(dir.absolute())? {
            let entry = entry?;
            listed.entries += 1;
            if level == Level::Stat {
                std::hint::black_box(entry.metadata()?);
            }
        }
        Ok(listed)
    }
}
