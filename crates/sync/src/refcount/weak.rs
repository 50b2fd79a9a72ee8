//! `Weak`: a weak pointer to a reference-counted object, for caches.
//!
//! It holds no reference and does not keep the object alive. [`Weak::upgrade`] returns the object
//! only if it can be read. An object *dies* when its last reference is put. Its death is counted
//! then, and `upgrade` fails from then on. It may also fail before, so a cache must be able to look
//! the object up again.
//!
//! There are some hundred *death counters*. A hash of the object's address selects its counter. A
//! [`Weak`] holds the address, and the value of the counter when the object was alive. The thread
//! that puts the last reference increments the counter, and only then retires the object. So a
//! reader that holds a guard and finds the old value can read the object. The object may be dead,
//! and may even be retired, but it is not freed before the guard is dropped. The death of another
//! object with the same counter makes `upgrade` fail, too.
//!
//! A weak pointer adds nothing to its object. But each death of an object that allows weak pointers
//! ([`Object::allows_weak`]) writes a counter that other threads read.

use crate::tuning::DEATH_STRIPES;
use std::ptr::NonNull;

use crate::{
    base::{padded::OwnLine, prefetch::prefetch},
    facade::{AtomicU64, Ordering},
    reclaim::Guard,
    refcount::counted::{Block, Object, Shared},
};

/// The number of low bits of an address that its hash ignores. Objects that allow weak pointers are
/// larger than that; smaller ones would share counters.
const ADDRESS_BITS: u32 = 8;

/// The death counters.
#[cfg(not(loom))]
static DEATHS: [OwnLine<AtomicU64>; DEATH_STRIPES] = [const { OwnLine(AtomicU64::new(0)) }; DEATH_STRIPES];
#[cfg(loom)]
loom::lazy_static! {
    static ref DEATHS: [OwnLine<AtomicU64>; DEATH_STRIPES] = [OwnLine(AtomicU64::new(0)), OwnLine(AtomicU64::new(0))];
}

#[inline]
fn deaths<T>(block: NonNull<Block<T>>) -> &'static AtomicU64 {
    &DEATHS[stripe(block.addr().get())].0
}

/// The stripe of an address. The allocator puts objects of one kind at the same place of each of
/// its pages. So the address is hashed: its low bits alone would lead many objects to one stripe.
#[inline]
fn stripe(address: usize) -> usize {
    /// 2^64 over the golden ratio.
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (address as u64 >> ADDRESS_BITS).wrapping_mul(MULTIPLIER);
    (hash >> 32) as usize % DEATH_STRIPES
}

/// Counts a death. The reference count of the object is dead, and the object is not retired yet.
#[inline]
pub(crate) fn note_death<T>(block: NonNull<Block<T>>) {
    // Release pairs with the Acquire of `Weak::new`: a thread that sees this death sees the dead
    // count, too. `upgrade` needs no more. The object is retired after this, and a fence follows.
    // Either the grace period of the object waits for a guard, or that fence comes before the fence
    // of the guard (`GracePeriods` has the proof). In this case the holder of the guard sees this
    // death.
    deaths(block).fetch_add(1, Ordering::Release);
}

/// A pointer to an object that may have died since. It stays on its thread, because `NonNull` is
/// not `Send`: `upgrade` relies on it.
pub struct Weak<T: Object> {
    block: NonNull<Block<T>>,
    /// The value of the object's death counter when the object was alive.
    deaths: u64,
}

impl<T: Object> Weak<T> {
    /// None if the object is dead, or does not allow weak pointers.
    pub(crate) fn new(object: Shared<'_, T>) -> Option<Self> {
        if !object.to_ref().allows_weak() {
            return None;
        }
        let block = object.as_raw();
        // This is read before the reference count, and with Acquire: if it already includes the
        // death of this object, the count below is seen to be dead.
        let deaths = deaths(block).load(Ordering::Acquire);
        (object.count() > 0).then_some(Self { block, deaths })
    }

