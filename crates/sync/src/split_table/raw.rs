//! The list itself: links, marks, and the walk that every writer makes.
//!
//! A link is *removed* by setting the mark in its own `next`. That freezes `next`, since every
//! compare-and-swap on it expects an unmarked value. Later a writer that passes *unlinks* it by a
//! compare-and-swap on its predecessor's `next`. Everything else here rests on two facts:
//!
//! * **F1.** The successor of a linked link is linked. A link can be unlinked only by changing its
//!   predecessor's `next`, and the `next` of a marked predecessor never changes.
//! * **F2.** If a walk starts in the list, every link that it visits was in the list at an instant
//!   of that walk. Let a link be in the list at the instant `t` of the walk. If it is unmarked when
//!   its `next` is read, it is still in the list (only marked links are unlinked), and so is its
//!   successor (F1). If it is marked, its `next` was frozen at some instant `m`. At the later of
//!   `t` and `m` the link was in the list, followed by the link that was read. This instant is
//!   within the walk or at its beginning.
//!
//! F2 is the reason that readers may walk through marked links without helping. It is also the
//! reason that a guard taken before the walk protects every link of it: none of them was retired
//! before the guard was taken.

use crate::tuning::PREFETCHED;
use std::ptr::NonNull;

use super::{Detached, Node};
use crate::{
    base::prefetch::prefetch,
    facade::{AtomicPtr, AtomicU64, Ordering},
    reclaim::Guard,
    refcount::counted::{Block, Counted, Shared},
};

/// Set in a link's `next` when the link is removed.
const MARK: usize = 1;

/// The low bits of a key, which do not come from the hash: twelve of distinguisher, and the parity.
pub(super) const LOW: u64 = (1 << 13) - 1;

/// The common part of sentinels and elements: the place in the list.
///
/// Keys are odd for elements (`position << 1 | 1`), even for sentinels, and zero for an element
/// that is in no list.
#[repr(C)]
pub(super) struct Link {
    /// The next link, and the mark.
    pub(super) next: AtomicPtr<Link>,
    /// Constant while linked. Written before the compare-and-swap that publishes the link, so a
    /// reader that found the link may read it Relaxed.
    pub(super) key: AtomicU64,
}

impl Link {
    /// A link in no list. It counts as removed, so no thread can remove it.
    pub(super) fn detached() -> Self {
        Self { next: AtomicPtr::new(DETACHED), key: AtomicU64::new(0) }
    }

    /// Sets the mark. The first result is false if it was set already. The second says whether a
    /// compare-and-swap failed.
    pub(super) fn mark(&self) -> (bool, bool) {
        let mut contended = false;
        let mut next = self.next.load(Ordering::Acquire);
        while !is_marked(next) {
            // Release: a thread that sees the mark sees what was done before it (a resize publishes
            // its buckets before it marks).
            match self.next.compare_exchange(next, marked(next), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (true, contended),
                Err(now) => next = now,
            }
            contended = true;
        }
        (false, contended)
    }
}

const DETACHED: *mut Link = std::ptr::without_provenance_mut(MARK);

#[inline]
pub(super) fn is_marked(link: *mut Link) -> bool {
    link.addr() & MARK != 0
}

#[inline]
fn marked(link: *mut Link) -> *mut Link {
    link.map_addr(|a| a | MARK)
}

#[inline]
pub(super) fn unmarked(link: *mut Link) -> *mut Link {
    link.map_addr(|a| a & !MARK)
}

/// Prefetches the first cache lines of an element. Its name may end in the second, and the object
/// that it was made with is there (`Detached::pair`). So a look-up waits for memory once, and not
/// once for the name and again for the object.
#[inline]
pub(super) fn prefetch_element(link: *const Link) {
    for line in 0..PREFETCHED {
        prefetch(link.wrapping_byte_add(line * 64));
    }
}

/// The link at `ptr`, which a walk of a `T` list has found.
///
/// # Safety
/// `ptr` is unmarked, not null, and was read from the list (or from a link found in the list) under
/// `_guard`.
#[inline]
#[allow(clippy::extra_unused_type_parameters, reason = "the model checker's part needs it")]
pub(super) unsafe fn link_at<T: Send + Sync + 'static>(ptr: *mut Link, _guard: &Guard) -> &Link {
    // SAFETY: by F2 it was in the list while the guard was alive, so its memory waits for the
    // guard.
    let link = unsafe { &*ptr };
    #[cfg(loom)]
    // SAFETY: found in the list.
    unsafe {
        check_access::<T>(ptr);
    }
    link
}

/// The successor of a link that was found, and perhaps the mark.
///
/// # Safety
/// As for `link_at`, which returned `link` for `ptr`.
#[inline]
#[allow(clippy::extra_unused_type_parameters, reason = "the model checker's part needs it")]
pub(super) unsafe fn next_of<T: Send + Sync + 'static>(ptr: *mut Link, link: &Link) -> *mut Link {
    // Acquire: pairs with the release that published the successor.
    let next = link.next.load(Ordering::Acquire);
    // After the load, before which other threads may have run.
    #[cfg(loom)]
    // SAFETY: found in the list.
    unsafe {
        check_access::<T>(ptr);
    }
    let _ = ptr;
    next
}

/// Fails the model if the link's object has been reclaimed.
///
/// # Safety
/// `link` was found in a list of `T`. (The model's reclaimer frees nothing before the end.)
#[cfg(loom)]
unsafe fn check_access<T: Send + Sync + 'static>(link: *mut Link) {
    // SAFETY: the caller's contract. An even key in a list is a sentinel's, an odd one an
    // element's.
    unsafe {
        if (*link).key.load(Ordering::Relaxed) & 1 == 0 {
            super::sentinel::check_access(link);
        } else {
            let _ = element::<T>(link).to_ref();
        }
    }
}

