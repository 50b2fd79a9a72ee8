//! The superblock: one tree with its driver, and the shards that its inodes hold.
//!
//! Every inode needs its superblock. If millions of inodes counted references on one word, that
//! word would be the most contended cache line of the system. So inodes hold a *shard* instead.
//! There is one shard per CPU, 64 at most, and the creating thread chooses its own. Each shard has
//! its own reference count and its own run of inode numbers.

use std::sync::{
    Arc, RwLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::{
    AtomicCounted, ClassMutex, Counted, Guard, NameGuard, NameKey, NameLocks, Object, Padded, SeqRwLock, SingleFlight,
    WaitGroup, assert_unpinned, lock_order::LockClass, stripe_hint,
};

use crate::{
    AclSupport, Backing, Driver, Error, Feed, Result, VfsOptions,
    objects::{
        cache_counts::Counts,
        dentry::Dentry,
        file_locks::FileLocks,
        foreground::Foreground,
        observers::Observers,
        tables::{CachedLinks, Forgets, InodeCache, Nodes},
    },
    types::{DirectoryLocks, name::NameHash, part::Part},
};

/// Shards fetch inode numbers in runs of this many.
const INO_RUN: u64 = 1 << 10;
/// The largest number of shards. More would not reduce contention further.
const SHARDS_MAX: usize = 64;
/// The number of permissions locks. Up to this many directories can have permissions revoked at the
/// same time, which matters if a backing is slow to acknowledge that.
const PERMISSION_LOCKS: usize = 32;
/// The inode number of the namespace's root: the one that FUSE expects.
pub(crate) const ROOT_INO: u64 = 1;
/// The superblock number of the namespace's own tree, which is created first.
const ROOT_SB: u64 = 1;

/// A request to the backing that several threads may share: for a name in a directory, or for
/// everything that is cached of the directory (then the name is empty).
pub(crate) type Request = (u64, Box<[u8]>);

/// The state that all superblocks of one `Vfs` share: the locks of the namespace. The crate's
/// documentation has the lock order.
pub(crate) struct Namespace {
    /// Held by a thread that revokes permissions of a directory, and taken by threads that wait for
    /// the end of that. One of these locks, chosen by inode number.
    permissions: [ClassMutex; PERMISSION_LOCKS],
    /// The number of threads that wait for a revocation. Atomic: a single independent value.
    revocation_waiters: AtomicUsize,
    /// Held while a directory changes its parent. No directory's ancestors change while it is held
    /// (P4). Analogous to `s_vfs_rename_mutex`.
    pub topology: ClassMutex,
    /// Name locks, striped (P2).
    pub names: NameLocks,
    /// The rename sequence, analogous to `rename_lock`. It is held for writing around each instant
    /// that changes where existing paths lead, except for the creation and removal of names: a
    /// directory moves (P9), a directory loses permissions, or something is mounted or unmounted.
    pub rename_seq: SeqRwLock,
    /// Whether the namespace is traced, and what of it is watched.
    pub observers: Observers,
    /// The locks of files that programs have asked for.
    pub file_locks: FileLocks,
    /// The next run of inode numbers. Numbers are unique in the whole namespace, so a server may
    /// use them as node numbers. Atomic: a single independent value.
    next_run: AtomicU64,
    /// The next superblock number. Atomic: a single independent value.
    next_sb: AtomicU64,
    /// Immutable.
    pub options: VfsOptions,
}

impl Namespace {
    pub(crate) fn new(options: &VfsOptions) -> Self {
        Self {
            permissions: std::array::from_fn(|_| ClassMutex::new(LockClass::Permissions)),
            revocation_waiters: AtomicUsize::new(0),
            topology: ClassMutex::new(LockClass::Topology),
            names: match options.directory_locks {
                DirectoryLocks::Stripes(count) => NameLocks::new(count),
                DirectoryLocks::PerName | DirectoryLocks::PerDirectory => NameLocks::for_this_machine(),
            },
            rename_seq: SeqRwLock::new(),
            observers: Observers::default(),
            file_locks: FileLocks::default(),
            next_run: AtomicU64::new(0),
            next_sb: AtomicU64::new(ROOT_SB),
            options: options.clone(),
        }
    }

    /// The permissions lock of a directory. It orders the changes of the directory's permissions.
    pub(crate) fn permissions(&self, ino: u64) -> &ClassMutex {
        &self.permissions[ino as usize % PERMISSION_LOCKS]
    }

    /// Waits until a running revocation of a directory's permissions has ended. No guard and no
    /// lock is held.
    pub(crate) fn wait_for_revocation(&self, ino: u64) {
        // Relaxed: read only by tests, which poll.
        self.revocation_waiters.fetch_add(1, Ordering::Relaxed);
        drop(self.permissions(ino).lock());
        self.revocation_waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// The approximate number of threads in [`Namespace::wait_for_revocation`].
    pub(crate) fn waiting_for_revocations(&self) -> usize {
        self.revocation_waiters.load(Ordering::Relaxed)
    }
}

/// A superblock: one tree and its driver. Analogous to `struct super_block`.
pub(crate) struct SuperBlock {
    /// Its number in the namespace: `st_dev`. Immutable.
    pub id: u64,
    /// The identity of the backing, or a random number. Immutable.
    pub identity: u64,
    /// Immutable.
    pub driver: Box<dyn Driver>,
    /// Immutable.
    pub namespace: Arc<Namespace>,
    /// The directory that this tree is mounted on. None for the root of the namespace and after
    /// umount. Atomic pointer, written under the rename sequence.
    pub mountpoint: AtomicCounted<Dentry>,
    /// The inodes whose numbers were handed out to a server.
    pub nodes: Nodes,
    /// The inode cache of a tree with a backing.
    pub inodes: InodeCache,
    /// Numbers of released inodes that the backing must still be told to forget.
    pub forgets: Forgets,
    /// Requests to the backing that are in flight. Threads with the same request share it
    /// (single-flight).
    pub requests: SingleFlight<Request, Result<()>>,
    /// How often the attributes that others have changed were requested again. A thread that loads
    /// extended attributes meanwhile sees the new number and loads them again.
    pub refreshes: AtomicU64,
    /// Held shared by evictions, and exclusively by the thread that shuts the tree down. Both rely
    /// on the references that the caches hold.
    pub evicting: RwLock<()>,
    /// Counts of the cache, for statistics.
    pub counts: Counts,
    /// The threads that read ahead. Closed when the tree is shut down.
    pub background: Arc<WaitGroup>,
    /// Whether names that a listing has loaded lately had to wait, each for itself. At first that
    /// is tried. Atomic: a hint.
    pub names_wait: AtomicBool,
    /// How many calls at once the last read-ahead has found best. Atomic: a hint.
    pub ahead_limit: AtomicUsize,
    /// The threads that wait for a call of the backing that an operation needs.
    pub foreground: Foreground,
    /// The cached aliases of a tree with a backing.
    pub links: CachedLinks,
    /// The shards of new inodes. None after the tree was shut down ([`SuperBlock::close`]). Atomic
    /// pointer.
    pub shards: AtomicCounted<Shards>,
    /// The secret key of all hashes in this tree. Immutable.
    keys: (u64, u64),
    /// Each directory has one lock for all its names. Immutable.
    pub whole_directories: bool,
    /// The backing stamps the times of inodes. Immutable.
    pub stamped_elsewhere: bool,
    /// Whether there are ACLs, and who checks them. Immutable.
    pub acls: AclSupport,
    /// Whether inodes have flags, which the namespace enforces. Immutable.
    pub keeps_flags: bool,
    /// The changes by others that the backing reports. None in memory. Immutable.
    pub feed: Option<Feed>,
    /// The root, which is not in the inode cache, for reports that concern it. None in memory, and
    /// after the tree was shut down. Atomic pointer.
    pub reported_root: AtomicCounted<Dentry>,
}

impl SuperBlock {
    pub(crate) fn new(driver: Box<dyn Driver>, namespace: Arc<Namespace>, feed: Option<Feed>) -> Arc<Self> {
        let options = &namespace.options;
        let keys = options.hash_key.unwrap_or_else(random_keys);
        let is_parallel = driver.backing().is_none_or(Backing::parallel_directory_operations);
        let whole_directories = !is_parallel || options.directory_locks == DirectoryLocks::PerDirectory;
        let stamped_elsewhere = driver.backing().is_some_and(Backing::stamps_times);
        let acls = driver.backing().map_or(AclSupport::Namespace, Backing::acls);
        let keeps_flags = driver.backing().is_none_or(Backing::keeps_flags);
        let inodes = InodeCache::new(keys, options);
        let identity = driver.backing().and_then(Backing::identity).unwrap_or_else(|| random_keys().0);
        let sb = Arc::new(Self {
            id: namespace.next_sb.fetch_add(1, Ordering::Relaxed),
            identity,
            driver,
            namespace,
            mountpoint: AtomicCounted::new(None),
            nodes: Nodes::new(keys),
            inodes,
            forgets: Forgets::default(),
            requests: SingleFlight::new(),
            refreshes: AtomicU64::new(0),
            evicting: RwLock::default(),
            counts: Counts::default(),
            background: Arc::default(),
            names_wait: AtomicBool::new(true),
            ahead_limit: AtomicUsize::new(1),
            foreground: Foreground::default(),
            links: CachedLinks::default(),
            shards: AtomicCounted::new(None),
            keys,
            whole_directories,
            stamped_elsewhere,
            acls,
            keeps_flags,
            feed,
            reported_root: AtomicCounted::new(None),
        });
        drop(sb.shards.swap(Some(Counted::new(Shards::new(&sb)))));
        sb
    }

    /// Whether this is the namespace's own tree, in which all others are mounted.
    pub(crate) fn is_root(&self) -> bool {
        self.id == ROOT_SB
    }

    /// The backing, if there is one, for a call that may wait. The caller holds no guard
    /// (asserted).
    pub(crate) fn ask_backing(&self) -> Option<&dyn Backing> {
        self.driver.backing().inspect(|_| assert_unpinned("a backing"))
    }

    /// The keyed hash of a name in a directory. It is a pseudo-random function with a different key
    /// for each directory, because the cookies of readdir publish its values.
    #[inline]
    pub(crate) fn hash(&self, dir_ino: u64, name: &[u8]) -> u64 {
        self.names(dir_ino).hash(name)
    }

    /// The hash function for the names of a directory.
    #[inline]
    pub(crate) fn names(&self, dir_ino: u64) -> NameHash {
        NameHash::new((self.keys.0 ^ dir_ino, self.keys.1))
    }

    /// The key of an inode's lock, in a tree with a backing. While the lock is held, the inode's
    /// attributes and link count are not changed, stored or requested by another thread, and the
    /// backing is not told to forget the inode. The key collides with no name: no name in the
    /// directory of this number has this hash.
    ///
    /// If a directory has one lock for all names, that is also the lock of its inode. So a thread
    /// that removes the directory excludes changes in it.
    pub(crate) fn inode_key(&self, ino: u64) -> NameKey {
        if self.whole_directories { NameKey::of_directory(self.key(ino, 0).dir) } else { self.key(ino, u64::MAX) }
    }

    /// The lock of a directory, if each has one for all its names: for a call of the backing that
    /// names the directory.
    pub(crate) fn lock_directory(&self, ino: u64) -> Option<NameGuard<'_>> {
        self.whole_directories.then(|| self.namespace.names.lock(&[self.inode_key(ino)]))
    }

    /// After this call nothing is added to the tree. A thread that creates, moves or loads
    /// something calls [`SuperBlock::expect_mounted`] under its name lock. Threads that have called
    /// it before have finished when this returns. The protocol is that of
    /// [`Revocable`](pando_sync::Revocable), without an end.
    pub(crate) fn close(&self) {
        drop(self.shards.swap(None));
        self.namespace.names.synchronize();
    }

    /// Fails once the tree is shut down. If it succeeds under a name lock, the caller may add to
    /// the tree until it releases the lock.
    ///
    /// # Errors
    /// ESTALE: nothing would release an object that was added after the shutdown.
    #[inline]
    pub(crate) fn expect_mounted(&self) -> Result<()> {
        if self.shards.is_none() { Err(Error::Stale) } else { Ok(()) }
    }

    /// The shard of this thread.
    ///
    /// # Errors
    /// ESTALE once the tree is shut down.
    pub(crate) fn shard(&self, guard: &Guard) -> Result<Arc<Shard>> {
        let shards = self.shards.load(guard).ok_or(Error::Stale)?.to_ref();
        Ok(shards.of_thread(stripe_hint()).clone())
    }

    /// The key of a name that has its own lock. See [`Lockable`](super::lockable::Lockable).
    pub(crate) fn key(&self, dir_ino: u64, hash: u64) -> NameKey {
        NameKey { dir: dir_ino ^ self.id << 48, hash }
    }
}

impl Drop for SuperBlock {
    fn drop(&mut self) {
        // Files that were open when the tree was shut down have been closed since. Nothing else
        // would tell the backing.
        if let Some(backing) = self.driver.backing() {
            self.forgets.numbers().into_iter().for_each(|ino| backing.forget(ino));
        }
    }
}

/// Keys from the random state of the standard library: entropy of the operating system without
/// `unsafe` and without another crate.
fn random_keys() -> (u64, u64) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let key = || RandomState::new().build_hasher().finish();
    (key(), key())
}

