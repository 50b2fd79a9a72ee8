//! The index: where elements lie, in four bytes each.
//!
//! A look-up that begins at a sentinel waits for memory twice, for the sentinel and then for the element, as soon as there
//! are more sentinels than a processor keeps near. A *group* tells of eight buckets in one cache line: for each element that
//! found room, its address and six bits of its hash. So all groups together are small, and a look-up mostly waits for
//! the element only. Whoever finds nothing here goes on as if there were no index: it need not be complete.
//!
//! But it has to be exact, since addresses in it are followed: **no address is found here by a guard that is younger than
//! the element's retirement.** Two ask one another for that, as in Dekker's algorithm:
//!
//! ```text
//!  note: EMPTY --> pending       remove: mark the element
//!        ------- fence -------           ------- fence -------
//!        is the element marked?          load the buckets; in their index, what is of the element:
//!        no:  pending --> noted          noted   --> EMPTY
//!        yes, or was cancelled:          pending --> CANCELLED
//!             --> EMPTY                  unlink the element, and let it be retired
//! ```
//!
//! * Let *note*'s fence be the later one: then the mark is seen, and the slot is never *noted*.
//! * Let *remove*'s be the later one: then *pending* is seen, in these buckets or in younger ones. In these, the slot is
//!   taken back, or *note* is told by CANCELLED that it must. If the buckets are younger, *note* may go on, and fill a
//!   slot of buckets that were replaced before the element was retired: no younger guard comes to them.
//! * *note* is the only one to take a slot from *pending* or CANCELLED to what comes next. So no second note (of the same
//!   element: several may be under way) can be taken for the first, and its *pending* not be mistaken.
//! * Both hold a guard from before the retirement on, so an address in a slot is not that of another element meanwhile.
//!
//! What is *noted* was in the list before, and an element that is found unmarked is in the list at that instant: that is
//! where a look-up is linearized that finds it here. One that is found marked has gone, and may be there again by another
//! element: the look-up goes to the list.
//!
//! Tables that contention has made large have none: what keeps their writers apart is that two buckets share a line at most.

use std::{alloc::Layout, marker::PhantomData};

