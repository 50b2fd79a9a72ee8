//! `NameLocks`: striped locks for (directory, name).
//!
//! A thread that changes a name holds the lock of its *stripe*; readers hold none. The idea is that
//! of the parallel directory operations patch for tmpfs (2005): a lock for each hashed name instead
//! of one for each directory. That patch could lock one stripe twice, when both names of a rename
//! were hashed to it, and it unlocked by the name's hash, which had to be computed in the same way
//! again. Here one function takes all names of an operation, and *sorts and deduplicates them by
//! stripe*. The guard holds what was locked. All threads take stripes in the same order (by index),
//! so they cannot wait for each other in a circle (P4).

use crate::{
    facade::{self, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering},
    locks::{
        lock_order::{self, Held, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

/// The most names that one operation locks: two names of a rename, and an inode that loses a name
/// in a tree with a backing.
pub const MAX_NAMES: usize = 3;

/// The key of a name's lock: the directory's identity and the (keyed) hash of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameKey {
    /// The directory's number, unique among the directories that share these locks.
    pub dir: u64,
    /// The hash of the name. Keyed, if users who choose names may want stripes to collide.
    pub hash: u64,
}

/// One lock on an aligned pair of cache lines, since CPUs prefetch lines in pairs.
#[repr(align(128))]
struct Stripe {
    mutex: Mutex<()>,
    /// A thread waits for this stripe in `synchronize`, and newcomers leave the lock to it. Mutexes
    /// are not fair: a thread that releases one and takes it again at once could starve the waiting
    /// thread. A hint, which orders nothing.
    awaited: AtomicBool,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Stripe>() == 128 && align_of::<Stripe>() == 128);

impl Stripe {
    /// Its lock, if it is free and no thread synchronizes.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        if self.awaited.load(Ordering::Relaxed) { None } else { facade::try_lock(&self.mutex) }
    }
}

/// Striped locks for (directory, name).
pub struct NameLocks {
    /// A power of two of them.
    stripes: Box<[Stripe]>,
    /// Held by the thread that synchronizes.
    synchronizing: Mutex<()>,
    /// How many synchronizations are complete.
    synchronized: AtomicU64,
}

/// A stripe that newcomers leave to a synchronizing thread, until this is dropped.
struct Awaited<'a>(&'a Stripe);

impl<'a> Awaited<'a> {
    fn new(stripe: &'a Stripe) -> Self {
        stripe.awaited.store(true, Ordering::Relaxed);
        Self(stripe)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.store(false, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for NameLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameLocks").field("stripes", &self.stripes.len()).finish()
    }
}

/// The locks of one operation's names. Dropping it unlocks them.
///
/// Tied to its thread. A panic while it is held unlocks, and poisons nothing: the data that the
/// names guard is consistent by its own means.
#[derive(Debug)]
#[must_use = "the names are locked only while this lives"]
pub struct NameGuard<'a> {
    _locked: Locked<'a>,
    // Dropped after the locks that it stands for.
    _held: Held,
}

