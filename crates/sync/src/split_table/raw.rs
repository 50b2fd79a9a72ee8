//! The list itself: links, marks, and the walk that every writer makes.
//!
//! A link is *removed* by setting the mark in its own `next`, which freezes it (every compare-and-swap on it expects an
//! unmarked value), and is *unlinked* later by a compare-and-swap on its predecessor's `next`, by whichever writer
//! passes. Two facts follow, and everything else here rests on them:
//!
//! * **F1.** What follows a linked link is linked: an unlinked link can only have been cut off by changing its
//!   predecessor's `next`, and a marked predecessor's never changes.
//! * **F2.** Whatever a walk meets was in the list at an instant of that walk, if its start was. Let a link be in the
//!   list at the instant `t` of the walk. If it is unmarked when its `next` is read, it is still in the list (only the
//!   marked are unlinked), and so is what follows it (F1). If it is marked, its `next` was frozen at some instant `m`;
//!   at the later of `t` and `m` the link was in the list, followed by what was read, and that is inside the walk or
//!   at its beginning.
//!
//! F2 is the reason that readers may run through marked links without helping, and that a guard taken before the walk
//! protects every link of it: none was retired before the guard was made.

use crate::tuning::PREFETCHED;
use std::ptr::NonNull;

use super::{Detached, Node};
use crate::{
    facade::{AtomicPtr, AtomicU64, Ordering},
    prefetch,
    reclaim::Guard,
    refcount::counted::{Block, Counted, Shared},
};

/// Set in a link's `next` when the link is removed.
const MARK: usize = 1;

/// The low bits of a key that do not come from the hash: twelve of distinguisher and the parity.
pub(super) const LOW: u64 = (1 << 13) - 1;

/// What sentinels and elements share: the place in the list.
///
/// Keys: odd for elements (`position << 1 | 1`), even for sentinels; zero for an element that is in no list.
#[repr(C)]
pub(super) struct Link {
    /// The next link, and the mark.
    pub(super) next: AtomicPtr<Link>,
    /// Constant while linked. Written before the compare-and-swap that publishes the link, so a reader that found the
    /// link may read it Relaxed.
    pub(super) key: AtomicU64,
}

impl Link {
    /// A link in no list. It counts as removed, so that nobody can remove it.
    pub(super) fn nowhere() -> Self {
        Self { next: AtomicPtr::new(NOWHERE), key: AtomicU64::new(0) }
    }

    /// Sets the mark; false if it was set. The second result says whether a compare-and-swap failed.
    pub(super) fn mark(&self) -> (bool, bool) {
        let mut contended = false;
        let mut next = self.next.load(Ordering::Acquire);
        while !is_marked(next) {
            // Release: whoever sees the mark sees what led to it (a resize publishes its buckets before it marks).
            match self.next.compare_exchange(next, marked(next), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (true, contended),
                Err(now) => next = now,
            }
            contended = true;
        }
        (false, contended)
    }
}

const NOWHERE: *mut Link = std::ptr::without_provenance_mut(MARK);

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

/// Asks for the first lines of an element: its name may end in the second, and the object it was made with lies there
/// (`Detached::pair`). A look-up then waits for memory once, and not once for the name and again for the object.
#[inline]
pub(super) fn prefetch_element(link: *const Link) {
    for line in 0..PREFETCHED {
        prefetch(link.wrapping_byte_add(line * 64));
    }
}

/// The link at `ptr`, which a walk of a `T` list has met.
///
/// # Safety
/// `ptr` is unmarked, not null, and was read from the list (or from a link met in the list) under `_guard`.
#[inline]
#[allow(clippy::extra_unused_type_parameters, reason = "the model checker's part needs it")]
pub(super) unsafe fn met<T: Send + Sync + 'static>(ptr: *mut Link, _guard: &Guard) -> &Link {
    // SAFETY: F2: it was in the list while the guard was alive, so its memory waits for the guard.
    let link = unsafe { &*ptr };
    #[cfg(loom)]
    // SAFETY: met in the list.
    unsafe {
        check_access::<T>(ptr);
    }
    link
}

/// What follows a link that was met, and perhaps the mark.
///
/// # Safety
/// As for `met`, which gave `link` for `ptr`.
#[inline]
#[allow(clippy::extra_unused_type_parameters, reason = "the model checker's part needs it")]
pub(super) unsafe fn following<T: Send + Sync + 'static>(ptr: *mut Link, link: &Link) -> *mut Link {
    // Acquire: pairs with the release that published what follows.
    let next = link.next.load(Ordering::Acquire);
    // After the load, before which other threads may have run.
    #[cfg(loom)]
    // SAFETY: met in the list.
    unsafe {
        check_access::<T>(ptr);
    }
    let _ = ptr;
    next
}

/// Fails the model when the link's object has been reclaimed.
///
/// # Safety
/// `link` was met in a list of `T`. (The model's reclaimer frees nothing before the end.)
#[cfg(loom)]
unsafe fn check_access<T: Send + Sync + 'static>(link: *mut Link) {
    // SAFETY: the caller's; an even key in a list is a sentinel's, an odd one an element's.
    unsafe {
        if (*link).key.load(Ordering::Relaxed) & 1 == 0 {
            super::buckets::check_access(link);
        } else {
            let _ = element::<T>(link).to_ref();
        }
    }
}

