//! `SplitTable`: one list that is a hash table, and an order that never changes.
//!
//! The list is sorted by *position*: the top 51 bits of the hash, then 12 bits that distinguish
//! equal hashes. Its bucket heads, the *sentinels*, are links of their own at fixed keys. So a
//! table grows or shrinks without moving an element (Shalev & Shavit, *Split-ordered lists:
//! lock-free extensible hash tables*, 2006; there the order is by bit-reversed hash, and buckets
//! are chosen by its low bits. Here the order is by the hash itself, and buckets are chosen by its
//! high bits, which is the same with fewer steps). The list is that of Harris (*A pragmatic
//! implementation of non-blocking linked lists*, 2001), as Michael made it reclaimable (*High
//! performance dynamic lock-free hash tables and list-based sets*, 2002).
//!
//! The difficulties, and where they are solved:
//!
//! 1. A reader writes nothing, yet links are unlinked under it: `raw`, fact F2.
//! 2. Two threads insert one name: elements of equal hash form a *run*, and an element is only ever
//!    appended to it. Both threads want the same predecessor, and the loser scans again.
//! 3. A cookie is valid for ever: a position is fixed at insertion. Iteration resumes *after* a
//!    number, whether or not an element has it.
//! 4. Growth without moving or waiting: `buckets`, segments of sentinels that are linked on first
//!    use.
//! 5. The sentinel is one cache miss, and the element another: `index`, the addresses of the
//!    elements in few cache lines.
//! 6. Shrinking while other threads use the buckets: `sentinel`, each of them has a state, and the
//!    last user retires the segment.
//!
//! **Why a look-up that finds nothing is right** (there is an instant of the call at which the name
//! was absent): take the last link of the run that the reader visited. By F2 there is an instant at
//! which that link was in the list and the run ended behind it. An element of that name that was in
//! the list at that instant would be before that link. Elements are appended to runs, so it was
//! inserted before that link was, and it was in the list when the reader passed there.
//!
//! **Why a name is inserted once**: an insert does its compare-and-swap on the last link of the run
//! that it has seen, and expects that link to be unmarked and still last. Another insert of the
//! name since then would have been appended behind that link, or behind one that the walk saw
//! unmarked and that was marked since. Then the walk's own predecessor is gone, or its `next` has
//! changed, and the compare-and-swap fails.

mod buckets;
mod index;
mod raw;
mod sentinel;

use std::{fmt, marker::PhantomData, ops::Deref};

pub use self::buckets::IndexAddress;
use self::{
    buckets::Buckets,
    index::Index,
    raw::{LOW, Link, Walk},
};
use crate::{
    facade::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence_after_exchange},
    reclaim::Guard,
    refcount::counted::{Counted, Object, Shared},
};

/// Distinguishers begin here: positions 0 to 2 belong to readdir (the start, `.` and `..`).
const FIRST: u64 = 3;
/// The last distinguisher.
const LAST: u64 = LOW >> 1;

/// An element of a table: a value and its link. The caller makes it, so that others can point to it
/// before it is inserted.
///
/// Seventeen bytes or more: sixteen of link, and the value.
#[repr(C)]
pub struct Node<T> {
    link: Link,
    value: T,
}

impl<T: Send + Sync + 'static> Object for Node<T> {}

/// A node that was never inserted, and a reference to it. Each node has one of these, so it is
/// inserted once.
pub struct Detached<T: Send + Sync + 'static>(Counted<Node<T>>);

impl<T: Send + Sync + 'static> Detached<T> {
    /// A node that is in no table.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Counted::new(Node { link: Link::detached(), value }))
    }

    /// A node that is in no table, in one allocation with an object that is mostly read after it:
    /// see [`Counted::pair`]. Also returns a reference to the node, and one to the object.
    #[inline]
    #[must_use]
    pub fn pair<S: Object>(
        mate: impl FnOnce() -> S,
        value: impl FnOnce(Counted<S>) -> T,
    ) -> (Self, Counted<Node<T>>, Counted<S>) {
        let ([node, reference], mate) = Counted::pair(mate, |mate| Node { link: Link::detached(), value: value(mate) });
        (Self(node), reference, mate)
    }

    /// Another reference, for an object that is to point to the node.
    #[must_use]
    pub fn reference(&self) -> Counted<Node<T>> {
        self.0.clone()
    }

    /// For a node that will not be inserted.
    #[must_use]
    pub fn into_reference(self) -> Counted<Node<T>> {
        self.0
    }
}

