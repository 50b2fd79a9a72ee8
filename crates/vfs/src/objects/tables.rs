//! The tables of a superblock. Most of their operations are on the floor of the caches.

use std::{
    cmp::Ordering as CmpOrdering,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use pando_sync::{Counted, Counter, Departures, Padded, Striped, lock};

use crate::{
    VfsOptions,
    objects::{by_number::ByNumber, dentry::Dentry},
};

/// A function that asks a server's clients to forget the inodes with these numbers, if they do not
/// use them ([`Exports::prune_with`](crate::Exports::prune_with)).
pub type Pruner = dyn Fn(&[u64]) + Send + Sync;

/// The inode cache of a tree with a backing.
pub(crate) struct InodeCache {
    /// The entries. The note says whether an entry is leaving the table.
    pub table: ByNumber<AtomicBool>,
    /// The position at which the next search for idle inodes begins (a clock hand). A thread claims
    /// the inodes that it looks at by moving it.
    pub hand: AtomicU64,
    /// Bytes that cached inodes have beside their fixed size: striped atomic counters.
    pub extra_bytes: Striped<Counter>,
    /// The most inodes that stay cached for later. Immutable.
    pub inodes_max: usize,
    /// The most bytes that they take. Immutable.
    pub bytes_max: usize,
    /// Whether more is cached than that. Atomic: a hint.
    pub is_full: AtomicBool,
    /// Asks a server's clients to forget numbers.
    pub pruner: RwLock<Weak<Pruner>>,
    /// How many inodes may be added without a search for idle ones, because the last search was not
    /// worth its time. Atomic: a hint.
    pub unsearched: AtomicUsize,
    /// The inodes that were evicted, and those that the backing was told to forget. An answer that
    /// was requested before may be older than what was cached, or the backing may not know the
    /// number any more.
    pub departures: Departures,
}

/// The inodes whose numbers were handed out to a server. The note counts how often each was. A
/// count of `u64::MAX` means that the entry is about to leave the table; zero means that only the
/// tree's own name keeps it.
pub(crate) struct Nodes {
    pub table: ByNumber<AtomicU64>,
}

impl InodeCache {
    pub(crate) fn new(key: (u64, u64), options: &VfsOptions) -> Self {
        Self {
            table: ByNumber::new(key),
            hand: AtomicU64::new(0),
            extra_bytes: Striped::default(),
            inodes_max: options.cached_inodes,
            bytes_max: options.cached_bytes,
            is_full: AtomicBool::new(false),
            pruner: RwLock::new(Weak::<fn(&[u64])>::new()),
            unsearched: AtomicUsize::new(0),
            departures: Departures::new(),
        }
    }
}

/// The bytes of a cached inode: with its dentry, the entries of both in tables, and what the driver
/// for a directory of the host has (`pando bench footprint host=PATH`, with names of 16 bytes).
const INODE_BYTES: usize = 900;

impl InodeCache {
    /// Counts bytes that a cached inode has beside its fixed size: so many before, and so many now.
    pub(crate) fn count_extra(&self, before: usize, now: usize) {
        let mine = self.extra_bytes.mine();
        let contended = match now.cmp(&before) {
            CmpOrdering::Equal => return,
            CmpOrdering::Greater => mine.add((now - before) as u64),
            CmpOrdering::Less => mine.sub((before - now) as u64),
        };
        if contended {
            self.extra_bytes.note_contention();
        }
        if now > before {
            self.note_size();
        }
    }

    /// Notes whether the cache is full.
    pub(crate) fn note_size(&self) {
        let is_full = self.excess() > 0;
        // Loaded first: as a rule it stays as it is, and then nothing is written.
        if self.is_full.load(Ordering::Relaxed) != is_full {
            self.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// How many inodes must be evicted before the cache is within its limits.
    pub(crate) fn excess(&self) -> usize {
        let inodes = self.table.len();
        let extra = usize::try_from(Counter::estimate(self.extra_bytes.all())).unwrap_or(usize::MAX);
        let bytes = inodes.saturating_mul(INODE_BYTES).saturating_add(extra);
        let too_many = inodes.saturating_sub(self.inodes_max);
        let average = bytes / inodes.max(1);
        too_many.max(bytes.saturating_sub(self.bytes_max).div_ceil(average.max(1)).min(inodes))
    }
}

/// Two numbers seldom share the lock of a part. One bit for each of these fits into a word.
const FORGET_PARTS: usize = 64;

/// Numbers of released inodes that the backing must still be told to forget. A number that is
/// loaded again is removed.
pub(crate) struct Forgets {
    /// Each part is guarded by its own mutex, a leaf.
    parts: [Padded<Mutex<BTreeSet<u64>>>; FORGET_PARTS],
    /// A bit for each part: whether it may have numbers that no thread is about to send. Atomic,
    /// with release and acquire.
    strays: AtomicU64,
}

impl Default for Forgets {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Padded::default()), strays: AtomicU64::new(0) }
    }
}

impl Forgets {
    const fn part_of(ino: u64) -> usize {
        ino as usize % FORGET_PARTS
    }

    fn part(&self, ino: u64) -> MutexGuard<'_, BTreeSet<u64>> {
        lock(&self.parts[Self::part_of(ino)].0)
    }

    /// Adds a number. The caller sends it, or calls [`Forgets::leave_to_others`].
    pub(crate) fn add(&self, ino: u64) {
        self.part(ino).insert(ino);
    }

    /// The caller will not send a number that it has added. Some other thread is to do it.
    pub(crate) fn leave_to_others(&self, ino: u64) {
        self.strays.fetch_or(1 << Self::part_of(ino), Ordering::Release);
    }

    /// Removes a number. True if it was there.
    pub(crate) fn remove(&self, ino: u64) -> bool {
        self.part(ino).remove(&ino)
    }

    /// All numbers that no thread may be about to send. From then on the caller is.
    pub(crate) fn take_strays(&self) -> Vec<u64> {
        // Loaded first: as a rule there are none, and then nothing is written.
        if self.strays.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let strays = self.strays.swap(0, Ordering::AcqRel);
        self.numbers_in(|part| strays >> part & 1 == 1)
    }

    /// All numbers.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.numbers_in(|_| true)
    }

    fn numbers_in(&self, wanted: impl Fn(usize) -> bool) -> Vec<u64> {
        let parts = self.parts.iter().enumerate().filter(|(index, _)| wanted(*index));
        parts.flat_map(|(_, part)| lock(&part.0).iter().copied().collect::<Vec<_>>()).collect()
    }
}

impl Nodes {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: ByNumber::new(key) }
    }
}

/// The cached aliases of a tree with a backing. Eviction finds them here, because no other table
/// has them.
#[derive(Default)]
pub(crate) struct CachedLinks {
    /// The last number that was given to an alias. Atomic: a single independent value.
    pub next: AtomicU64,
    /// A leaf of the lock tree. An alias is added and removed under its name lock, too.
    pub table: Mutex<LinkTable>,
}

#[derive(Default)]
pub(crate) struct LinkTable {
    /// The aliases by number. The table holds a reference to each.
    pub links: BTreeMap<u64, Counted<Dentry>>,
    /// The number after which the next search for idle aliases begins (a clock hand).
    pub hand: u64,
}
