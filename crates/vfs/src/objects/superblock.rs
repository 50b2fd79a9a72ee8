//! The superblock: one tree with its driver, and the shards that its inodes hold on to.
//!
//! Every inode needs its superblock, and millions of inodes counting references on one word would make that word the
//! busiest line of the system. So inodes hold a *shard*: one per few cores, chosen by the creating thread, with a
//! count, and a run of inode numbers, of its own.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use pando_sync::{
    AtomicCounted, ClassMutex, Counted, Guard, NameKey, NameLocks, Object, Padded, SeqRwLock, SingleFlight,
    assert_unpinned, lock_order::LockClass, stripe_hint,
};

use crate::{
    Backing, Driver, Error, Result,
    objects::{
        dentry::Dentry,
        tables::{CachedLinks, InodeCache, Nodes},
        tracing::Tracing,
    },
    types::{name::NameHash, part::Part},
};

/// Inode numbers are handed to shards in runs of this many.
const INO_RUN: u64 = 1 << 10;
/// More shards than this help nobody.
const SHARDS_MAX: usize = 64;
/// So many directories may have permissions taken away at the same time, if a backing takes its time over that.
const PERMISSION_LOCKS: usize = 32;
/// The number of the name space's root: the one that FUSE expects.
pub(crate) const ROOT_INO: u64 = 1;
/// The number of the name space's own tree, which is made first.
const ROOT_SB: u64 = 1;

/// What is asked of a backing: about a name in a directory, or about all that is cached of the directory.
pub(crate) type Question = (u64, Box<[u8]>);

/// What all superblocks of one `Vfs` share: the locks of the name space. Lock order: the crate's documentation.
pub(crate) struct NameSpace {
    /// Taken by whoever takes permissions of a directory away, and by who waits for that: one of them, by its number.
    permissions: [ClassMutex; PERMISSION_LOCKS],
    /// How many wait for that.
    unpermitted: AtomicUsize,
    /// Taken by a directory that changes parents: ancestors stand still while it is held (P4).
    pub topology: ClassMutex,
    /// A lock per name, striped (P2).
    pub names: NameLocks,
    /// Written around each instant at which what paths lead to changes, but for names that come and go: a directory changes its
    /// place (P9), or may be gone through by less than before, or what is mounted on it changes.
    pub rename_seq: SeqRwLock,
    /// Whether all this is watched.
    pub tracing: Tracing,
    /// Inode numbers are unique in the whole name space, so that a server may hand them out as node numbers.
    next_run: AtomicU64,
    next_sb: AtomicU64,
    /// For measurements: the key of all hashes, instead of one that nobody knows.
    hash_key: Option<(u64, u64)>,
}

impl NameSpace {
    pub(crate) fn new() -> Self {
        Self {
            permissions: std::array::from_fn(|_| ClassMutex::new(LockClass::Permissions)),
            unpermitted: AtomicUsize::new(0),
            topology: ClassMutex::new(LockClass::Topology),
            names: NameLocks::for_this_machine(),
            rename_seq: SeqRwLock::new(),
            tracing: Tracing::default(),
            next_run: AtomicU64::new(0),
            next_sb: AtomicU64::new(ROOT_SB),
            hash_key: None,
        }
    }

    /// Orders the changes of a directory's permissions.
    pub(crate) fn permissions(&self, ino: u64) -> &ClassMutex {
        &self.permissions[ino as usize % PERMISSION_LOCKS]
    }

