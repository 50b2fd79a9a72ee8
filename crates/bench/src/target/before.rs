//! The same operations under the locks that old kernels took, as a baseline for the techniques of
//! pandofs.
//!
//! This is a decorator. Around each operation of another target it takes the locks that the kernel
//! took around the same operation, in the same order and of the same kind: a sleeping mutex for a
//! sleeping mutex, a spinlock for a spinlock. It does nothing else: it allocates no memory, and
//! looks up nothing. The tree below needs none of these locks. Each lock is a type that names the
//! kernel's lock:
//!
//! - [`DirectoryMutex`](locks::DirectoryMutex): `inode->i_mutex` of a directory. Taken around
//!   create, mkdir, unlink, rmdir, rename, a look-up that misses, getdents.
//! - [`RenameMutex`](locks::RenameMutex): `sb->s_vfs_rename_mutex`. Taken around a rename to
//!   another directory, before both directories' mutexes.
//! - [`InodeMutex`](locks::InodeMutex): `inode->i_mutex` of a file. Taken around lseek, write,
//!   fsync, truncate.
//! - [`DentryLock`](locks::DentryLock): `dentry->d_lock`. Taken around each dget and each dput.
//! - [`InodeHashLock`](locks::InodeHashLock): `inode_hash_lock`. Taken twice in each look-up that
//!   misses the inode cache.
//! - [`RenameLock`](locks::RenameLock): `rename_lock`, as its writer. Taken around path rendering
//!   and around a short part of a rename.
//!
//! A lock is found by a hash of the path, in a table made before the clock starts. The kernel has
//! it in the object to which it has just walked. The hash costs some nanoseconds, which are part of
//! the cost for a single thread. Two directories share a lock with a probability of one in sixteen
//! thousand.
//!
//! Some locks that kernels of those years took are *not* taken here: `dcache_lock`, the victim's
//! own mutex in unlink, the lock of the inode lists, and the lock of a file table.
//!
//! Some locks differ from the kernel's:
//!
//! - Spinlocks of kernels from 2.6.25 on served waiting threads in order of arrival (ticket locks).
//!   Here any waiting thread may win, often the one that has just released the lock. Which of the
//!   two is faster depends on the cores, and was not measured. A thread can be preempted here while
//!   it waits, which the kernel prevents. In a queue, all threads behind it would wait until it
//!   runs again.
//! - A path is rendered into memory that is allocated while the rename lock is held. The kernel had
//!   allocated its page before.

mod actor;
mod locks;

use std::{io, sync::Arc};

pub(crate) use self::actor::Before;
use self::locks::KernelLocks;
use super::{Actor, Session, Target};
use crate::base::failure::Failure;

/// A target under the locks of old kernels.
pub(crate) struct BeforeTarget {
    pub(crate) inner: Box<dyn Target>,
    /// Every look-up of a file misses the inode cache.
    pub(crate) misses: bool,
}

impl Target for BeforeTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(self.locked(self.inner.open()?))
    }

    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(self.locked(self.inner.open_unbounded()?))
    }

    fn is_in_kernel(&self) -> bool {
        self.inner.is_in_kernel()
    }
}

impl BeforeTarget {
    fn locked(&self, inner: Box<dyn Session>) -> Box<dyn Session> {
        Box::new(BeforeSession { inner, locks: Arc::new(KernelLocks::new()), misses: self.misses })
    }
}

struct BeforeSession {
    inner: Box<dyn Session>,
    locks: Arc<KernelLocks>,
    misses: bool,
}

impl Session for BeforeSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(Before::new(self.inner.actor()?, &self.locks, self.misses)))
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.inner.close()
    }
}