/// All shards of a superblock. They hold the superblock, and it holds them until it is shut down.
pub(crate) struct Shards(Box<[Arc<Shard>]>);

impl Object for Shards {}

impl Shards {
    fn new(sb: &Arc<SuperBlock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let count = cores.next_power_of_two().min(SHARDS_MAX);
        Self((0..count).map(|_| Arc::new(Shard::new(sb.clone()))).collect())
    }

    /// The shard of a thread, by its stripe hint.
    pub(crate) fn of_thread(&self, hint: usize) -> &Arc<Shard> {
        &self.0[hint & (self.0.len() - 1)]
    }
}

/// One shard: a reference to the superblock and a run of inode numbers.
#[repr(align(128))]
pub(crate) struct Shard {
    /// Immutable.
    pub sb: Arc<SuperBlock>,
    /// The next number of this shard's run, less [`ROOT_INO`]. Atomic: a single independent value.
    /// Threads write it, so it lies on other cache lines than `Shard::sb`, which every walk reads.
    next: Padded<AtomicU64>,
}

const _: () = assert!(std::mem::offset_of!(Shard, next).abs_diff(std::mem::offset_of!(Shard, sb)) >= 128);

impl Shard {
    pub(crate) fn new(sb: Arc<SuperBlock>) -> Self {
        Self { sb, next: Padded(AtomicU64::new(0)) }
    }

