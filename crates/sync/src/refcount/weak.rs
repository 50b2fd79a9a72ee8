//! `Weak`: a pointer to a counted object that counts nothing, and knows when the object has died.
//!
//! For caches: what they remember of others costs those nothing, and keeps nothing alive. A [`Weak`] notes, besides the
//! address, how many objects of that address's stripe have died so far. As long as that number stands, the object has
//! not: whoever puts the last reference counts the death before the object is retired. So a reader with a guard who
//! finds the number unchanged may read the object: it is retired later, if at all, and then waits for the guard.
//!
//! Only objects that say so ([`Object::may_be_remembered`]) have such pointers: each death of one writes a line that others
//! read.

use crate::tuning::DEATH_STRIPES;
use std::ptr::NonNull;

use crate::{
    base::{padded::OwnLine, prefetch::prefetch},
    facade::{AtomicU64, Ordering},
    reclaim::Guard,
    refcount::counted::{Block, Object, Shared},
};

/// Addresses that differ in lower bits only are those of one object.
const ADDRESS_BITS: u32 = 8;

#[cfg(not(loom))]
static DEATHS: [OwnLine<AtomicU64>; DEATH_STRIPES] = [const { OwnLine(AtomicU64::new(0)) }; DEATH_STRIPES];
#[cfg(loom)]
loom::lazy_static! {
    static ref DEATHS: [OwnLine<AtomicU64>; DEATH_STRIPES] = [OwnLine(AtomicU64::new(0)), OwnLine(AtomicU64::new(0))];
}

#[inline]
fn deaths<T>(block: NonNull<Block<T>>) -> &'static AtomicU64 {
    &DEATHS[(block.addr().get() >> ADDRESS_BITS) % DEATH_STRIPES].0
}

/// Counts a death: of an object whose count is dead, and that is not retired yet.
#[inline]
pub(crate) fn note_death<T>(block: NonNull<Block<T>>) {
    // Release: whoever sees this number sees the dead count. (And the object is retired after it: before its memory waits for
    // guards there is a fence, as in the making of a guard.)
    deaths(block).fetch_add(1, Ordering::Release);
}

/// A pointer to an object that may have died since.
pub struct Weak<T: Object> {
    block: NonNull<Block<T>>,
    /// How many objects of this stripe had died when this one was alive.
    deaths: u64,
}

impl<T: Object> Weak<T> {
    /// None if the object is dead, or not one of those that have such pointers.
    pub(crate) fn new(object: Shared<'_, T>) -> Option<Self> {
        if !object.to_ref().may_be_remembered() {
            return None;
        }
        let block = object.as_raw();
        // Acquire, and before the count is looked at: if the death of this object is among those counted here, its count is
        // seen to be dead.
        let deaths = deaths(block).load(Ordering::Acquire);
        (object.count() > 0).then_some(Self { block, deaths })
    }

    /// Asks for the object's first line, which need not be there any more.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(self.block.as_ptr());
    }

    /// The object, unless it (or another of its stripe) has died since. Writes nothing.
    #[inline]
    #[must_use]
    pub fn upgrade<'g>(&self, _guard: &'g Guard) -> Option<Shared<'g, T>> {
        // Relaxed: the fences of guard and retirement order it, and this thread has read the object before.
        if deaths(self.block).load(Ordering::Relaxed) != self.deaths {
            return None;
        }
        // SAFETY: it was alive when `deaths` were counted, and its own death is not among them: that is counted before it is
        // retired. So it was not retired before the guard was made, and its memory waits for the guard.
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
        fn may_be_remembered(&self) -> bool {
            self.1
        }
    }

    fn weak(word: &Counted<Word>) -> Option<Weak<Word>> {
        word.as_shared().downgrade()
    }

    #[test]
    fn it_leads_to_the_object_while_that_lives_and_then_nowhere() {
        let word = Counted::new(Word(7, true));
        // Objects of other tests die meanwhile. A death of the same stripe ends a weak reference.
        let leads_there = |weak: &Weak<Word>| weak.upgrade(&pin()).map(|word| word.to_ref().0) == Some(7);
        let pointer = std::iter::repeat_with(|| weak(&word).expect("it lives")).take(10_000).find(leads_there);
        let pointer = pointer.expect("no object of the stripe died between two steps");
        assert_eq!(Counted::count(&word), 1, "nothing is counted");
        let guard = pin();
        let seen = word.share(&guard);
        drop(word);
        assert!(pointer.upgrade(&guard).is_none());
        assert_eq!(seen.to_ref().0, 7, "whoever found it before goes on");
        assert!(seen.downgrade().is_none(), "it is dead");
        drop(guard);
        collect();
        assert!(pointer.upgrade(&pin()).is_none());
    }

    #[test]
    fn who_does_not_say_so_is_not_remembered() {
        assert!(weak(&Counted::new(Word(7, false))).is_none());
    }

    /// Objects die and are made anew at the same addresses under readers that remember the former.
    #[test]
    fn a_new_object_at_an_old_address_is_not_taken_for_the_old() {
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
