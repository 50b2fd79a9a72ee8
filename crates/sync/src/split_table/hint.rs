//! Hints: the probable addresses of a bucket's second and third element.
//!
//! The elements of a bucket are in a list, so a look-up of the third has three cache misses in a
//! row. A sentinel has eight spare bytes: enough for two addresses, which are prefetched together
//! with the first element. Nothing is ever read through them. A wrong hint costs one prefetch of an
//! unneeded cache line and does no harm, whatever has become of that memory. So hints need no
//! ordering: an inserting thread fills an empty place, a removing thread empties the place of its
//! element, and linking a sentinel sets both anew.

use std::sync::atomic::{AtomicU64, Ordering};

use super::raw::{self, Link};
use crate::allocator;

/// Two places of 32 bits: the number of a cache line, without the high bits, which are those of any
/// block's address. (Wrong for blocks that are 256 GiB away from the first.) Zero is empty.
#[repr(transparent)]
pub(super) struct Hint(AtomicU64);

const LINE_BITS: u32 = 6;
const PLACE_BITS: u32 = 32;

impl Hint {
    /// No hints.
    #[cfg(loom)]
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The contents of the place for a link. There are no hints for sentinels.
    fn packed(link: *const Link) -> u64 {
        u64::from((link.addr() >> LINE_BITS) as u32)
    }

    /// Sets both hints. Either may be null.
    pub(super) fn set(&self, second: *const Link, third: *const Link) {
        self.0.store(Self::packed(second) | Self::packed(third) << PLACE_BITS, Ordering::Relaxed);
    }

    /// Adds an element that is not its bucket's first (null: none). Writes only if there is room.
    #[inline]
    pub(super) fn add(&self, link: *const Link) {
        if link.is_null() {
            return;
        }
        let hints = self.0.load(Ordering::Relaxed);
        let (second, third) = (hints as u32, hints >> PLACE_BITS);
        if second == 0 {
            self.0.store(hints | Self::packed(link), Ordering::Relaxed);
        } else if third == 0 {
            self.0.store(hints | Self::packed(link) << PLACE_BITS, Ordering::Relaxed);
        }
    }

    /// Removes an element. Writes only if there is a hint for it.
    #[inline]
    pub(super) fn remove(&self, link: *const Link) {
        let hints = self.0.load(Ordering::Relaxed);
        let packed = Self::packed(link);
        if hints & u64::from(u32::MAX) == packed {
            // The third moves up.
            self.0.store(hints >> PLACE_BITS, Ordering::Relaxed);
        } else if hints >> PLACE_BITS == packed {
            self.0.store(hints & u64::from(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Prefetches the hinted elements.
    #[inline]
    pub(super) fn prefetch(&self) {
        for place in self.places() {
            if !place.is_null() {
                raw::prefetch_element(place);
            }
        }
    }

    /// Whether there is a hint for a link.
    #[cfg(all(test, not(loom)))]
    pub(super) fn contains(&self, link: *const Link) -> bool {
        self.places().iter().any(|place| !place.is_null() && place.addr() >> LINE_BITS == link.addr() >> LINE_BITS)
    }

    /// The addresses of the hinted cache lines; null for none.
    #[inline]
    fn places(&self) -> [*const Link; 2] {
        let hints = self.0.load(Ordering::Relaxed);
        let high = allocator::first_chunk() as u64 >> (LINE_BITS + PLACE_BITS) << (LINE_BITS + PLACE_BITS);
        [hints & u64::from(u32::MAX), hints >> PLACE_BITS].map(|place| match place {
            0 => std::ptr::null(),
            place => std::ptr::without_provenance((high | place << LINE_BITS) as usize),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Three links on cache lines of their own, in a block.
    #[repr(C, align(64))]
    struct Scene {
        hint: Hint,
        links: [CacheLine; 3],
    }

    #[repr(C, align(64))]
    struct CacheLine(Link);

    impl Scene {
        fn new() -> allocator::BlockBox<Self> {
            let line = || CacheLine(Link::detached());
            allocator::BlockBox::new(Self { hint: Hint(AtomicU64::new(0)), links: [line(), line(), line()] })
        }

        fn link(&self, index: usize) -> *const Link {
            &raw const self.links[index].0
        }

        /// The links for which there are hints. (Blocks may straddle a multiple of 256 GiB, but not
        /// in so small a process.)
        fn hinted(&self) -> Vec<Option<usize>> {
            let of = |place: *const Link| (0..3).find(|&i| self.link(i) == place);
            self.hint.places().map(of).to_vec()
        }
    }

    #[test]
    fn add_fills_only_empty_places() {
        let scene = Scene::new();
        assert_eq!(scene.hinted(), [None, None]);
        for (index, expected) in [[Some(0), None], [Some(0), Some(1)], [Some(0), Some(1)]].iter().enumerate() {
            scene.hint.add(scene.link(index));
            assert_eq!(scene.hinted(), expected, "after {index}");
        }
        scene.hint.set(scene.link(2), std::ptr::null());
        assert_eq!(scene.hinted(), [Some(2), None]);
    }

    #[test]
    fn removed_element_has_no_hint() {
        let scene = Scene::new();
        scene.hint.set(scene.link(0), scene.link(1));
        scene.hint.remove(scene.link(2));
        assert_eq!(scene.hinted(), [Some(0), Some(1)], "it was not among them");
        scene.hint.remove(scene.link(0));
        assert_eq!(scene.hinted(), [Some(1), None], "the other moves up");
        scene.hint.add(scene.link(2));
        scene.hint.remove(scene.link(2));
        assert_eq!(scene.hinted(), [Some(1), None]);
        scene.hint.remove(scene.link(1));
        assert_eq!(scene.hinted(), [None, None]);
    }
}
