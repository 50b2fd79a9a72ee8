//! Hints: where a bucket's second and third element probably lie.
//!
//! The elements of a bucket stand in a list, so a look-up that wants the third waits for memory three times in a row. A
//! sentinel has eight bytes to spare: enough for two addresses, which are asked for together with the first. Nothing is
//! ever read through them. A hint that has become wrong costs a line that nobody wanted, and can do no harm, whatever
//! has become of that memory. So they need no order and no care: who inserts fills an empty place, who removes what a
//! hint names empties it, and linking a sentinel looks anew.

use std::sync::atomic::{AtomicU64, Ordering};

use super::raw::{self, Link};
use crate::allocator;

/// Two places of 32 bits: the number of a cache line, without the high bits, which are those of any block's address. (Wrong for
/// blocks that lie 256 GiB away from the first.) Zero is empty.
#[repr(transparent)]
pub(super) struct Hint(AtomicU64);

const LINE_BITS: u32 = 6;
const PLACE_BITS: u32 = 32;

impl Hint {
    /// Nothing.
    #[cfg(loom)]
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The place's content for a link; sentinels are not hinted at.
    fn packed(link: *const Link) -> u64 {
        u64::from((link.addr() >> LINE_BITS) as u32)
    }

    /// Notes these two, either of which may be null.
    pub(super) fn set(&self, second: *const Link, third: *const Link) {
        self.0.store(Self::packed(second) | Self::packed(third) << PLACE_BITS, Ordering::Relaxed);
    }

    /// An element is not its bucket's first, or no more. (Null for none.) Writes only if there is room.
    #[inline]
    pub(super) fn came(&self, link: *const Link) {
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

    /// An element has gone. Writes only if it was hinted at.
    #[inline]
    pub(super) fn went(&self, link: *const Link) {
        let hints = self.0.load(Ordering::Relaxed);
        let packed = Self::packed(link);
        if hints & u64::from(u32::MAX) == packed {
            // The third moves up.
            self.0.store(hints >> PLACE_BITS, Ordering::Relaxed);
        } else if hints >> PLACE_BITS == packed {
            self.0.store(hints & u64::from(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Asks for what is hinted at.
    #[inline]
    pub(super) fn prefetch(&self) {
        for place in self.places() {
            if !place.is_null() {
                raw::prefetch_element(place);
            }
        }
    }

    /// Whether a link is among what is hinted at.
    #[cfg(all(test, not(loom)))]
    pub(super) fn names(&self, link: *const Link) -> bool {
        self.places().iter().any(|place| !place.is_null() && place.addr() >> LINE_BITS == link.addr() >> LINE_BITS)
    }

    /// The lines that are hinted at; null for none.
    #[inline]
    fn places(&self) -> [*const Link; 2] {
        let hints = self.0.load(Ordering::Relaxed);
        let high = allocator::vicinity() as u64 >> (LINE_BITS + PLACE_BITS) << (LINE_BITS + PLACE_BITS);
        [hints & u64::from(u32::MAX), hints >> PLACE_BITS].map(|place| match place {
            0 => std::ptr::null(),
            place => std::ptr::without_provenance((high | place << LINE_BITS) as usize),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Three links on lines of their own, in a block.
    #[repr(C, align(64))]
    struct Scene {
        hint: Hint,
        links: [Line; 3],
    }

    #[repr(C, align(64))]
    struct Line(Link);

    impl Scene {
        fn new() -> allocator::BlockBox<Self> {
            let line = || Line(Link::nowhere());
            allocator::BlockBox::new(Self { hint: Hint(AtomicU64::new(0)), links: [line(), line(), line()] })
        }

        fn link(&self, index: usize) -> *const Link {
            &raw const self.links[index].0
        }

        /// Which links are hinted at. (Blocks may straddle a multiple of 256 GiB; they do not in a process so small.)
        fn hinted(&self) -> Vec<Option<usize>> {
            let of = |place: *const Link| (0..3).find(|&i| self.link(i) == place);
            self.hint.places().map(of).to_vec()
        }
    }

    #[test]
    fn empty_places_are_filled_and_no_others() {
        let scene = Scene::new();
        assert_eq!(scene.hinted(), [None, None]);
        for (index, expected) in [[Some(0), None], [Some(0), Some(1)], [Some(0), Some(1)]].iter().enumerate() {
            scene.hint.came(scene.link(index));
            assert_eq!(scene.hinted(), expected, "after {index}");
        }
        scene.hint.set(scene.link(2), std::ptr::null());
        assert_eq!(scene.hinted(), [Some(2), None]);
    }

    #[test]
    fn what_has_gone_is_hinted_at_no_more() {
        let scene = Scene::new();
        scene.hint.set(scene.link(0), scene.link(1));
        scene.hint.went(scene.link(2));
        assert_eq!(scene.hinted(), [Some(0), Some(1)], "it was not among them");
        scene.hint.went(scene.link(0));
        assert_eq!(scene.hinted(), [Some(1), None], "the other moves up");
        scene.hint.came(scene.link(2));
        scene.hint.went(scene.link(2));
        assert_eq!(scene.hinted(), [Some(1), None]);
        scene.hint.went(scene.link(1));
        assert_eq!(scene.hinted(), [None, None]);
    }
}
