//! `SplitTable`: one list that is a hash table and an order that never changes.
//!
//! The list is sorted by *position*: the top 51 bits of the hash, then 12 bits that tell equal hashes apart. Short cuts
//! into it, the *sentinels*, are links of their own at fixed keys, so a table grows or shrinks without moving an
//! element (Shalev & Shavit, *Split-ordered lists: lock-free extensible hash tables*, 2006; there the order is by
//! bit-reversed hash and buckets are chosen by its low bits, here by the hash itself and buckets by its high bits,
//! which is the same with fewer steps). The list is that of Harris (*A pragmatic implementation of non-blocking linked
//! lists*, 2001) as Michael made it reclaimable (*High performance dynamic lock-free hash tables and list-based sets*,
//! 2002).
//!
//! | difficulty | answered by |
//! | --- | --- |
//! | a reader writes nothing, yet links vanish under it | `raw`, fact F2 |
//! | two inserts of one name | elements of equal hash form a *run*, and an element is only ever appended to it: both want the same predecessor, and the loser scans again |
//! | a cookie is valid for ever | a position is fixed at insertion; iteration resumes *after* a number, whoever had it |
//! | growth without moving or waiting | `buckets`: segments of sentinels that are linked when first wanted |
//! | the sentinel is one wait for memory, and the element another | `index`: where elements lie, in few lines |
//! | a bucket's third element is three waits for memory away | `hint`: its address, asked for together with the first |
//! | shrinking while others use the buckets | `buckets`: each sentinel has a state, and the last one out retires the segment |
//!
//! **Why a look-up that finds nothing is right** (there is an instant of the call at which the name was absent): take
//! the last link of the run that the reader met and the instant, by F2, at which that link was in the list and the run
//! ended behind it. An element of that name live at that instant would stand before it. Elements are appended to runs,
//! so it was inserted before that link was, and was in the list, before the reader's eyes, when the reader passed there.
//!
//! **Why a name is inserted once**: an insert's compare-and-swap is on the last link of the run as it has seen it, which
//! is unmarked and still last. Another insert of the name since then would have been appended behind that link, or
//! behind one that the walk saw unmarked and that had to be marked since: then the walk's own predecessor is gone,
//! or its `next` has changed, and the compare-and-swap fails.

mod buckets;
mod hint;
mod index;
mod raw;

use std::{fmt, marker::PhantomData, ops::Deref};

pub use self::buckets::IndexAddress;
use self::{
    buckets::{Buckets, Line},
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

/// An element of a table: a value and its place. Made by the caller, so that others can point to it before it is inserted.
///
/// Seventeen bytes and up: sixteen of link, and the value.
#[repr(C)]
pub struct Node<T> {
    link: Link,
    value: T,
}

impl<T: Send + Sync + 'static> Object for Node<T> {}

/// A node that was never inserted, and a reference to it. There is one of these for each node, so it is inserted once.
pub struct Detached<T: Send + Sync + 'static>(Counted<Node<T>>);

impl<T: Send + Sync + 'static> Detached<T> {
    /// A node that is in no table.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Counted::new(Node { link: Link::nowhere(), value }))
    }

    /// A node that is in no table, in one allocation with an object that is mostly read after it: see [`Counted::pair`].
    /// Besides, a reference to the node, and one to the object.
    #[inline]
    #[must_use]
    pub fn pair<S: Object>(
        mate: impl FnOnce() -> S,
        value: impl FnOnce(Counted<S>) -> T,
    ) -> (Self, Counted<Node<T>>, Counted<S>) {
        let ([node, reference], mate) = Counted::pair(mate, |mate| Node { link: Link::nowhere(), value: value(mate) });
        (Self(node), reference, mate)
    }

    /// A further reference, for whoever is to point to the node.
    #[must_use]
    pub fn reference(&self) -> Counted<Node<T>> {
        self.0.clone()
    }

    /// A node that is never to be inserted.
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
    /// The 63-bit position: fixed from insertion on, also after removal; zero before. Three or more.
    ///
    /// While an insertion of this node is under way on another thread, either.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        // Relaxed: whoever found the node in the table has acquired what was written before.
        self.link.key.load(Ordering::Relaxed) >> 1
    }

    /// Whether the node has been removed (or never inserted). A hint: it may be gone the moment after.
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

/// What [`SplitTable::insert`] did.
pub struct Inserted<'g, T: Send + Sync + 'static> {
    /// The node, now in the table.
    pub node: Shared<'g, Node<T>>,
    /// Whether another thread was in the way: for [`SplitTable::adapt`].
    pub contended: bool,
}