    /// Appends the shard, the superblock and the locks of the namespace, with their addresses.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("Shard", self));
        parts.push(Part::of("SuperBlock", &*self.sb));
        parts.push(Part::of("Namespace", &*self.sb.namespace));
        let locks = self.sb.namespace.names.addresses();
        parts.push(Part { name: "a stripe of NameLocks", address: locks.start, bytes: locks.len() });
        parts.push(Part::of("Namespace.permissions", &self.sb.namespace.permissions));
        parts.push(Part::of("Namespace.topology", &self.sb.namespace.topology));
        parts.push(Part::of("Namespace.rename_seq", &self.sb.namespace.rename_seq));
        parts.push(Part::of("Namespace.next_run", &self.sb.namespace.next_run));
    }

    /// A number that no inode of this namespace has had.
    ///
    /// Runs begin at multiples of their length. The thread that fetches a run takes the first
    /// number of the run itself. So if `next` is a multiple of the length, there is no run yet, or
    /// the last one is used up.
    pub(crate) fn next_ino(&self) -> u64 {
        // Relaxed: the numbers order nothing.
        let mut next = self.next.0.load(Ordering::Relaxed);
        loop {
            let fetched = next.is_multiple_of(INO_RUN);
            let raw = if fetched { self.sb.namespace.next_run.fetch_add(INO_RUN, Ordering::Relaxed) } else { next };
            // If another thread of the same shard was faster, the run that this thread has fetched
            // stays unused. There are enough numbers.
            match self.next.0.compare_exchange(next, raw + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return raw + ROOT_INO,
                Err(now) => next = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::Nothing;

    #[test]
    fn inode_numbers_are_unique_and_root_is_first() {
        let namespace = Namespace::new(&VfsOptions::new());
        let sb = SuperBlock::new(Box::new(Nothing), Arc::new(namespace), None);
        let shards: Vec<_> = (0..3).map(|_| Shard::new(sb.clone())).collect();
        assert_eq!(shards[0].next_ino(), ROOT_INO);
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let take = |shard: &Shard| (0..3 * INO_RUN).map(|_| shard.next_ino()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..6)
                .map(|i| {
                    scope.spawn({
                        let shard = &shards[i % 3];
                        move || take(shard)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("ends")).collect()
        });
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert!(seen[0] > ROOT_INO);
    }
}
