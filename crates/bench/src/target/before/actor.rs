//! The locks that each operation takes.

use std::{
    borrow::Borrow,
    ffi::CStr,
    io::{self, SeekFrom},
    ops::Deref,
    path::Path,
    sync::Arc,
};

use super::locks::{DentryLock, InodeMutex, KernelLocks, parent};
use crate::{
    base::path::TreePath,
    target::{Actor, Caches, Handle, Level, Listed, Open, ReadAhead, Work},
};

/// One thread's access to a target, under the locks.
pub(crate) struct Before<'a> {
    inner: Box<dyn Actor + 'a>,
    locks: &'a Arc<KernelLocks>,
    misses: bool,
}

/// A reference as the kernel counted it: under the dentry's lock.
struct Reference<'a>(&'a DentryLock);

impl<'a> Reference<'a> {
    fn get(lock: &'a DentryLock) -> Self {
        lock.get();
        Self(lock)
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        self.0.put();
    }
}

impl<'a> Before<'a> {
    pub(super) fn new(inner: Box<dyn Actor + 'a>, locks: &'a Arc<KernelLocks>, misses: bool) -> Self {
        Self { inner, locks, misses }
    }

    /// An operation that changes a name. It holds a reference to the directory, and the directory's
    /// mutex (`path_lookup` with LOOKUP_PARENT).
    fn change<T>(&mut self, path: &TreePath, change: impl FnOnce(&mut dyn Actor) -> io::Result<T>) -> io::Result<T> {
        let dir = parent(path.relative());
        let _reference = Reference::get(self.locks.dentry(dir));
        let _mutex = self.locks.directory(dir).lock();
        change(&mut *self.inner)
    }

    /// A path walk to a file. It takes a reference at its end (`path_walk`). If the caches miss, it
    /// takes the directory's mutex once and the inode hash lock twice (`real_lookup`,
    /// `iget_locked`).
    fn look<T>(&mut self, path: &TreePath, look: impl FnOnce(&mut dyn Actor) -> io::Result<T>) -> io::Result<T> {
        let path = path.relative();
        if self.misses {
            let _mutex = self.locks.directory(parent(path)).lock();
            self.locks.inode_hash.hold_once();
            let done = look(&mut *self.inner);
            self.locks.inode_hash.hold_once();
            drop(Reference::get(self.locks.dentry(path)));
            return done;
        }
        match look(&mut *self.inner) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // tmpfs keeps no negative dentries, so each look-up of a name that does not exist
                // is a miss.
                drop(self.locks.directory(parent(path)).lock());
                Err(error)
            }
            done => {
                drop(Reference::get(self.locks.dentry(path)));
                done
            }
        }
    }
}