impl<T: Send + Sync + 'static> Deref for Detached<T> {
    type Target = Node<T>;
    fn deref(&self) -> &Node<T> {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Node<T> {
    /// The 63-bit position. It is zero before insertion, and fixed from then on, also after
    /// removal. Three or more.
    ///
    /// While another thread is inserting this node, it may be either.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        // Relaxed: a thread that found the node in the table has acquired what was written before.
        self.link.key.load(Ordering::Relaxed) >> 1
    }

    /// Whether the node has been removed (or never inserted). A hint: it may be removed the moment
    /// after.
    #[inline]
    #[must_use]
    pub fn is_removed(&self) -> bool {
        raw::is_marked(self.link.next.load(Ordering::Acquire))
    }
}

impl<T> Deref for Node<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The result of [`SplitTable::insert`].
pub struct Inserted<'g, T: Send + Sync + 'static> {
    /// The node, now in the table.
    pub node: Shared<'g, Node<T>>,
    /// Whether another thread changed the list at the same place: for [`SplitTable::adapt`].
    pub contended: bool,
}

impl<T: Send + Sync + 'static> fmt::Debug for Inserted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inserted").field("position", &self.node.position()).finish_non_exhaustive()
    }
}

/// Why [`SplitTable::insert`] inserted nothing.
pub enum Rejected<'g, T: Send + Sync + 'static> {
    /// There is such an element.
    Exists {
        /// The element that is there.
        found: Shared<'g, Node<T>>,
        /// The caller's node, not inserted. It may be tried again.
        node: Detached<T>,
    },
    /// Equal hashes have used up their 4093 positions. (With a keyed hash of 51 good bits this does
    /// not happen. An element that is removed and inserted again takes a new position while others
    /// of its hash remain.)
    Exhausted {
        /// The caller's node, not inserted.
        node: Detached<T>,
    },
}

impl<T: Send + Sync + 'static> fmt::Debug for Rejected<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { found, .. } => {
                f.debug_struct("Exists").field("position", &found.position()).finish_non_exhaustive()
            }
            Self::Exhausted { .. } => f.debug_struct("Exhausted").finish_non_exhaustive(),
        }
    }
}

/// The result of [`SplitTable::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Whether this call removed the node.
    pub removed: bool,
    /// Whether another thread changed the list at the same place: for [`SplitTable::adapt`].
    pub contended: bool,
}

/// A lock-free hash table. Look-ups write nothing, and elements keep their order for life.
///
/// It does not count its elements, since a shared count would be a cache line that all threads
/// write. A caller that counts them passes the number to [`SplitTable::adapt`].
pub struct SplitTable<T: Send + Sync + 'static> {
    /// The first link. Owns all links.
    head: AtomicPtr<Link>,
    /// Null while a plain list suffices; tagged as in [`Buckets::published`]. Guarded by `resizing`
    /// for writers.
    buckets: AtomicPtr<Buckets>,
    /// Reports of contention since the last growth: an independent statistic.
    contention: AtomicUsize,
    /// A try-lock: no thread ever waits for it.
    resizing: AtomicBool,
    _owns: PhantomData<Counted<Node<T>>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SplitTable<u64>>() <= 32);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Node<u64>>() == 24);