/// The locked stripes. Nearly all operations lock one stripe or two, and pay for no more.
#[derive(Debug)]
#[expect(dead_code, reason = "held for the sake of being dropped")]
enum Locked<'a> {
    None,
    One(MutexGuard<'a, ()>),
    Two(MutexGuard<'a, ()>, MutexGuard<'a, ()>),
    More(Box<[Option<MutexGuard<'a, ()>>; MAX_NAMES]>),
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Locked<'_>>() <= 32, "moved by value to the caller");

impl NameLocks {
    /// The most locks that there can be.
    pub const STRIPES_MAX: usize = 1 << 20;

    /// At least `stripes` locks, rounded up to a power of two; 128 bytes each.
    #[must_use]
    pub fn new(stripes: usize) -> Self {
        let count = stripes.clamp(1, Self::STRIPES_MAX).next_power_of_two();
        let stripe = |_| Stripe { mutex: Mutex::new(()), awaited: AtomicBool::new(false) };
        Self {
            stripes: (0..count).map(stripe).collect(),
            synchronizing: Mutex::new(()),
            synchronized: AtomicU64::new(0),
        }
    }

    /// As many as this machine's cores need: 64 for each, 4096 (512 KiB) at most.
    ///
    /// With 64 stripes for each of `n` threads that change names at the same time, the chance that
    /// an operation meets another thread at a stripe is less than 1 in 64.
    #[must_use]
    pub fn for_this_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new((64 * cores).min(4096))
    }

    /// The addresses of the locks, for tools that attribute addresses.
    #[must_use]
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let range = self.stripes.as_ptr_range();
        range.start.addr()..range.end.addr()
    }

    /// Locks up to [`MAX_NAMES`] names, and waits for the holders of their stripes. One free name
    /// takes 12 ns, on a machine where a bare `std` mutex takes 11 ns; two take 24 ns. More than
    /// two allocate.
    ///
    /// # Panics
    /// If there are more names. In debug builds also if this thread holds a reclamation guard, or a
    /// lock that comes later in the order (name locks included: an operation takes all its names at
    /// once).
    #[inline]
    pub fn lock(&self, names: &[NameKey]) -> NameGuard<'_> {
        assert_unpinned("a name lock");
        let held = lock_order::enter(LockClass::Names);
        lock_stats::acquired(LockClass::Names);
        if names.iter().any(|&name| self.stripes[self.stripe(name)].awaited.load(Ordering::Relaxed)) {
            // This thread holds no name lock yet, so the synchronizing thread cannot wait for it.
            drop(lock_stats::lock(&self.synchronizing, LockClass::Names));
        }
        match self.take(names, |stripe| Some(lock_stats::lock(&stripe.mutex, LockClass::Names))) {
            Some(locked) => NameGuard { _locked: locked, _held: held },
            None => unreachable!("a thread that waits gets every lock"),
        }
    }

    /// Like [`NameLocks::try_lock`] for one name, as most operations need, without copying more
    /// than one lock.
    #[inline]
    #[must_use]
    pub fn try_lock_one(&self, name: NameKey) -> Option<NameGuard<'_>> {
        let held = lock_order::entered_without_waiting(LockClass::Names);
        let locked = self.stripes[self.stripe(name)].try_lock()?;
        lock_stats::acquired(LockClass::Names);
        Some(NameGuard { _locked: Locked::One(locked), _held: held })
    }

    /// Locks up to [`MAX_NAMES`] names if all of their stripes are free. Does not wait, so it may
    /// be called under a reclamation guard and in any lock order.
    ///
    /// # Panics
    /// If there are more names.
    #[inline]
    #[must_use]
    pub fn try_lock(&self, names: &[NameKey]) -> Option<NameGuard<'_>> {
        let held = lock_order::entered_without_waiting(LockClass::Names);
        let locked = self.take(names, Stripe::try_lock)?;
        lock_stats::acquired(LockClass::Names);
        Some(NameGuard { _locked: locked, _held: held })
    }

    /// Returns when every thread that holds one of these locks now has released it. Other threads
    /// may have taken it meanwhile, and see what this thread has done before
    /// ([`crate::Revocable`]). It takes as long as the slowest holder, or twice that if other
    /// threads synchronize too. Newcomers cannot prolong the wait.
    ///
    /// # Panics
    /// As [`NameLocks::lock`].
    pub fn synchronize(&self) {
        assert_unpinned("a name lock");
        let _held = lock_order::enter(LockClass::Names);
        // Release: a thread that synchronizes after this has seen what this thread did. Concurrent
        // callers share: if a second synchronization completes from here on, it has begun after
        // this.
        let ticket = self.synchronized.fetch_add(0, Ordering::Release);
        let _passing = lock_stats::lock(&self.synchronizing, LockClass::Names);
        // Acquire: pairs with the tickets that were taken before it. The mutex orders what the
        // other synchronizing threads did.
        if self.synchronized.load(Ordering::Acquire) < ticket + 2 {
            self.wait_for_holders();
            self.synchronized.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a thread waits in [`NameLocks::synchronize`], about now: for tests.
    #[must_use]
    pub fn awaited(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.awaited.load(Ordering::Relaxed))
    }

    /// Takes each lock and releases it. Marks all locks that are not free before it waits for the
    /// first.
    fn wait_for_holders(&self) {
        let busy = |stripe: &&Stripe| facade::try_lock(&stripe.mutex).is_none();
        let awaited: Vec<Awaited<'_>> = self.stripes.iter().filter(busy).map(Awaited::new).collect();
        for stripe in awaited {
            drop(lock_stats::lock(&stripe.0.mutex, LockClass::Names));
        }
    }

    /// Takes the stripes of `names` in their order, each once. Returns `None` if `lock` refuses
    /// one. If it refuses or unwinds, the stripes locked so far are unlocked.
    #[inline]
    fn take<'a>(
        &'a self,
        names: &[NameKey],
        lock: impl Fn(&'a Stripe) -> Option<MutexGuard<'a, ()>>,
    ) -> Option<Locked<'a>> {
        let lock = |stripe: usize| lock(&self.stripes[stripe]);
        match *names {
            [] => Some(Locked::None),
            [name] => Some(Locked::One(lock(self.stripe(name))?)),
            [a, b] => {
                let (a, b) = (self.stripe(a), self.stripe(b));
                let first = lock(a.min(b))?;
                Some(if a == b { Locked::One(first) } else { Locked::Two(first, lock(a.max(b))?) })
            }
            _ => self.take_more(names, &lock),
        }
    }

    #[cold]
    fn take_more<'a>(
        &'a self,
        names: &[NameKey],
        lock: &dyn Fn(usize) -> Option<MutexGuard<'a, ()>>,
    ) -> Option<Locked<'a>> {
        let (stripes, count) = self.plan(names);
        let mut locked = Box::new([const { None }; MAX_NAMES]);
        for (place, &stripe) in locked.iter_mut().zip(&stripes[..count]) {
            *place = Some(lock(stripe)?);
        }
        Some(Locked::More(locked))
    }

    /// The stripe of a name.
    #[inline]
    fn stripe(&self, name: NameKey) -> usize {
        // Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4): the high bits
        // depend on all bits. The directory has a factor of its own, so that (d, h) and (h, d)
        // differ.
        let mixed = (name.hash ^ name.dir.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as usize & (self.stripes.len() - 1)
    }

    /// The stripes to lock, in the order to lock them, each once.
    fn plan(&self, names: &[NameKey]) -> ([usize; MAX_NAMES], usize) {
        assert!(names.len() <= MAX_NAMES, "{} names in one operation", names.len());
        let mut stripes = [0; MAX_NAMES];
        let mut count = 0;
        for &name in names {
            let stripe = self.stripe(name);
            // Insertion into a sorted array without duplicates: for so few, cheaper than a sort.
            let at = stripes[..count].partition_point(|&s| s < stripe);
            if stripes[..count].get(at) != Some(&stripe) {
                stripes.copy_within(at..count, at + 1);
                stripes[at] = stripe;
                count += 1;
            }
        }
        (stripes, count)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
