//! The same operations under the locks that old kernels took: what pandofs's techniques are compared with.
//!
//! A decorator. Around each operation of another target it takes the locks that the kernel took around the same
//! operation, in the same order and the same way (a mutex that sleeps for a mutex that slept, a lock that spins for a
//! lock that spun), and nothing else: no more memory is allocated, nothing else is looked up. The tree below needs none of
//! them. Each lock is a type that names what it stands for:
//!
//! | type | stands for | around |
//! | --- | --- | --- |
//! | [`DirectoryMutex`](locks::DirectoryMutex) | `inode->i_mutex` of a directory | create, mkdir, unlink, rmdir, rename, a look-up that misses, getdents |
//! | [`RenameMutex`](locks::RenameMutex) | `sb->s_vfs_rename_mutex` | a rename to another directory, before both directories' mutexes |
//! | [`InodeMutex`](locks::InodeMutex) | `inode->i_mutex` of a file | lseek, write, fsync, truncate |
//! | [`DentryLock`](locks::DentryLock) | `dentry->d_lock` | each reference taken and each reference put |
//! | [`InodeHashLock`](locks::InodeHashLock) | `inode_hash_lock` | twice in each look-up that misses the inode cache |
//! | [`RenameLock`](locks::RenameLock) | `rename_lock`, as its writer | path rendering; the moment of a rename |
//!
//! A lock is found by a hash of the path, in a table made before the clock starts: the kernel has it at hand, in the object
//! that it has just walked to. That costs some nanoseconds, and is part of what one thread pays. Two directories share a
//! lock with a probability of one in sixteen thousand.
//!
//! What is *not* taken, though kernels of those years took it: `dcache_lock`, the victim's own mutex in unlink, the inode
//! lists' lock, a file table's lock.
//!
//! What differs, though it is taken: kernels from 2.6.25 on served those who waited for a spinning lock in the order of
//! their coming (a ticket lock). These serve whoever is quickest, often the one who has just let go; which of the two is
//! faster depends on the cores, and was not measured. Here a thread can be preempted while it waits, which in the kernel it
//! cannot: in a queue, all behind it would wait until it runs again. And a path is rendered into memory that is allocated
//! under the rename lock, while the kernel had its page before.

mod actor;
mod locks;

use std::{io, sync::Arc};

pub(crate) use self::actor::Before;
use self::locks::KernelLocks;
use super::{Actor, Session, Target};
use crate::failure::Failure;

/// A target under the locks of old kernels.
pub(crate) struct BeforeTarget {
    pub(crate) inner: Box<dyn Target>,
    /// Each look-up of a file misses the inode cache.
    pub(crate) misses: bool,
}

impl Target for BeforeTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(BeforeSession {
            inner: self.inner.open()?,
            locks: Arc::new(KernelLocks::new()),
            misses: self.misses,
        }))
    }

    fn is_in_kernel(&self) -> bool {
        self.inner.is_in_kernel()
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

    fn hoarder(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(Before::new(self.inner.hoarder()?, &self.locks, self.misses)))
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.inner.close()
    }
}
