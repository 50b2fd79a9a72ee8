//! Retire lists: retired objects in bags, and the grace period that each bag waits for.
//!
//! A list belongs to one thread at a time. Its owner fills it. Any thread may take expired bags
//! from it and free them. When the owner ends, the list keeps its bags, and other threads free them
//! (`visit` in `thread.rs`) or the next owner does.
//!
//! A bag is in one place at a time: in the hands of the thread that fills it, in a list's queue, or
//! in an [`Expired`]. So each object is freed exactly once. The queue's lock makes each move
//! exclusive.

use std::collections::VecDeque;

use super::filling::Filling;
use crate::{
    facade::{self, AtomicBool, AtomicI64, AtomicUsize, Mutex, Ordering},
    tuning::RETIRE_LISTS,
};

/// The number of the list that threads without a list of their own share.
pub(super) const SHARED: usize = RETIRE_LISTS;

/// A retired object: its address, its size in bytes, and the function that frees it.
#[derive(Clone, Copy)]
pub(super) struct Retired(pub(super) *mut (), pub(super) usize, pub(super) unsafe fn(*mut ()));

// SAFETY: the contract of `retire` allows freeing on any thread.
unsafe impl Send for Retired {}

/// Objects that were retired before the bag was put into a list.
pub(super) struct Bag {
    /// The grace period that the bag waits for.
    pub(super) period: u64,
    pub(super) items: Vec<Retired>,
}

/// A bag whose grace period is over. It is being freed until it is dropped. Objects that a panic
/// keeps from being freed go back to the list.
pub(super) struct Expired<'a> {
    list: &'a RetireList,
    bag: Bag,
}

impl<'a> Expired<'a> {
    /// The queue of `list`, from which the bag is taken, is locked: a thread that finds the queue
    /// empty sees this bag counted.
    fn new(list: &'a RetireList, bag: Bag) -> Self {
        // Relaxed: the queue's lock.
        list.freeing.fetch_add(1, Ordering::Relaxed);
        Self { list, bag }
    }

    /// Frees the objects with `free`. Objects that this thread (`thread`, unless its locals are
    /// gone) retires meanwhile are put into the same list.
    fn free(mut self, thread: Option<&Filling<'a>>, free: &mut impl FnMut(Retired)) {
        // Dropped before `self`: what was retired is in the list before the list is at rest.
        let _redirected = thread.map(|filling| filling.redirect(self.list));
        while let Some(retired) = self.bag.items.pop() {
            free(retired);
        }
    }
}

impl Drop for Expired<'_> {
    fn drop(&mut self) {
        if !self.bag.items.is_empty() {
            let rest = Bag { period: self.bag.period, items: std::mem::take(&mut self.bag.items) };
            facade::lock(&self.list.queue).push_front(rest);
        }
        // Release: pairs with the acquire in `is_at_rest`.
        self.list.freeing.fetch_sub(1, Ordering::Release);
    }
}

/// One retire list, on cache lines of its own.
#[cfg_attr(not(loom), repr(align(128)))]
pub(super) struct RetireList {
    /// Bytes that the owner has retired less those that it has freed. Only the sum over all lists
    /// has a meaning. Atomic: a statistic.
    pub(super) bytes: AtomicI64,
    /// Whether a thread owns the list. Atomic: claimed with acquire, released with release.
    pub(super) owned: AtomicBool,
    /// How many bags of this list are being freed. Raised under the queue's lock.
    freeing: AtomicUsize,
    /// How many bags the owner has put here of what it retired itself. Written by the owner alone;
    /// that of the shared list by all threads without a list of their own.
    pub(super) filled: AtomicUsize,
    /// The waiting bags, the oldest first. A thread neither waits nor retires while it holds the
    /// lock.
    pub(super) queue: Mutex<VecDeque<Bag>>,
}

impl RetireList {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            bytes: AtomicI64::new(0),
            owned: AtomicBool::new(false),
            freeing: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            bytes: AtomicI64::new(0),
            owned: AtomicBool::new(false),
            freeing: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    /// Appends a bag that waits for `period`, the next that begins after its objects were retired.
    pub(super) fn push(&self, period: u64, items: Vec<Retired>) {
        facade::lock(&self.queue).push_back(Bag { period, items });
    }

