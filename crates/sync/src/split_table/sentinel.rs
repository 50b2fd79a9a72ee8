//! Sentinels, the heads of buckets, and the segments that contain them.
//!
//! The states of a sentinel:
//!
//! ```text
//! UNUSED --claim--> LINKING --done--> LINKED --kill--> DEAD, marked, unlinked by the killer
//!    |                 |
//!    +------kill-------+--kill--> DEAD; the linking thread notices, marks and unlinks it,
//!                                       and releases the segment
//! ```
//!
//! A segment is held by the table, and by each LINKING sentinel that the killer had to leave behind
//! (`holders`). The last holder to release it retires it, and all its sentinels are unlinked by
//! then.

use std::{alloc::Layout, ptr::NonNull};

use super::raw::Link;
use crate::{
    allocator,
    facade::{AtomicPtr, AtomicUsize, Ordering},
    reclaim,
};

/// A sentinel: the head of a bucket.
#[repr(C, align(32))]
pub(super) struct Sentinel {
    pub(super) link: Link,
    pub(super) state: AtomicUsize,
    /// The segment, for the model checker's reclaimer.
    #[cfg(loom)]
    segment: *const (),
}

/// Never used; all bits of the sentinel are zero.
pub(super) const UNUSED: usize = 0;
/// A thread is linking it into the list.
pub(super) const LINKING: usize = 1;
/// In the list, and a start for walks.
pub(super) const LINKED: usize = 2;
/// Its segment is being retired.
pub(super) const DEAD: usize = 3;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Sentinel>() == 32 && size_of::<Segment>() == 64);

impl Sentinel {
    // Acquire: pairs with the release of the thread that linked it, so its key and `next` are
    // visible.
    #[inline]
    pub(super) fn is_linked(&self) -> bool {
        self.state.load(Ordering::Acquire) == LINKED
    }

    /// Where walks from here continue.
    #[inline]
    pub(super) fn next(&self) -> &AtomicPtr<Link> {
        &self.link.next
    }
}

/// The header of a segment. Its sentinels follow in the same allocation.
#[repr(C, align(64))]
pub(super) struct Segment {
    pub(super) sentinels: usize,
    /// How many holders must release the segment before it is retired: the table, and operations
    /// that were linking a sentinel when it was killed.
    pub(super) holders: AtomicUsize,
}

impl Segment {
    pub(super) fn layout(sentinels: usize) -> Option<Layout> {
        Some(Layout::new::<Self>().extend(Layout::array::<Sentinel>(sentinels).ok()?).ok()?.0)
    }

    /// A segment of unused sentinels; `None` when memory is short.
    pub(super) fn allocate(sentinels: usize) -> Option<*mut Self> {
        let segment = allocator::try_alloc_zeroed(Self::layout(sentinels)?)?.cast::<Self>().as_ptr();
        // SAFETY: fresh memory of the header's layout.
        unsafe { segment.write(Self { sentinels, holders: AtomicUsize::new(1) }) };
        // Zeroes are unused sentinels, except under the model checker, whose atomics are larger
        // than a word.
        #[cfg(loom)]
        for i in 0..sentinels {
            let link = Link { next: AtomicPtr::new(std::ptr::null_mut()), key: crate::facade::AtomicU64::new(0) };
            let sentinel = Sentinel { link, state: AtomicUsize::new(UNUSED), segment: segment.cast() };
            // SAFETY: within the allocation, by its layout.
            unsafe { Self::sentinel(segment, i).write(sentinel) };
        }
        Some(segment)
    }

    /// # Safety
    /// `segment` is allocated and has more than `index` sentinels.
    #[inline]
    pub(super) unsafe fn sentinel(segment: *mut Self, index: usize) -> *mut Sentinel {
        // SAFETY: the sentinels follow the header without a gap, as its size is a multiple of their
        // alignment. The bound is the caller's.
        unsafe { segment.add(1).cast::<Sentinel>().add(index) }
    }

    /// # Safety
    /// `segment` came from `allocate`, and is not used any more.
    pub(super) unsafe fn free(segment: *mut ()) {
        let segment = segment.cast::<Self>();
        // SAFETY: the caller's contract.
        let sentinels = unsafe { (*segment).sentinels };
        #[cfg(loom)]
        for i in 0..sentinels {
            // SAFETY: initialized by `allocate`, dropped once.
            unsafe { Self::sentinel(segment, i).drop_in_place() };
        }
        let layout = Self::layout(sentinels).expect("it was allocated with this layout");
        // SAFETY: not null, and as allocated.
        unsafe { allocator::free(NonNull::new_unchecked(segment).cast(), layout) };
    }

    /// # Safety
    /// The caller is one of the holders, each of which releases once; `segment` is in no published
    /// table, and the caller's guard is older than that.
    pub(super) unsafe fn release(segment: *mut Self) {
        // SAFETY: held by the caller until here.
        let (holders, sentinels) = unsafe { (&(*segment).holders, (*segment).sentinels) };
        // AcqRel: the last holder has seen the unlinking by the others.
        if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let bytes = Self::layout(sentinels).map_or(0, |l| l.size());
            // SAFETY: no sentinel of it is in the list or in a published table, and the last holder
            // retires it, once.
            unsafe { reclaim::retire(segment.cast(), bytes, Self::free) };
        }
    }
}

/// Fails the model if the sentinel's segment has been reclaimed.
///
/// # Safety
/// `link` is a sentinel's.
#[cfg(loom)]
pub(super) unsafe fn check_access(link: *const Link) {
    // SAFETY: a sentinel's link is its first field, and the model frees nothing before its end.
    reclaim::model::check_access(unsafe { (*link.cast::<Sentinel>()).segment });
}