    /// Waits for whoever takes permissions of a directory away. No guard and no lock is held.
    pub(crate) fn wait_for_permissions(&self, ino: u64) {
        // Relaxed: for tests, which look again and again.
        self.unpermitted.fetch_add(1, Ordering::Relaxed);
        drop(self.permissions(ino).lock());
        self.unpermitted.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many do, about now.
    pub(crate) fn waiting_for_permissions(&self) -> usize {
        self.unpermitted.load(Ordering::Relaxed)
    }

    /// For measurements: names fall into the same buckets in each run.
    pub(crate) fn with_hash_key(key: (u64, u64)) -> Self {
        Self { hash_key: Some(key), ..Self::new() }
    }
}

/// One tree.
pub(crate) struct SuperBlock {
    /// Its number in the name space: `st_dev`.
    pub id: u64,
    pub driver: Box<dyn Driver>,
    pub name_space: Arc<NameSpace>,
    /// The directory that this tree's root covers; none for the root of the name space, and for what is mounted no more.
    pub covers: AtomicCounted<Dentry>,
    /// Inodes whose numbers were handed out.
    pub nodes: Nodes,
    /// Inodes in the cache, of a tree with a backing.
    pub inodes: InodeCache,
    /// Numbers of inodes that nobody uses any more, for the backing to hear of. One that is loaded again leaves.
    pub forgotten: Mutex<BTreeSet<u64>>,
    /// What the backing is being asked now.
    pub questions: SingleFlight<Question, Result<()>>,
    /// How often attributes that others have changed were asked for: whoever loads some at the same time looks again.
    pub refreshes: AtomicU64,
    /// Shared by evictions, and held alone by who takes the tree down: each counts on the references of the cache.
    pub evicting: RwLock<()>,
    /// Further links that are in the cache, of a tree with a backing.
    pub links: CachedLinks,
    /// Where new inodes find their shard; none once the tree is being taken down ([`SuperBlock::close`]).
    pub shards: AtomicCounted<Shards>,
    keys: (u64, u64),
}

impl SuperBlock {
    pub(crate) fn new(driver: Box<dyn Driver>, name_space: Arc<NameSpace>) -> Arc<Self> {
        let keys = name_space.hash_key.unwrap_or_else(random_keys);
        let sb = Arc::new(Self {
            id: name_space.next_sb.fetch_add(1, Ordering::Relaxed),
            driver,
            name_space,
            covers: AtomicCounted::new(None),
            nodes: Nodes::new(keys),
            inodes: InodeCache::new(keys),
            forgotten: Mutex::default(),
            questions: SingleFlight::new(),
            refreshes: AtomicU64::new(0),
            evicting: RwLock::default(),
            links: CachedLinks::default(),
            shards: AtomicCounted::new(None),
            keys,
        });
        drop(sb.shards.swap(Some(Counted::new(Shards::new(&sb)))));
        sb
    }

    /// Whether this is the name space's own tree, in which all others are mounted.
    pub(crate) fn is_root(&self) -> bool {
        self.id == ROOT_SB
    }

    /// The backing, if there is one, to be asked or told something: that may wait, so no guard is held (asserted).
    pub(crate) fn ask_backing(&self) -> Option<&dyn Backing> {
        self.driver.backing().inspect(|_| assert_unpinned("a backing"))
    }

    /// The keyed hash of a name in a directory. A pseudo-random function, and another one in each directory: the
    /// cookies of readdir publish its values.
    #[inline]
    pub(crate) fn hash(&self, dir_ino: u64, name: &[u8]) -> u64 {
        self.names(dir_ino).hash(name)
    }

    /// How names in this directory are hashed.
    #[inline]
    pub(crate) fn names(&self, dir_ino: u64) -> NameHash {
        NameHash::new((self.keys.0 ^ dir_ino, self.keys.1))
    }

    /// The lock of an inode of a tree with a backing: its attributes and its number of names are changed, stored and asked
    /// for one after the other, and it is not forgotten meanwhile. No name has this hash in the directory of this number.
    pub(crate) fn inode_key(&self, ino: u64) -> NameKey {
        self.key(ino, u64::MAX)
    }

    /// Nothing comes into the tree from here on. Whoever makes, moves or loads something asks [`SuperBlock::expect_open`] with
    /// its name locked: who had asked before has done it when this returns. (As
    /// [`Revocable`](pando_sync::Revocable), for good.)
    pub(crate) fn close(&self) {
        drop(self.shards.swap(None));
        self.name_space.names.synchronize();
    }