use super::raw::{self, Link};
#[cfg(not(loom))]
use crate::allocator;
use crate::{
    facade::{Ordering, fence_after_exchange},
    prefetch,
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

/// Slots of a group: a line of them. (Fewer under the model checker, whose worlds are small.)
const SLOTS: usize = if cfg!(loom) { 2 } else { 16 };
const SLOT_BITS: u32 = SLOTS.ilog2();
/// So many buckets, as a power of two, have a group in common: with one to two elements in each, it is mostly not full.
const GROUP_BITS: u32 = 3;
/// The low bits of a slot come from the hash. Zero in them says that nobody may follow the rest.
const TAG_BITS: u32 = 6;
const TAGS: Word = (1 << TAG_BITS) - 1;
/// Above them is the place: which line, counted from [`first_place`].
const PLACES: usize = 1 << (Word::BITS - TAG_BITS);
const PLACE_BITS: u32 = if cfg!(loom) { 3 } else { 6 };

const EMPTY: Word = 0;
/// Was pending, and is not to be noted any more. No place is this high.
const CANCELLED: Word = !TAGS;

/// Sixteen slots in a line.
#[repr(C, align(64))]
struct Group([Slot; SLOTS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Group>() == 64);

/// Where places are counted from: blocks are mapped downwards from the first, mostly.
#[cfg(not(loom))]
#[inline]
fn first_place() -> usize {
    const ABOVE: usize = 512 << 20;
    (allocator::vicinity() & !((1 << PLACE_BITS) - 1)).wrapping_sub((PLACES << PLACE_BITS) - ABOVE)
}

/// The model checker's world is anywhere, and its slots have room for any address.
#[cfg(loom)]
fn first_place() -> usize {
    0
}

/// The place of a link; none if it is out of reach or not at the beginning of a line.
fn place_of(link: *mut Link) -> Option<Word> {
    let distance = link.expose_provenance().wrapping_sub(first_place());
    let place = distance >> PLACE_BITS;
    // The last one is not used: see `CANCELLED`.
    (distance.is_multiple_of(1 << PLACE_BITS) && place < PLACES - 1).then_some(place as Word)
}

/// The groups of some buckets, which lie behind these.
#[derive(Clone, Copy)]
pub(super) struct Index<'g> {
    groups: *mut Group,
    /// There are `2^bits` of them.
    bits: u32,
    _live: PhantomData<&'g Group>,
}

impl<'g> Index<'g> {
    /// Memory for the groups of `2^bits` buckets.
    pub(super) fn layout(bits: u32) -> Option<Layout> {
        Layout::array::<Group>(1_usize.checked_shl(bits.saturating_sub(GROUP_BITS))?).ok()
    }

    /// The groups of `2^bits` buckets.
    ///
    /// # Safety
    /// They are at `groups`, of this layout, for as long as this is used for anything but [`Index::prefetch`]: zeroes that were
    /// made empty.
    #[inline]
    pub(super) unsafe fn at(groups: *mut (), bits: u32) -> Self {
        Self { groups: groups.cast(), bits: bits.saturating_sub(GROUP_BITS), _live: PhantomData }
    }

    /// Zeroes are empty slots, except to the model checker, whose atomics are more than a word.
    ///
    /// # Safety
    /// The groups are zeroes, and the caller's alone.
    pub(super) unsafe fn make_empty(self) {
        #[cfg(loom)]
        for group in 0..1 << self.bits {
            // SAFETY: there are so many.
            unsafe { self.groups.add(group).write(Group(std::array::from_fn(|_| Slot::new(EMPTY)))) };
        }
    }

    /// Undoes [`Index::make_empty`].
    ///
    /// # Safety
    /// Nobody uses the groups any more.
    pub(super) unsafe fn take_apart(self) {
        #[cfg(loom)]
        for group in 0..1 << self.bits {
            // SAFETY: there are so many, which were made empty, and are dropped once.
            unsafe { self.groups.add(group).drop_in_place() };
        }
    }

    /// The group of a key (or hash), the tag there, and the slot to begin with.
    #[inline]
    fn aim(self, key: u64) -> (&'g [Slot; SLOTS], Word, usize) {
        let rest = key << self.bits;
        let tag = (rest >> (u64::BITS - TAG_BITS)) as Word;
        let start = rest << TAG_BITS >> (u64::BITS - SLOT_BITS);
        // SAFETY: there are `2^bits` groups.
        let slots = unsafe { &(*self.group(key)).0 };
        (slots, tag.max(1), start as usize)
    }

    /// Where the group of a key (or hash) is.
    #[inline]
    fn group(self, key: u64) -> *mut Group {
        self.groups.wrapping_add((key >> 1 >> (u64::BITS - 1 - self.bits)) as usize)
    }

    /// Asks for the line of a hash, which need not be there any more.
    #[inline]
    pub(super) fn prefetch(self, hash: u64) {
        prefetch(self.group(hash));
    }

    /// Shows elements that are probably of this hash, until `look` has found what it wants.
    ///
    /// What is shown is an element that was in the list, and not retired before the guard was made: it waits for the guard.
    #[inline]
    pub(super) fn find<R>(self, hash: u64, _guard: &Guard, mut look: impl FnMut(*mut Link) -> Option<R>) -> Option<R> {
        let (slots, tag, start) = self.aim(hash);
        for at in 0..SLOTS {
            // Acquire: pairs with the fence of who noted it, so the element is there.
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

    /// Notes where an element of this key lies, if there is room.
    ///
    /// # Safety
    /// `link` is an element's, may be used for all of it, and was met in the list under the guard, or put there; the index was
    /// loaded with its buckets under that guard.
    pub(super) unsafe fn note(self, key: u64, link: *mut Link, _guard: &Guard) {
        let Some(place) = place_of(link) else { return };
        let (slots, tag, start) = self.aim(key);
        let pending = place << TAG_BITS;
        for at in 0..SLOTS {
            let slot = &slots[(start + at) % SLOTS];
            // Relaxed: nothing is read by way of what is pending.
            if slot.load(Ordering::Relaxed) != EMPTY
                || slot.compare_exchange(EMPTY, pending, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            fence_after_exchange();
            // SAFETY: the caller's: its memory waits for the guard.
            let is_removed = raw::is_marked(unsafe { (*link).next.load(Ordering::Relaxed) });
            // Relaxed: whoever finds it sees the element by the fence above.
            let noted = || slot.compare_exchange(pending, pending | tag, Ordering::Relaxed, Ordering::Relaxed);
            if is_removed || noted().is_err() {
                // Pending or cancelled, which is for nobody else to change, but from the one to the other.
                slot.swap(EMPTY, Ordering::Relaxed);
            }
            return;
        }
    }

    /// As `note`, unless it is noted already, or is about to be.
    ///
    /// # Safety
    /// As for `note`.
    pub(super) unsafe fn note_again(self, key: u64, link: *mut Link, guard: &Guard) {
        let Some(place) = place_of(link) else { return };
        if self.aim(key).0.iter().all(|slot| slot.load(Ordering::Relaxed) >> TAG_BITS != place) {
            // SAFETY: the caller's.
            unsafe { self.note(key, link, guard) };
        }
    }

    /// Takes back what is noted of an element that the caller has marked, and then made a fence, and then loaded the index
    /// with its buckets. It is not found here any more.
    pub(super) fn forget(self, key: u64, link: *mut Link) {
        let Some(place) = place_of(link) else { return };
        let pending = place << TAG_BITS;
        for slot in self.aim(key).0 {
            // Relaxed, here and below: the fence before says what is seen here, and one before the retirement what is not seen
            // after it.
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

    /// How many slots hold something.
    #[cfg(test)]
    pub(super) fn len(self) -> usize {
        // SAFETY: there are so many groups.
        let groups = unsafe { std::slice::from_raw_parts(self.groups, 1 << self.bits) };
        groups.iter().flat_map(|group| &group.0).filter(|slot| slot.load(Ordering::Relaxed) != EMPTY).count()
    }
}