impl<T: Send + Sync + 'static> SplitTable<T> {
    /// An empty table. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            head: AtomicPtr::new(std::ptr::null_mut()),
            buckets: AtomicPtr::new(std::ptr::null_mut()),
            contention: AtomicUsize::new(0),
            resizing: AtomicBool::new(false),
            _owns: PhantomData,
        }
    }

    /// The element of this hash for which `same` is true. Writes nothing.
    #[inline]
    pub fn get<'g>(&self, hash: u64, same: impl Fn(&T) -> bool, guard: &'g Guard) -> Option<Shared<'g, Node<T>>> {
        let indexed = self.load_index(guard).and_then(|index| self.get_indexed(index, hash, &same, guard));
        indexed.or_else(|| self.scan(hash, same, guard))
    }

    /// The element of this hash for which `same` is true, if the index has it.
    #[inline]
    fn get_indexed<'g>(
        &self,
        index: Index<'_>,
        hash: u64,
        same: impl Fn(&T) -> bool,
        guard: &'g Guard,
    ) -> Option<Shared<'g, Node<T>>> {
        index.find(hash, guard, |here| {
            raw::prefetch_element(here);
            // SAFETY: the index says that it was in the list, and that it waits for the guard.
            let (link, next) = unsafe {
                let link = raw::link_at::<T>(here, guard);
                (link, raw::next_of::<T>(here, link))
            };
            let key = link.key.load(Ordering::Relaxed);
            if key & !LOW != hash & !LOW || raw::is_marked(next) {
                return None;
            }
            // SAFETY: as above. The index has only elements.
            let node = unsafe { raw::element::<T>(here) };
            same(&node.to_ref().value).then_some(node)
        })
    }

    /// Like [`SplitTable::get`], for a caller that is going to insert or remove the element. It
    /// takes the path that the change will take, and so brings its cache lines near.
    #[inline]
    pub fn get_for_update<'g>(
        &self,
        hash: u64,
        same: impl Fn(&T) -> bool,
        guard: &'g Guard,
    ) -> Option<Shared<'g, Node<T>>> {
        if let Some(index) = self.load_index(guard) {
            index.prefetch(hash);
        }
        self.scan(hash, same, guard)
    }

    /// The element of this hash for which `same` is true, by a walk from the sentinel.
    #[inline]
    fn scan<'g>(&self, hash: u64, same: impl Fn(&T) -> bool, guard: &'g Guard) -> Option<Shared<'g, Node<T>>> {
        let (first, last) = (hash & !LOW, hash | LOW);
        let mut next = self.start(hash, guard).load(Ordering::Acquire);
        loop {
            // A mark here says only that the previous link is removed. By F2 the walk may continue.
            let here = raw::unmarked(next);
            if here.is_null() {
                return None;
            }
            raw::prefetch_element(here);
            // SAFETY: read from a link that was found in the list, or from the start, under the
            // guard.
            let link = unsafe { raw::link_at::<T>(here, guard) };
            let key = link.key.load(Ordering::Relaxed);
            if key > last {
                return None;
            }
            // SAFETY: found just now.
            next = unsafe { raw::next_of::<T>(here, link) };
            if key > first && !raw::is_marked(next) {
                // SAFETY: between `first` and `last` there are only elements, and by F2 the guard
                // protects it.
                let node = unsafe { raw::element::<T>(here) };
                if same(&node.to_ref().value) {
                    return Some(node);
                }
            }
        }
    }

    /// Inserts `node`, unless there is an element of this hash for which `same` is true.
    ///
    /// # Errors
    /// [`Rejected`], with the node in it.
    pub fn insert<'g>(
        &self,
        hash: u64,
        same: impl Fn(&T) -> bool,
        mut node: Detached<T>,
        guard: &'g Guard,
    ) -> Result<Inserted<'g, T>, Rejected<'g, T>> {
        let first = hash & !LOW;
        let mut contended = false;
        loop {
            let mut last = FIRST - 1;
            let start = self.start_or_link(hash, guard);
            let visit = |link, key| {
                if key <= first {
                    return None;
                }
                last = (key & LOW) >> 1;
                // SAFETY: above `first` and within the walk's bound there are only elements, and
                // the walk has just found it.
                let there = unsafe { raw::element::<T>(link) };
                same(&there.to_ref().value).then_some(there)
            };
            // SAFETY: `start_or_link` gives what `walk` requires.
            match unsafe { raw::walk::<T, _>(start, hash | LOW, guard, visit) } {
                Walk::Stopped(found) => return Err(Rejected::Exists { found, node }),
                Walk::Past(_) if last == LAST => return Err(Rejected::Exhausted { node }),
                Walk::Past(place) => match place.publish(node, first | (last + 1) << 1 | 1, guard) {
                    Ok(node) => {
                        if let Some(index) = self.load_index(guard) {
                            // SAFETY: just linked into the list.
                            unsafe { index.add(hash, raw::link_of(node), guard) };
                        }
                        return Ok(Inserted { node, contended });
                    }
                    Err(back) => node = back,
                },
                Walk::Lost => {}
            }
            contended = true;
        }
    }

    /// Removes exactly this node, unless another thread has. Puts the table's reference.
    ///
    /// The node was found in this table. A node that is in no table is left alone.
    pub fn remove(&self, node: Shared<'_, Node<T>>, guard: &Guard) -> Removed {
        let link = &node.to_ref().link;
        let (removed, mut contended) = link.mark();
        if removed {
            let key = link.key.load(Ordering::Relaxed);
            fence_after_exchange();
            let here = raw::link_of(node);
            if let Some(index) = self.load_index(guard) {
                index.erase(key, here);
            }
            contended |= self.unlink_from(self.start(key, guard), key, guard);
            // SAFETY: marked above, and unlinked since, by this thread or another.
            unsafe { raw::dispose::<T>(here, key) };
        }
        Removed { removed, contended }
    }

    /// Unlinks all marked links at a sentinel's `key`. Returns whether there was contention.
    fn unlink(&self, key: u64, guard: &Guard) -> bool {
        self.unlink_from(self.start_before(key, guard), key, guard)
    }

    /// The start of a walk that is to visit all links at `key`. A sentinel that was killed while it
    /// was being linked may be before the one that has replaced it.
    fn start_before<'a>(&'a self, key: u64, guard: &'a Guard) -> &'a AtomicPtr<Link> {
        key.checked_sub(1).map_or(&self.head, |before| self.start(before, guard))
    }

    /// Like `unlink`, from a given start before `key`, which was looked up after the marking.
    fn unlink_from<'a>(&'a self, mut start: &'a AtomicPtr<Link>, key: u64, guard: &'a Guard) -> bool {
        let mut contended = false;
        loop {
            // SAFETY: `start` gives what `walk` requires.
            match unsafe { raw::walk::<T, std::convert::Infallible>(start, key, guard, |_, _| None) } {
                Walk::Past(_) => return contended,
                Walk::Lost => {
                    contended = true;
                    start = self.start_before(key, guard);
                }
                Walk::Stopped(never) => match never {},
            }
        }
    }

    /// The elements in order of position, from the first whose position is greater than `after`.
    ///
    /// Weakly consistent: an element that is in the table throughout is returned exactly once, one
    /// that is inserted or removed meanwhile at most once.
    pub fn iter_after<'g>(&'g self, after: u64, guard: &'g Guard) -> impl Iterator<Item = Shared<'g, Node<T>>> + 'g {
        let mut at = (after < u64::MAX >> 1).then(|| self.start(after << 1, guard));
        std::iter::from_fn(move || {
            loop {
                let here = raw::unmarked(at?.load(Ordering::Acquire));
                if here.is_null() {
                    at = None;
                    return None;
                }
                // SAFETY: read from a link that was found in the list, or from the start, under the
                // guard.
                let link = unsafe { raw::link_at::<T>(here, guard) };
                at = Some(&link.next);
                let key = link.key.load(Ordering::Relaxed);
                // SAFETY: found just now.
                let removed = || raw::is_marked(unsafe { raw::next_of::<T>(here, link) });
                if key & 1 == 1 && key >> 1 > after && !removed() {
                    // SAFETY: an odd key in the list is an element's, and by F2 the guard protects
                    // it.
                    return Some(unsafe { raw::element::<T>(here) });
                }
            }
        })
    }

    /// Whether a scan of the whole table finds no element. Weakly consistent: false if an element
    /// is in the table throughout. A caller that needs an instant excludes inserts (or has them
    /// check again, as rmdir does).
    pub fn is_empty(&self, guard: &Guard) -> bool {
        self.iter_after(0, guard).next().is_none()
    }
}

impl<T: Send + Sync + 'static> Default for SplitTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for SplitTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitTable").field("bucket_bytes", &self.bucket_bytes()).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Drop for SplitTable<T> {
    fn drop(&mut self) {
        // Relaxed, here and below: no other thread has access to the table, and the handover
        // ordered everything.
        let mut here = self.head.load(Ordering::Relaxed);
        while !here.is_null() {
            // SAFETY: linked, so not yet disposed of, and its memory is valid.
            let (next, key) = unsafe { ((*here).next.load(Ordering::Relaxed), (*here).key.load(Ordering::Relaxed)) };
            // SAFETY: this thread owns the whole list, and this link is dropped here.
            unsafe { raw::dispose::<T>(here, key) };
            here = raw::unmarked(next);
        }
        self.drop_buckets();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
