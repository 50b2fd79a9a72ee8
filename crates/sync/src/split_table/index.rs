//! The index: the addresses of the elements, in four bytes each.
//!
//! A look-up that begins at a sentinel has two cache misses, the sentinel and the element, as soon
//! as there are more sentinels than the CPU's caches hold. A *group* covers eight buckets in one
//! cache line. For each element for which there was room it has the address and six bits of the
//! hash. So all groups together are small, and a look-up mostly waits for the element only. If it
//! finds nothing here, it continues as if there were no index. So the index need not be complete.
//!
//! But the index must be exact, since its addresses are followed: **a guard that is younger than an
//! element's retirement finds no address of that element here.** Two threads ensure this by reading
//! each other's words, as in Dekker's algorithm:
//!
//! ```text
//!  add:  EMPTY --> pending       remove: mark the element
//!        ------- fence -------           ------- fence -------
//!        is the element marked?          load the buckets; in their index, the element's slots:
//!        no:  pending --> present        present --> EMPTY
//!        yes, or was cancelled:          pending --> CANCELLED
//!             --> EMPTY                  unlink the element, and let it be retired
//! ```
//!
//! * If *add*'s fence is the later one, the mark is seen, and the slot never becomes *present*.
//! * If *remove*'s fence is the later one, *pending* is seen, in these buckets or in younger ones.
//!   In these buckets, the slot is emptied, or CANCELLED tells *add* to empty it. If the buckets
//!   are younger, *add* may continue and fill a slot of buckets that were replaced before the
//!   element was retired: no younger guard reads them.
//! * Only *add* moves a slot from *pending* or CANCELLED to its next state. So a second *add* (of
//!   the same element: several may be in progress) cannot be taken for the first, and its *pending*
//!   is not confused.
//! * Both hold a guard from before the retirement on, so an address in a slot does not become that
//!   of another element meanwhile.
//!
//! A *present* element was in the list before. An element that is found unmarked is in the list at
//! that instant: this is the linearization point of a look-up that finds it here. An element that
//! is found marked has been removed, and another element may have replaced it, so the look-up walks
//! the list.
//!
//! Tables that contention has made large have no index: there, writers are kept apart because at
//! most two buckets share a cache line.

use std::{alloc::Layout, marker::PhantomData};

use super::raw::{self, Link};
#[cfg(not(loom))]
use crate::facade::AtomicUsize;
use crate::tuning::{INDEX_GROUP_BITS as GROUP_BITS, INDEX_PLACE_BITS as PLACE_BITS};
use crate::{
    base::prefetch::prefetch,
    facade::{Ordering, fence_after_exchange},
    reclaim::Guard,
};

#[cfg(loom)]
type Word = u64;
#[cfg(loom)]
type Slot = crate::facade::AtomicU64;
#[cfg(not(loom))]
type Word = u32;
#[cfg(not(loom))]
type Slot = std::sync::atomic::AtomicU32;

/// Slots of a group: a cache line of them. (Fewer under the model checker, whose tables are small.)
const SLOTS: usize = if cfg!(loom) { 2 } else { 16 };
const SLOT_BITS: u32 = SLOTS.ilog2();
/// The low bits of a slot come from the hash. If they are zero, the address in the rest must not be
/// followed.
const TAG_BITS: u32 = 6;
const TAGS: Word = (1 << TAG_BITS) - 1;
/// Above them is the place: the number of the cache line, counted from [`first_place`].
const PLACES: usize = 1 << (Word::BITS - TAG_BITS);

const EMPTY: Word = 0;
/// Was pending, and must not become present. No place is this high.
const CANCELLED: Word = !TAGS;

/// Sixteen slots in a cache line.
#[repr(C, align(64))]
struct Group([Slot; SLOTS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Group>() == 64);

/// Places are counted from this address, which is the same for all tables. Set when the first index
/// is made, and immutable from then on.
#[cfg(not(loom))]
static FIRST_PLACE: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(loom))]
#[inline]
fn first_place() -> usize {
    // Relaxed: an index was published after it was set, and this thread has found an index.
    FIRST_PLACE.load(Ordering::Relaxed)
}