    /// Counts a bag of what the threads that use list `number`, which is this one, have retired.
    pub(super) fn count_filled(&self, number: usize) {
        // Relaxed: a hint for `Idle`, which tolerates a late view.
        if number == SHARED {
            self.filled.fetch_add(1, Ordering::Relaxed);
        } else {
            self.filled.store(self.filled.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Takes the oldest bag if it waits for `period` or for an earlier one.
    fn take_expired(&self, period: u64) -> Option<Expired<'_>> {
        let mut queue = facade::lock(&self.queue);
        if queue.front()?.period > period {
            return None;
        }
        queue.pop_front().map(|bag| Expired::new(self, bag))
    }

    /// Frees bags that wait for `period` or for an earlier one, `most` of them at most. Returns how
    /// many it freed. Objects that are retired by this wait in the same list. So a thread that
    /// waits until all of it is freed can see it, and no thread gets the retired objects of another
    /// to wait for.
    pub(super) fn free_expired<'a>(
        &'a self,
        period: u64,
        most: usize,
        thread: Option<&Filling<'a>>,
        mut free: impl FnMut(Retired),
    ) -> usize {
        let take = || self.take_expired(period);
        std::iter::from_fn(take).take(most).map(|expired| expired.free(thread, &mut free)).count()
    }

    /// How many bags wait.
    #[cfg(not(loom))]
    pub(super) fn waiting(&self) -> usize {
        facade::lock(&self.queue).len()
    }

    /// Whether no bag of this list is being freed. Acquire: the bags that were have been freed
    /// then.
    pub(super) fn is_at_rest(&self) -> bool {
        self.freeing.load(Ordering::Acquire) == 0
    }

    /// Whether nothing waits, and everything that waited is freed.
    pub(super) fn is_done(&self) -> bool {
        // Both under the queue's lock. A thread that frees a bag may put another one here before it
        // is no longer counted. Looked at one after the other, the queue could be seen empty before
        // that, and the count be seen down after it.
        let queue = facade::lock(&self.queue);
        queue.is_empty() && self.is_at_rest()
    }
}

/// All retire lists of a process.
pub(super) struct RetireLists {
    lists: [RetireList; RETIRE_LISTS + 1],
    /// How many lists were ever owned: they come first.
    used: AtomicUsize,
}

impl RetireLists {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { lists: [const { RetireList::new() }; RETIRE_LISTS + 1], used: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { lists: std::array::from_fn(|_| RetireList::new()), used: AtomicUsize::new(0) }
    }

    /// The list of this number.
    pub(super) fn get(&self, number: usize) -> &RetireList {
        &self.lists[number]
    }

    /// How many of the lists that can be owned were ever owned.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The lists that may hold something. The shared one comes last.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RetireList> {
        // Relaxed: a thread that does not see the newest list finds it the next time.
        self.lists[..self.used()].iter().chain([&self.lists[SHARED]])
    }

    /// A list for a thread that has none, or the shared one.
    pub(super) fn claim(&self) -> usize {
        // Acquire: pairs with the release of the previous owner, whose account is continued.
        let claim =
            |list: &RetireList| list.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let number = self.lists[..RETIRE_LISTS].iter().position(claim).unwrap_or(SHARED);
        if number != SHARED {
            self.used.fetch_max(number + 1, Ordering::Relaxed);
        }
        number
    }

    /// Adds to the bytes that wait, for the thread that owns list `number`.
    pub(super) fn account(&self, number: usize, delta: i64) {
        let bytes = &self.lists[number].bytes;
        // Relaxed: a statistic. Its readers tolerate a late view. A list that is owned is written
        // by its owner alone.
        if number == SHARED {
            bytes.fetch_add(delta, Ordering::Relaxed);
        } else {
            bytes.store(bytes.load(Ordering::Relaxed).wrapping_add(delta), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
