//! A target that does nothing.

use std::{
    ffi::CStr,
    io::{self, SeekFrom},
};

use super::{Actor, Caches, Handle, Open, Session, Target, Work};
use crate::base::{failure::Failure, path::TreePath};

/// A target that does nothing. With it, only the loop is measured.
pub(crate) struct Nothing;

impl Target for Nothing {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(Nothing))
    }
}

impl Session for Nothing {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(Nothing))
    }
}

impl Actor for Nothing {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn stat_missing(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        read_path(from)?;
        read_path(to)
    }
    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn open(&mut self, _: &TreePath) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(Nothing))
    }
    fn with_open(&mut self, path: &TreePath, _: Open, work: Work<'_>) -> io::Result<()> {
        read_path(path)?;
        work(&Nothing)
    }
    fn set_xattr(&mut self, path: &TreePath, _: &CStr, _: &[u8]) -> io::Result<()> {
        read_path(path)
    }
    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        read_path(path)
    }
    fn getcwd(&mut self) -> io::Result<usize> {
        Ok(0)
    }
    fn drop_caches(&mut self, _: Caches) -> io::Result<()> {
        Ok(())
    }
}

impl Handle for Nothing {
    fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        std::hint::black_box(to);
        Ok(0)
    }
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(buffer.len())
    }
    fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(buffer.len())
    }
    fn write(&self, data: &[u8]) -> io::Result<usize> {
        Ok(data.len())
    }
    fn truncate(&self, size: u64) -> io::Result<()> {
        std::hint::black_box(size);
        Ok(())
    }
    fn fsync(&self) -> io::Result<()> {
        Ok(())
    }
    fn path(&self) -> io::Result<usize> {
        Ok(0)
    }
}

/// Reads the path. Fetching it from memory is a cost of the loop, not of the target.
fn read_path(path: &TreePath) -> io::Result<()> {
    std::hint::black_box(path.relative().as_bytes()[0]);
    Ok(())
}