impl Actor for Before<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.change(path, |inner| inner.mkdir(path))
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        self.change(path, |inner| inner.create(path))?;
        // The dentry starts with one reference, that of the open file; closing puts it.
        self.locks.dentry(path.relative()).put();
        Ok(())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        // `lookup_hash` gets a reference to the victim, under the directory's mutex.
        let victim = self.locks.dentry(path.relative());
        self.change(path, |inner| {
            let _reference = Reference::get(victim);
            inner.unlink(path)
        })
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(path, |inner| inner.stat(path))
    }

    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        let victim = self.locks.dentry(path.relative());
        self.change(path, |inner| {
            let _reference = Reference::get(victim);
            inner.rmdir(path)
        })
    }

    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        let (old, new) = (parent(from.relative()), parent(to.relative()));
        let _references = [old, new].map(|dir| Reference::get(self.locks.dentry(dir)));
        // `lock_rename`: one directory's mutex; or the rename mutex, and then both in order.
        let (first, second) = self.locks.directories(old, new);
        let _rename = second.map(|_| self.locks.rename_mutex.lock());
        let _first = first.lock();
        let _second = second.map(|second| second.lock());
        let _moved = Reference::get(self.locks.dentry(from.relative()));
        // `d_move` holds it for a few instructions, not for the whole rename.
        drop(self.locks.rename_lock.write());
        self.inner.rename(from, to)
    }

    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(path, |inner| inner.open_close(path))
    }

    fn open(&mut self, path: &TreePath) -> io::Result<Box<dyn Handle>> {
        // With O_CREAT the directory's mutex is taken, whether or not the file exists.
        let inner = self.change(path, |inner| inner.open(path))?;
        Ok(Box::new(BeforeHandle::new(inner, path, self.locks.clone())))
    }

    fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
        let (locks, dir) = (&**self.locks, parent(path.relative()));
        let creates = how == Open::Create;
        let misses = self.misses && !creates;
        // As in `change` and `look`, until the file is open.
        let mut reference = creates.then(|| Reference::get(locks.dentry(dir)));
        let mut mutex = (creates || misses).then(|| locks.directory(dir).lock());
        if misses {
            locks.inode_hash.hold_once();
        }
        self.inner.with_open(path, how, &mut |inner| {
            if misses {
                locks.inode_hash.hold_once();
            }
            (mutex, reference) = (None, None);
            work(&BeforeHandle::new(inner, path, locks))
        })
    }

    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let mutex = self.locks.directory(dir.relative()).lock();
        if level > Level::Names {
            // The mutex covers reading the names only: a stat of each entry came after getdents.
            drop(mutex);
        }
        self.inner.list(dir, level)
    }

    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        self.inner.records(dir, level)
    }

    fn read_ahead(&mut self, dir: &TreePath, level: Level) -> io::Result<Box<dyn ReadAhead>> {
        self.inner.read_ahead(dir, level)
    }

    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        self.look(path, |inner| inner.set_xattr(path, name, value))
    }

    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(path, |inner| inner.chdir(path))
    }

    fn getcwd(&mut self) -> io::Result<usize> {
        let _writer = self.locks.rename_lock.write();
        self.inner.getcwd()
    }

    fn drop_caches(&mut self, what: Caches) -> io::Result<()> {
        self.inner.drop_caches(what)
    }

    fn host_path(&self) -> Option<&Path> {
        self.inner.host_path()
    }
}

/// An open file under the locks, with a reference to its dentry. It borrows the inner handle and
/// the locks, unless it stays open: the kernel allocated nothing more, and its threads shared no
/// further reference count.
struct BeforeHandle<H, L: Borrow<KernelLocks>> {
    inner: H,
    /// The indices of its dentry's and of its own lock in the tables.
    dentry: usize,
    file: usize,
    locks: L,
}

impl<H, L: Borrow<KernelLocks>> BeforeHandle<H, L> {
    fn new(inner: H, path: &TreePath, locks: L) -> Self {
        let all = locks.borrow();
        let (dentry, file) = (all.dentry_index(path.relative()), all.file_index(path.relative()));
        all.dentry_at(dentry).get();
        Self { inner, dentry, file, locks }
    }

    /// The file's mutex.
    fn file(&self) -> &InodeMutex {
        self.locks.borrow().file(self.file)
    }
}

impl<H, L> Handle for BeforeHandle<H, L>
where
    H: Deref<Target: Handle> + Send + Sync,
    L: Borrow<KernelLocks> + Send + Sync,
{
    fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let _mutex = self.file().lock();
        self.inner.seek(to)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // In those kernels, read took no lock, and did not exclude another call that moves the same
        // position.
        self.inner.read(buffer)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        let _mutex = self.file().lock();
        self.inner.write(data)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let _mutex = self.file().lock();
        self.inner.truncate(size)
    }

    fn fsync(&self) -> io::Result<()> {
        let _mutex = self.file().lock();
        self.inner.fsync()
    }

    fn path(&self) -> io::Result<usize> {
        let _writer = self.locks.borrow().rename_lock.write();
        self.inner.path()
    }
}

impl<H, L: Borrow<KernelLocks>> Drop for BeforeHandle<H, L> {
    fn drop(&mut self) {
        // `__fput`.
        self.locks.borrow().dentry_at(self.dentry).put();
    }
}

#[cfg(test)]
mod tests;
