//! The locks of old kernels, each named after the kernel's lock.

use std::{
    hash::{BuildHasher, BuildHasherDefault},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustc_hash::FxHasher;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// On separate cache lines, as a lock in an inode is (an inode is several lines long).
#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

#[cfg(test)]
fn is_taken(mutex: &Mutex<()>) -> bool {
    matches!(mutex.try_lock(), Err(std::sync::TryLockError::WouldBlock))
}

/// Locks a mutex that guards no data: a panic leaves nothing inconsistent.
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `inode->i_mutex` of a directory (`i_sem` until Linux 2.6.16). Held by `do_filp_open` (with
/// O_CREAT), `sys_mkdirat`, `do_unlinkat`, `do_rmdir`, by `real_lookup` when the dentry cache
/// misses (until 4.7), and by `vfs_readdir`. It sleeps, after a period of spinning (since 2.6.29),
/// as the standard library's mutex does.
#[derive(Default)]
pub(super) struct DirectoryMutex(Mutex<()>);

impl DirectoryMutex {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.0)
    }

    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        is_taken(&self.0)
    }
}

/// `sb->s_vfs_rename_mutex` (`s_vfs_rename_sem` until Linux 2.6.16): in `lock_rename`, if the
/// directories differ.
#[derive(Default)]
pub(super) struct RenameMutex(Mutex<()>);

impl RenameMutex {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.0)
    }

    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        is_taken(&self.0)
    }
}

/// `inode->i_mutex` of a file: in `generic_file_llseek` (until Linux 3.2; ext3 and others had no
/// other way), `generic_file_aio_write`, `do_truncate`, and `vfs_fsync_range` (until 3.1).
#[derive(Default)]
pub(super) struct InodeMutex(Mutex<()>);

impl InodeMutex {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.0)
    }

    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        is_taken(&self.0)
    }
}

/// `dentry->d_lock` and the count that it guards: `dget` and `dput` (until Linux 3.12, which made
/// them one compare-and-swap). The lock spins, and a plain store releases it, as in the kernel.
/// There are two differences, which also apply to the two locks below. First, its holder may be
/// preempted here, and then the others spin in vain; on a quiet machine with a core for each thread
/// this does not happen. Second, waiting threads are not served in order of arrival, as they were
/// in Linux 2.6.25 to 4.1.
#[derive(Default)]
pub(super) struct DentryLock(SpinMutex<u32>);

impl DentryLock {
    /// `dget`.
    pub(super) fn get(&self) {
        let mut count = self.0.lock();
        *count = count.wrapping_add(1);
    }

    /// `dput`.
    pub(super) fn put(&self) {
        let mut count = self.0.lock();
        *count = count.wrapping_sub(1);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        *self.0.lock()
    }
}

/// `inode_hash_lock` (a part of `inode_lock` until Linux 2.6.38), one for all inodes. `iget_locked`
/// takes it to search the hash, and after a miss again to insert the inode that was read.
#[derive(Default)]
pub(super) struct InodeHashLock(Padded<SpinMutex<u64>>);

impl InodeHashLock {
    /// Takes and releases it once. The hold is short: the kernel walks the hash chain under it, but
    /// this tree has its own look-up outside.
    pub(super) fn hold_once(&self) {
        let mut count = self.0.0.lock();
        *count = count.wrapping_add(1);
    }

    #[cfg(test)]
    pub(super) fn holds(&self) -> u64 {
        *self.0.0.lock()
    }
}

/// `rename_lock` as its writer: `write_seqlock` in `d_path` and `sys_getcwd` (Linux 2.6.38 to
/// 3.11), and in `d_move`.
#[derive(Default)]
pub(super) struct RenameLock(Padded<SpinMutex<u64>>);

impl RenameLock {
    pub(super) fn write(&self) -> SpinMutexGuard<'_, u64> {
        let mut sequence = self.0.0.lock();
        *sequence = sequence.wrapping_add(1);
        sequence
    }

    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        self.0.0.try_lock().is_none()
    }

    #[cfg(test)]
    pub(super) fn writes(&self) -> u64 {
        *self.0.0.lock()
    }
}

/// Number of locks for directories, and of locks for open files.
const INODES: usize = 1 << 14;
/// Number of locks for dentries. Several share a cache line. These locks lie apart from their
/// dentries, which is a cost that the kernel does not have.
const DENTRIES: usize = 1 << 16;

/// All locks of one tree.
pub(super) struct KernelLocks {
    directories: Box<[Padded<DirectoryMutex>]>,
    files: Box<[Padded<InodeMutex>]>,
    dentries: Box<[DentryLock]>,
    pub(super) rename_mutex: RenameMutex,
    pub(super) inode_hash: InodeHashLock,
    pub(super) rename_lock: RenameLock,
}

/// The index of a path's lock in a table.
fn index(path: &str, len: usize) -> usize {
    // The hash mixes the high bits best.
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(path.as_bytes());
    (hash >> (64 - len.trailing_zeros())) as usize
}

fn table<T: Default>(len: usize) -> Box<[T]> {
    (0..len).map(|_| T::default()).collect()
}

/// The parent directory of a path.
pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

impl KernelLocks {
    pub(super) fn new() -> Self {
        Self {
            directories: table(INODES),
            files: table(INODES),
            dentries: table(DENTRIES),
            rename_mutex: RenameMutex::default(),
            inode_hash: InodeHashLock::default(),
            rename_lock: RenameLock::default(),
        }
    }

    pub(super) fn directory(&self, path: &str) -> &DirectoryMutex {
        &self.directories[index(path, INODES)].0
    }

    /// The two directories of a rename, in an order that all threads share; one if they are the
    /// same.
    pub(super) fn directories(&self, one: &str, other: &str) -> (&DirectoryMutex, Option<&DirectoryMutex>) {
        let (one, other) = (index(one, INODES), index(other, INODES));
        let second = (one != other).then(|| &self.directories[one.max(other)].0);
        (&self.directories[one.min(other)].0, second)
    }

    /// The index of a file's mutex. An open file keeps it, as it keeps its inode in the kernel.
    pub(super) fn file_index(&self, path: &str) -> usize {
        index(path, INODES)
    }

    pub(super) fn file(&self, index: usize) -> &InodeMutex {
        &self.files[index].0
    }

    pub(super) fn dentry(&self, path: &str) -> &DentryLock {
        self.dentry_at(self.dentry_index(path))
    }

    /// The index of a dentry's lock. An open file keeps it as well.
    pub(super) fn dentry_index(&self, path: &str) -> usize {
        index(path, DENTRIES)
    }

    pub(super) fn dentry_at(&self, index: usize) -> &DentryLock {
        &self.dentries[index]
    }
}