    /// Prefetches the object's first cache line, which may have been freed.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(self.block.as_ptr());
    }

    /// The object, unless its death has been counted, or that of another object with the same
    /// counter. Writes nothing.
    ///
    /// The last reference of the object may have been put already. To keep it, take a reference,
    /// which can fail.
    #[inline]
    #[must_use]
    pub fn upgrade<'g>(&self, _guard: &'g Guard) -> Option<Shared<'g, T>> {
        // Relaxed: the fences of the guard and of the grace period give the order, see
        // `note_death`. The contents of the object are visible, since this thread has read it
        // before.
        if deaths(self.block).load(Ordering::Relaxed) != self.deaths {
            return None;
        }
        // SAFETY: the object was alive when `new` read the counter, and this thread does not see
        // its death counted. So the grace period that precedes its release sees this guard, and
        // waits for it: see `note_death`.
        Some(unsafe { Shared::from_raw(self.block) })
    }
}

impl<T: Object> std::fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weak").field("block", &self.block).field("deaths", &self.deaths).finish()
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Counted, collect, pin};

    struct Word(u64, bool);
    impl Object for Word {
        fn allows_weak(&self) -> bool {
            self.1
        }
    }

    fn weak(word: &Counted<Word>) -> Option<Weak<Word>> {
        word.as_shared().downgrade()
    }

    /// Seen to fail: the low bits of the address instead of a hash.
    #[test]
    fn objects_at_the_same_place_of_many_pages_have_different_stripes() {
        for page_bits in 12..22 {
            let mut stripes: Vec<_> = (0..64).map(|page| stripe((2 << 40) + (page << page_bits))).collect();
            stripes.sort_unstable();
            stripes.dedup();
            assert!(stripes.len() > 48, "{} stripes for 64 pages of 2^{page_bits} bytes", stripes.len());
        }
    }

    #[test]
    fn upgrade_succeeds_while_the_object_lives() {
        let word = Counted::new(Word(7, true));
        // Objects of other tests die meanwhile. A death in the same stripe invalidates a weak
        // pointer.
        let upgrades = |weak: &Weak<Word>| weak.upgrade(&pin()).map(|word| word.to_ref().0) == Some(7);
        let pointer = std::iter::repeat_with(|| weak(&word).expect("it lives")).take(10_000).find(upgrades);
        let pointer = pointer.expect("no object of the stripe died between two steps");
        assert_eq!(Counted::count(&word), 1, "nothing is counted");
        let guard = pin();
        let seen = word.share(&guard);
        drop(word);
        assert!(pointer.upgrade(&guard).is_none());
        assert_eq!(seen.to_ref().0, 7, "a reader that found it before can read it");
        assert!(seen.downgrade().is_none(), "it is dead");
        drop(guard);
        collect();
        assert!(pointer.upgrade(&pin()).is_none());
    }

    #[test]
    fn downgrade_fails_without_allows_weak() {
        assert!(weak(&Counted::new(Word(7, false))).is_none());
    }

    /// Objects die and are allocated again at the same addresses, while readers hold weak pointers
    /// to the old ones.
    #[test]
    fn weak_pointer_is_not_valid_for_a_new_object_at_its_address() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let place = crate::AtomicCounted::new(Some(Counted::new(Word(0, true))));
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let reader = || {
                let mut remembered: Option<(Weak<Word>, u64)> = None;
                while !stop.load(Ordering::Relaxed) {
                    let guard = pin();
                    if let Some((pointer, number)) = &remembered
                        && let Some(word) = pointer.upgrade(&guard)
                    {
                        assert_eq!(word.to_ref().0, *number);
                        continue;
                    }
                    let now = place.load(&guard).expect("never empty");
                    remembered = now.downgrade().map(|pointer| (pointer, now.to_ref().0));
                }
            };
            s.spawn(reader);
            s.spawn(reader);
            let _stopper = crate::base::stopper::Stopper(&stop);
            for number in 1..if cfg!(miri) { 100 } else { 100_000 } {
                drop(place.swap(Some(Counted::new(Word(number, true)))));
            }
        });
    }
}