    /// Whether something may come into the tree. What is permitted with a name locked stands until it is unlocked.
    ///
    /// # Errors
    /// ESTALE once the tree is being taken down: nobody would let go of what came.
    #[inline]
    pub(crate) fn expect_open(&self) -> Result<()> {
        if self.shards.is_none() { Err(Error::Stale) } else { Ok(()) }
    }

    /// The shard of this thread.
    ///
    /// # Errors
    /// ESTALE once the tree is being taken down.
    pub(crate) fn shard(&self, guard: &Guard) -> Result<Arc<Shard>> {
        let shards = self.shards.load(guard).ok_or(Error::Stale)?.to_ref();
        Ok(shards.of_thread(stripe_hint()).clone())
    }

    /// The lock that a name has of its own. In a tree with a backing each has one from the start.
    pub(crate) fn key(&self, dir_ino: u64, hash: u64) -> NameKey {
        NameKey { dir: dir_ino ^ self.id << 48, hash }
    }
}

impl Drop for SuperBlock {
    fn drop(&mut self) {
        // Files that were open when the tree was taken down: nobody else is left to say that they are closed.
        let forgotten = self.forgotten.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(backing) = self.driver.backing() {
            std::mem::take(forgotten).into_iter().for_each(|ino| backing.forget(ino));
        }
    }
}

/// Keys from the standard library's own random state: the operating system's entropy, with no `unsafe` and no crate.
fn random_keys() -> (u64, u64) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let key = || RandomState::new().build_hasher().finish();
    (key(), key())
}

/// All shards of a superblock. They hold the superblock, and it holds them until it is taken down.
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

/// A part of a superblock's bookkeeping, on lines of its own.
#[repr(align(128))]
pub(crate) struct Shard {
    pub sb: Arc<SuperBlock>,
    /// The next number of this shard's run, less [`ROOT_INO`].
    /// What one thread writes: on lines of its own, since every walk reads `Shard::sb`.
    next: Padded<AtomicU64>,
}

const _: () = assert!(std::mem::offset_of!(Shard, next).abs_diff(std::mem::offset_of!(Shard, sb)) >= 128);

impl Shard {
    pub(crate) fn new(sb: Arc<SuperBlock>) -> Self {
        Self { sb, next: Padded(AtomicU64::new(0)) }
    }

    /// Where it and its superblock lie.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("Shard", self));
        parts.push(Part::of("SuperBlock", &*self.sb));
        parts.push(Part::of("NameSpace", &*self.sb.name_space));
        let locks = self.sb.name_space.names.addresses();
        parts.push(Part { name: "a stripe of NameLocks", address: locks.start, bytes: locks.len() });
        parts.push(Part::of("NameSpace.permissions", &self.sb.name_space.permissions));
        parts.push(Part::of("NameSpace.topology", &self.sb.name_space.topology));
        parts.push(Part::of("NameSpace.rename_seq", &self.sb.name_space.rename_seq));
        parts.push(Part::of("NameSpace.next_run", &self.sb.name_space.next_run));
    }

    /// A number that no inode of this name space has had.
    ///
    /// Runs begin at multiples of their length, and the number that begins a run is handed out by whoever fetched the
    /// run: so a `next` that is such a multiple says that there is no run, or none any more.
    pub(crate) fn next_ino(&self) -> u64 {
        // Relaxed: the numbers order nothing.
        let mut next = self.next.0.load(Ordering::Relaxed);
        loop {
            let fetched = next.is_multiple_of(INO_RUN);
            let raw = if fetched { self.sb.name_space.next_run.fetch_add(INO_RUN, Ordering::Relaxed) } else { next };
            // A thread of the same shard that was quicker leaves a fetched run unused: there are enough.
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
    fn numbers_are_handed_out_once_and_the_root_is_the_first() {
        let sb = SuperBlock::new(Box::new(Nothing), Arc::new(NameSpace::new()));
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