/// Sets [`FIRST_PLACE`], unless it is set. mimalloc takes its memory in areas of 1 GiB, each above
/// the ones before. So no element is more than 1 GiB below `here`, and most are above.
#[cfg(not(loom))]
fn set_first_place(here: usize) {
    const BELOW: usize = 1 << 30;
    let first = (here & !((1 << PLACE_BITS) - 1)).wrapping_sub(BELOW);
    // Relaxed: see `first_place`. If another thread has set it, that value is in force.
    let _ = FIRST_PLACE.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
}

/// Under the model checker memory is anywhere, and a slot has room for any address.
#[cfg(loom)]
fn first_place() -> usize {
    0
}

/// The place of a link; `None` if it is out of reach or not at the beginning of a cache line.
fn place_of(link: *mut Link) -> Option<Word> {
    let distance = link.expose_provenance().wrapping_sub(first_place());
    let place = distance >> PLACE_BITS;
    // The last one is not used: see `CANCELLED`.
    (distance.is_multiple_of(1 << PLACE_BITS) && place < PLACES - 1).then_some(place as Word)
}

/// The groups of some buckets, which follow the buckets in memory.
#[derive(Clone, Copy)]
pub(super) struct Index<'g> {
    groups: *mut Group,
    /// There are `2^bits` of them.
    bits: u32,
    _live: PhantomData<&'g Group>,
}

impl<'g> Index<'g> {
    /// The layout of the groups of `2^bits` buckets.
    pub(super) fn layout(bits: u32) -> Option<Layout> {
        Layout::array::<Group>(1_usize.checked_shl(bits.saturating_sub(GROUP_BITS))?).ok()
    }

    /// The groups of `2^bits` buckets.
    ///
    /// # Safety
    /// They are at `groups`, with this layout, while this is used for anything but
    /// [`Index::prefetch`]. They were zeroes and have been initialized by [`Index::make_empty`].
    #[inline]
    pub(super) unsafe fn at(groups: *mut (), bits: u32) -> Self {
        Self { groups: groups.cast(), bits: bits.saturating_sub(GROUP_BITS), _live: PhantomData }
    }

    /// Initializes the groups. Zeroes are empty slots, except under the model checker, whose
    /// atomics are larger than a word.
    ///
    /// # Safety
    /// The groups are zeroes, and not shared.
    pub(super) unsafe fn make_empty(self) {
        #[cfg(not(loom))]
        set_first_place(self.groups.addr());
        #[cfg(loom)]
        for group in 0..1 << self.bits {
            // SAFETY: there are so many.
            unsafe { self.groups.add(group).write(Group(std::array::from_fn(|_| Slot::new(EMPTY)))) };
        }
    }

    /// Undoes [`Index::make_empty`].
    ///
    /// # Safety
    /// The groups are not used any more.
    pub(super) unsafe fn drop_in_place(self) {
        #[cfg(loom)]
        for group in 0..1 << self.bits {
            // SAFETY: there are so many. They were initialized, and are dropped once.
            unsafe { self.groups.add(group).drop_in_place() };
        }
    }

    /// The group of a key (or hash), the tag there, and the slot to begin with.
    #[inline]
    fn locate(self, key: u64) -> (&'g [Slot; SLOTS], Word, usize) {
        let rest = key << self.bits;
        let tag = (rest >> (u64::BITS - TAG_BITS)) as Word;
        let start = rest << TAG_BITS >> (u64::BITS - SLOT_BITS);
        // SAFETY: there are `2^bits` groups.
        let slots = unsafe { &(*self.group(key)).0 };
        (slots, tag.max(1), start as usize)
    }

    /// The address of the group of a key (or hash).
    #[inline]
    fn group(self, key: u64) -> *mut Group {
        self.groups.wrapping_add((key >> 1 >> (u64::BITS - 1 - self.bits)) as usize)
    }