/// The element whose link this is.
///
/// # Safety
/// `link` points to the link of a `Node<T>` that stays allocated for `'g`.
#[inline]
pub(super) unsafe fn element<'g, T: Send + Sync + 'static>(link: *mut Link) -> Shared<'g, Node<T>> {
    // SAFETY: pointers to elements' links are made in `publish` from the pointer to the whole block; this undoes the step.
    let block = unsafe { link.byte_sub(Block::<Node<T>>::VALUE).cast::<Block<Node<T>>>() };
    // SAFETY: not null, by the caller's contract, which is also that of `from_raw`.
    unsafe { Shared::from_raw(NonNull::new_unchecked(block)) }
}

/// The link of an element that is in the list, good for all of the element.
pub(super) fn link_of<T: Send + Sync + 'static>(node: Shared<'_, Node<T>>) -> *mut Link {
    // SAFETY: within the block, whose value begins with the link (`repr(C)`).
    unsafe { node.as_raw().as_ptr().byte_add(Block::<Node<T>>::VALUE).cast() }
}

/// Puts the list's reference to an element; sentinels belong to their segment.
///
/// # Safety
/// The caller has marked `link`, and it was unlinked since (or the caller owns the whole list and forgets it).
pub(super) unsafe fn dispose<T: Send + Sync + 'static>(link: *mut Link, key: u64) {
    if key & 1 == 1 {
        // SAFETY: `publish` gave the list one reference, and a link is marked once.
        drop(unsafe { Counted::<Node<T>>::from_raw(element::<T>(link).as_raw()) });
    }
}

/// Between which two links a walk has ended.
pub(super) struct Spot<'a> {
    pred: &'a AtomicPtr<Link>,
    curr: *mut Link,
}

/// How a walk ended.
pub(super) enum Walk<'a, R> {
    /// The visitor said so.
    Stopped(R),
    /// Every key up to the bound was passed, and every marked link among them unlinked.
    Past(Spot<'a>),
    /// Somebody changed the list at the walk's feet, or its start was removed: begin again, from a new start.
    Lost,
}

/// Walks past every key up to `bound` and unlinks what is marked, showing what is not to `visit`.
///
/// `pred` is always a link that was unmarked when its `next` was read, which is what makes a later compare-and-swap on
/// it (here or by `publish`) prove that nothing has come between.
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
    // Acquire: pairs with the release that published the link, and passes on what it has seen.
    let mut curr = pred.load(Ordering::Acquire);
    if is_marked(curr) {
        return Walk::Lost;
    }
    while !curr.is_null() {
        // SAFETY: read from the list under the guard, null and mark excluded.
        let link = unsafe { met::<T>(curr, guard) };
        let key = link.key.load(Ordering::Relaxed);
        if key > bound {
            break;
        }
        // SAFETY: met just now.
        let next = unsafe { following::<T>(curr, link) };
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
    Walk::Past(Spot { pred, curr })
}

impl Spot<'_> {
    /// Whether nothing stands between this spot and where the walk started.
    #[inline]
    pub(super) fn is_behind(&self, start: &AtomicPtr<Link>) -> bool {
        std::ptr::eq(self.pred, start)
    }

    /// The element that stands behind it, as the walk saw it; null if it is a sentinel or nothing.
    #[inline]
    pub(super) fn next_element<T: Send + Sync + 'static>(&self, guard: &Guard) -> *const Link {
        // SAFETY: read from the list by the walk, under the guard, or null.
        let is_element = |link| unsafe { met::<T>(link, guard) }.key.load(Ordering::Relaxed) & 1 == 1;
        if !self.curr.is_null() && is_element(self.curr) { self.curr } else { std::ptr::null() }
    }

    /// Links `link` here. False, and nothing has happened, if the spot is no more what it was.
    ///
    /// # Safety
    /// `link` is not linked, nobody else links it, it is marked before it is freed, its key lies between its
    /// neighbours', and its memory then waits for guards.
    pub(super) unsafe fn link(&self, link: *mut Link) -> bool {
        // SAFETY: the caller has it.
        let next = unsafe { &(*link).next };
        // Relaxed: the compare-and-swap publishes it.
        next.store(self.curr, Ordering::Relaxed);
        self.pred.compare_exchange(self.curr, link, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Links an element here under `key`, or gives it back.
    pub(super) fn publish<'g, T: Send + Sync + 'static>(
        &self,
        Detached(node): Detached<T>,
        key: u64,
        _guard: &'g Guard,
    ) -> Result<Shared<'g, Node<T>>, Detached<T>> {
        // Relaxed: the compare-and-swap publishes it, and there is one `Detached` of a node: nobody else writes.
        node.link.key.store(key, Ordering::Relaxed);
        let block = node.into_raw();
        // SAFETY: `into_raw` gave a pointer to a whole live block, and the value begins with its link (`repr(C)`).
        let link = unsafe { block.byte_add(Block::<Node<T>>::VALUE).cast::<Link>() };
        // SAFETY: it was `Detached`, so it is nobody's to link but ours; from now on the list owns the
        // reference, which is put after the link was marked and unlinked, so the memory waits for guards.
        if unsafe { self.link(link) } {
            // SAFETY: it was in the list while the guard was alive.
            return Ok(unsafe { element(link) });
        }
        // SAFETY: not linked, so the reference is still ours to take up.
        let node = unsafe { Counted::from_raw(NonNull::new_unchecked(block)) };
        node.link.next.store(NOWHERE, Ordering::Relaxed);
        node.link.key.store(0, Ordering::Relaxed);
        Err(Detached(node))
    }
}