/// The element to which this link belongs.
///
/// # Safety
/// `link` points to the link of a `Node<T>` that stays allocated for `'g`.
#[inline]
pub(super) unsafe fn element<'g, T: Send + Sync + 'static>(link: *mut Link) -> Shared<'g, Node<T>> {
    // SAFETY: `publish` makes pointers to elements' links from the pointer to the whole block. This
    // undoes that step.
    let block = unsafe { link.byte_sub(Block::<Node<T>>::VALUE).cast::<Block<Node<T>>>() };
    // SAFETY: not null by the caller's contract, which is also that of `from_raw`.
    unsafe { Shared::from_raw(NonNull::new_unchecked(block)) }
}

/// The link of an element that is in the list. The pointer is valid for the whole element.
pub(super) fn link_of<T: Send + Sync + 'static>(node: Shared<'_, Node<T>>) -> *mut Link {
    // SAFETY: within the block, whose value begins with the link (`repr(C)`).
    unsafe { node.as_raw().as_ptr().byte_add(Block::<Node<T>>::VALUE).cast() }
}

/// Puts the list's reference to an element. Sentinels belong to their segment.
///
/// # Safety
/// The caller has marked `link`, and it was unlinked since (or the caller owns the whole list and
/// drops it).
pub(super) unsafe fn dispose<T: Send + Sync + 'static>(link: *mut Link, key: u64) {
    if key & 1 == 1 {
        // SAFETY: `publish` gave the list one reference, and a link is marked once.
        drop(unsafe { Counted::<Node<T>>::from_raw(element::<T>(link).as_raw()) });
    }
}

/// The two links between which a walk ended.
pub(super) struct Place<'a> {
    pred: &'a AtomicPtr<Link>,
    curr: *mut Link,
}

/// How a walk ended.
pub(super) enum Walk<'a, R> {
    /// The visitor stopped it.
    Stopped(R),
    /// It passed every key up to the bound, and unlinked every marked link among them.
    Past(Place<'a>),
    /// Another thread changed the list at the walk's current place, or the start was removed. The
    /// caller begins again, from a new start.
    Lost,
}

/// Walks past every key up to `bound`, unlinks marked links, and shows the others to `visit`.
///
/// `pred` is always a link that was unmarked when its `next` was read. So a later compare-and-swap
/// on it, here or by `publish`, proves that nothing was inserted in between.
///
/// # Safety
/// `start` is the head or the `next` of a link that was in the list while `guard` was alive.
pub(super) unsafe fn walk<'a, T: Send + Sync + 'static, R>(
    start: &'a AtomicPtr<Link>,
    bound: u64,
    guard: &'a Guard,
    mut visit: impl FnMut(*mut Link, u64) -> Option<R>,
) -> Walk<'a, R> {
    let mut pred = start;
    // Acquire: pairs with the release that published the link, and passes on what that thread has
    // seen.
    let mut curr = pred.load(Ordering::Acquire);
    if is_marked(curr) {
        return Walk::Lost;
    }
    while !curr.is_null() {
        // SAFETY: read from the list under the guard, neither null nor marked.
        let link = unsafe { link_at::<T>(curr, guard) };
        let key = link.key.load(Ordering::Relaxed);
        if key > bound {
            break;
        }
        // SAFETY: found just now.
        let next = unsafe { next_of::<T>(curr, link) };
        if is_marked(next) {
            let next = unmarked(next);
            if pred.compare_exchange(curr, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return Walk::Lost;
            }
            curr = next;
            continue;
        }
        if let Some(found) = visit(curr, key) {
            return Walk::Stopped(found);
        }
        pred = &link.next;
        curr = next;
    }
    Walk::Past(Place { pred, curr })
}

impl Place<'_> {
    /// Links `link` here. Returns false, and changes nothing, if the place has changed since.
    ///
    /// # Safety
    /// `link` is not linked, no other thread links it, it is marked before it is freed, its key is
    /// between its neighbours', and its memory then waits for guards.
    pub(super) unsafe fn link(&self, link: *mut Link) -> bool {
        // SAFETY: the caller has it.
        let next = unsafe { &(*link).next };
        // Relaxed: the compare-and-swap publishes it.
        next.store(self.curr, Ordering::Relaxed);
        self.pred.compare_exchange(self.curr, link, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Links an element here under `key`, or returns it.
    pub(super) fn publish<'g, T: Send + Sync + 'static>(
        &self,
        Detached(node): Detached<T>,
        key: u64,
        _guard: &'g Guard,
    ) -> Result<Shared<'g, Node<T>>, Detached<T>> {
        // Relaxed: the compare-and-swap publishes it, and there is one `Detached` for each node, so
        // no other thread writes.
        node.link.key.store(key, Ordering::Relaxed);
        let block = node.into_raw();
        // SAFETY: `into_raw` returned a pointer to a whole live block, and the value begins with
        // its link (`repr(C)`).
        let link = unsafe { block.byte_add(Block::<Node<T>>::VALUE).cast::<Link>() };
        // SAFETY: it was `Detached`, so only this thread may link it. From now on the list owns the
        // reference. It is put after the link was marked and unlinked, so the memory waits for
        // guards.
        if unsafe { self.link(link) } {
            // SAFETY: it was in the list while the guard was alive.
            return Ok(unsafe { element(link) });
        }
        // SAFETY: not linked, so this thread still has the reference.
        let node = unsafe { Counted::from_raw(NonNull::new_unchecked(block)) };
        node.link.next.store(DETACHED, Ordering::Relaxed);
        node.link.key.store(0, Ordering::Relaxed);
        Err(Detached(node))
    }
}