impl<T: Send + Sync + 'static> fmt::Debug for Inserted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inserted").field("position", &self.node.position()).finish_non_exhaustive()
    }
}

/// Why [`SplitTable::insert`] did nothing.
pub enum Rejected<'g, T: Send + Sync + 'static> {
    /// One such is there.
    Exists {
        /// What is there.
        found: Shared<'g, Node<T>>,
        /// The caller's node, not inserted: it may be tried again.
        node: Detached<T>,
    },
    /// Equal hashes have used up their 4093 positions. (With a keyed hash of 51 good bits this does not happen to
    /// anybody; an element that is removed and inserted again takes a new position while others of its hash remain.)
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

/// What [`SplitTable::remove`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Whether it was this call that removed the node.
    pub removed: bool,
    /// Whether another thread was in the way: for [`SplitTable::adapt`].
    pub contended: bool,
}

/// A lock-free table: look-ups write nothing, and elements keep their order for life.
///
/// It does not know how many elements it has (a shared count would be a line that everybody writes): whoever counts
/// them tells [`SplitTable::adapt`].
pub struct SplitTable<T: Send + Sync + 'static> {
    /// The first link; owns what is linked.
    head: AtomicPtr<Link>,
    /// Null while a plain list will do; as [`Buckets::published`]. Guarded by `resizing` for writers.
    buckets: AtomicPtr<Buckets>,
    /// Reports of contention since the last growth: an independent statistic.
    heat: AtomicUsize,
    /// A try-lock: nobody ever waits for it.
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
            heat: AtomicUsize::new(0),
            resizing: AtomicBool::new(false),
            _owns: PhantomData,
        }
    }

    /// The element of this hash that is the `same`. Writes nothing.
    #[inline]
    pub fn get<'g>(&self, hash: u64, same: impl Fn(&T) -> bool, guard: &'g Guard) -> Option<Shared<'g, Node<T>>> {
        let indexed = self.load_index(guard).and_then(|index| self.get_indexed(index, hash, &same, guard));
        indexed.or_else(|| self.scan(hash, same, guard))
    }

    /// The element of this hash that is the `same`, if the index tells of it.
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
            // SAFETY: the index says that it was in the list, and waits for the guard.
            let (link, next) = unsafe {
                let link = raw::met::<T>(here, guard);
                (link, raw::following::<T>(here, link))
            };
            let key = link.key.load(Ordering::Relaxed);
            if key & !LOW != hash & !LOW || raw::is_marked(next) {
                return None;
            }
            // SAFETY: as above; the index tells of elements only.
            let node = unsafe { raw::element::<T>(here) };
            same(&node.to_ref().value).then_some(node)
        })
    }

    /// As [`SplitTable::get`], for whoever is going to insert or remove it: goes the way that this will go, whose lines are near
    /// then.
    #[inline]
    pub fn get_to_change<'g>(
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

    /// The element of this hash that is the `same`, from the sentinel on.
    #[inline]
    fn scan<'g>(&self, hash: u64, same: impl Fn(&T) -> bool, guard: &'g Guard) -> Option<Shared<'g, Node<T>>> {
        let (first, last) = (hash & !LOW, hash | LOW);
        let line = self.start_line(hash, guard);
        let mut next = line.map_or(&self.head, Line::next).load(Ordering::Acquire);
        if let Some(line) = line {
            line.hint().prefetch();
        }
        loop {
            // A mark on the way says only that the link behind us is removed: F2 carries us on.
            let here = raw::unmarked(next);
            if here.is_null() {
                return None;
            }
            raw::prefetch_element(here);
            // SAFETY: read from a link met in the list, or from the start, under the guard.
            let link = unsafe { raw::met::<T>(here, guard) };
            let key = link.key.load(Ordering::Relaxed);
            if key > last {
                return None;
            }
            // SAFETY: met just now.
            next = unsafe { raw::following::<T>(here, link) };
            if key > first && !raw::is_marked(next) {
                // SAFETY: between `first` and `last` are elements only, and F2 says that the guard protects it.
                let node = unsafe { raw::element::<T>(here) };
                if same(&node.to_ref().value) {
                    return Some(node);
                }
            }
        }
    }

    /// Inserts `node`, unless there is an element of this hash that is the `same`.
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
            let line = self.start_or_link(hash, guard);
            let start = line.map_or(&self.head, Line::next);
            let visit = |link, key| {
                if key <= first {
                    return None;
                }
                last = (key & LOW) >> 1;
                // SAFETY: above `first` and within the walk's bound are elements only; the walk has just met it.
                let there = unsafe { raw::element::<T>(link) };
                same(&there.to_ref().value).then_some(there)
            };
            // SAFETY: `start_or_link` gives what `walk` asks for.
            match unsafe { raw::walk::<T, _>(start, hash | LOW, guard, visit) } {
                Walk::Stopped(found) => return Err(Rejected::Exists { found, node }),
                Walk::Past(_) if last == LAST => return Err(Rejected::Exhausted { node }),
                Walk::Past(spot) => match spot.publish(node, first | (last + 1) << 1 | 1, guard) {
                    Ok(node) => {
                        if let Some(line) = line {
                            let new = &raw const node.to_ref().link;
                            line.hint().came(if spot.is_behind(start) { spot.next_element::<T>(guard) } else { new });
                        }
                        if let Some(index) = self.load_index(guard) {
                            // SAFETY: just put into the list.
                            unsafe { index.note(hash, raw::link_of(node), guard) };
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

    /// Takes exactly this node out, unless somebody else did. Puts the table's reference.
    ///
    /// The node is one that was found in this table; one that is in no table is left alone.
    pub fn remove(&self, node: Shared<'_, Node<T>>, guard: &Guard) -> Removed {
        let link = &node.to_ref().link;
        let (removed, mut contended) = link.mark();
        if removed {
            let key = link.key.load(Ordering::Relaxed);
            fence_after_exchange();
            let here = raw::link_of(node);
            if let Some(index) = self.load_index(guard) {
                index.forget(key, here);
            }
            let line = self.start_line(key, guard);
            if let Some(line) = line {
                line.hint().went(link);
            }
            contended |= self.unlink_from(line.map_or(&self.head, Line::next), key, guard);
            // SAFETY: marked above, and unlinked since, by this thread or another.
            unsafe { raw::dispose::<T>(here, key) };
        }
        Removed { removed, contended }
    }

    /// Unlinks whatever is marked at a sentinel's `key`; whether another thread was in the way.
    fn unlink(&self, key: u64, guard: &Guard) -> bool {
        self.unlink_from(self.start_before(key, guard), key, guard)
    }

    /// Where a walk begins that is to meet all that stands at `key`: a sentinel that was killed while it was being linked may
    /// stand before the one that has taken its place since.
    fn start_before<'a>(&'a self, key: u64, guard: &'a Guard) -> &'a AtomicPtr<Link> {
        key.checked_sub(1).map_or(&self.head, |before| self.start(before, guard))
    }

    /// As `unlink`, with a start before `key` at hand, looked up after the marking.
    fn unlink_from<'a>(&'a self, mut start: &'a AtomicPtr<Link>, key: u64, guard: &'a Guard) -> bool {
        let mut contended = false;
        loop {
            // SAFETY: `start` gives what `walk` asks for.
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
    /// Weakly consistent: an element that is in the table throughout is met exactly once, one that comes or goes
    /// meanwhile at most once.
    pub fn iter_after<'g>(&'g self, after: u64, guard: &'g Guard) -> impl Iterator<Item = Shared<'g, Node<T>>> + 'g {
        let mut at = (after < u64::MAX >> 1).then(|| self.start(after << 1, guard));
        std::iter::from_fn(move || {
            loop {
                let here = raw::unmarked(at?.load(Ordering::Acquire));
                if here.is_null() {
                    at = None;
                    return None;
                }
                // SAFETY: read from a link met in the list, or from the start, under the guard.
                let link = unsafe { raw::met::<T>(here, guard) };
                at = Some(&link.next);
                let key = link.key.load(Ordering::Relaxed);
                // SAFETY: met just now.
                let removed = || raw::is_marked(unsafe { raw::following::<T>(here, link) });
                if key & 1 == 1 && key >> 1 > after && !removed() {
                    // SAFETY: an odd key in the list is an element's, and F2 says that the guard protects it.
                    return Some(unsafe { raw::element::<T>(here) });
                }
            }
        })
    }

    /// Whether no element was met from one end to the other. Weakly consistent: false if one is in the table
    /// throughout; who needs an instant keeps inserts away (or has them look again, as rmdir does).
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
        // Relaxed, here and below: nobody else has the table, and how it came to us ordered everything.
        let mut here = self.head.load(Ordering::Relaxed);
        while !here.is_null() {
            // SAFETY: linked, so not yet disposed of, and its memory is there.
            let (next, key) = unsafe { ((*here).next.load(Ordering::Relaxed), (*here).key.load(Ordering::Relaxed)) };
            // SAFETY: the whole list is ours, and this link is forgotten here.
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