    /// Prefetches the cache line of a hash, which may have been freed.
    #[inline]
    pub(super) fn prefetch(self, hash: u64) {
        prefetch(self.group(hash));
    }

    /// Shows elements that probably have this hash, until `look` returns something.
    ///
    /// Each element that is shown was in the list, and was not retired before the guard was taken,
    /// so it waits for the guard.
    #[inline]
    pub(super) fn find<R>(self, hash: u64, _guard: &Guard, mut look: impl FnMut(*mut Link) -> Option<R>) -> Option<R> {
        let (slots, tag, start) = self.locate(hash);
        for at in 0..SLOTS {
            // Acquire: pairs with the fence of the thread that added it, so the element is visible.
            let slot = slots[(start + at) % SLOTS].load(Ordering::Acquire);
            if slot & TAGS == tag {
                let address = first_place().wrapping_add((slot >> TAG_BITS) as usize * (1 << PLACE_BITS));
                if let Some(found) = look(std::ptr::with_exposed_provenance_mut(address)) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Adds the address of an element of this key, if there is room.
    ///
    /// # Safety
    /// `link` is an element's, may be used for all of it, and was found in the list under the
    /// guard, or linked under it; the index was loaded with its buckets under that guard.
    pub(super) unsafe fn add(self, key: u64, link: *mut Link, _guard: &Guard) {
        let Some(place) = place_of(link) else { return };
        let (slots, tag, start) = self.locate(key);
        let pending = place << TAG_BITS;
        for at in 0..SLOTS {
            let slot = &slots[(start + at) % SLOTS];
            // Relaxed: no thread reads anything through a pending slot.
            if slot.load(Ordering::Relaxed) != EMPTY
                || slot.compare_exchange(EMPTY, pending, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            fence_after_exchange();
            // SAFETY: the caller's contract: its memory waits for the guard.
            let is_removed = raw::is_marked(unsafe { (*link).next.load(Ordering::Relaxed) });
            // Relaxed: a thread that finds it sees the element by the fence above.
            let make_present = || slot.compare_exchange(pending, pending | tag, Ordering::Relaxed, Ordering::Relaxed);
            if is_removed || make_present().is_err() {
                // Pending or cancelled. Other threads may only change the one to the other.
                slot.swap(EMPTY, Ordering::Relaxed);
            }
            return;
        }
    }

    /// Like `add`, unless the element is present or pending already.
    ///
    /// # Safety
    /// As for `add`.
    pub(super) unsafe fn add_if_absent(self, key: u64, link: *mut Link, guard: &Guard) {
        let Some(place) = place_of(link) else { return };
        if self.locate(key).0.iter().all(|slot| slot.load(Ordering::Relaxed) >> TAG_BITS != place) {
            // SAFETY: the caller's contract.
            unsafe { self.add(key, link, guard) };
        }
    }

    /// Erases an element. Before, the caller has marked it, then made a fence, and then loaded the
    /// index with its buckets. From now on it is not found here.
    pub(super) fn erase(self, key: u64, link: *mut Link) {
        let Some(place) = place_of(link) else { return };
        let pending = place << TAG_BITS;
        for slot in self.locate(key).0 {
            // Relaxed, here and below: the fence before this orders what is seen here, and one
            // before the retirement orders what is not seen after it.
            let mut now = slot.load(Ordering::Relaxed);
            while now ^ pending <= TAGS {
                let new = if now == pending { CANCELLED } else { EMPTY };
                match slot.compare_exchange(now, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(other) => now = other,
                }
            }
        }
    }

    /// How many slots are not empty.
    #[cfg(test)]
    pub(super) fn len(self) -> usize {
        // SAFETY: there are so many groups.
        let groups = unsafe { std::slice::from_raw_parts(self.groups, 1 << self.bits) };
        groups.iter().flat_map(|group| &group.0).filter(|slot| slot.load(Ordering::Relaxed) != EMPTY).count()
    }
}
