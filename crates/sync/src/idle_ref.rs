//! `IdleRef`: a reference count that may rest at zero, for what a cache keeps while nobody uses it.
//!
//! A [`LockRef`](crate::LockRef) is dead at zero. What a cache holds is not: the last user goes, the object stays, and the next
//! look-up *revives* it by counting from zero to one. Only eviction kills, and only what rests. Last put, revival and
//! eviction race for one word, and each has its answer from its own read-modify-write (P8):
//!
//! ```text
//! last user                    a look-up                     eviction
//! put: 1 -> 0, resting
//!                              get: 0 -> 1, revived
//!                                                            kill_idle: 1, refused: somebody uses it
//!
//! put: 1 -> 0, resting
//!                                                            kill_idle: 0 -> dead: its to take apart
//!                              get: dead, refused: a miss
//! ```
//!
//! The same protocol as that of Linux's `lockref`, with its `lockref_mark_dead`, without the lock.

use crate::facade::{AtomicUsize, Ordering};

/// Set once the object is dead, for ever.
const DEAD: usize = 1 << (usize::BITS - 1);

/// A reference count that may rest at zero until it is revived or killed.
#[derive(Debug)]
pub struct IdleRef {
    /// The number of references, or [`DEAD`].
    word: AtomicUsize,
}

/// What a [`IdleRef::put`] has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever leaves an object at rest tells the cache"]
pub enum Rest {
    /// Others still use the object.
    InUse,
    /// This was the last user: the object rests. Unless the caller keeps it readable by other means (a guard, the
    /// cache's lock), it may be killed and gone by now.
    Resting,
}

impl IdleRef {
    /// A count of `references`, the caller's; zero for an object that begins at rest.
    #[must_use]
    pub fn new(references: usize) -> Self {
        debug_assert!(references < DEAD);
        Self { word: AtomicUsize::new(references) }
    }

    /// One more reference, also from zero, unless the object is dead. The caller keeps the object readable meanwhile.
    #[inline]
    #[must_use]
    pub fn get(&self) -> bool {
        let mut old = self.word.load(Ordering::Relaxed);
        while old & DEAD == 0 {
            // Acquire: what earlier users did to the object before they put it is seen.
            match self.word.compare_exchange_weak(old, old + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// One more reference, for a caller that holds one already.
    #[inline]
    pub fn clone_held(&self) {
        // Relaxed: the reference that the caller holds orders everything.
        let old = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(old > 0 && old & DEAD == 0, "a reference was cloned by someone who held none");
    }

    /// One reference less.
    #[inline]
    pub fn put(&self) -> Rest {
        // Release: what this user did is seen by whoever revives or kills the object.
        let old = self.word.fetch_sub(1, Ordering::Release);
        debug_assert!(old > 0 && old & DEAD == 0, "a reference was put twice");
        if old == 1 { Rest::Resting } else { Rest::InUse }
    }

    /// Kills the object if it rests: true for the one caller that did, whose it is to take apart. No reference is got
    /// afterwards.
    #[must_use = "the one who killed it takes it apart"]
    pub fn kill_idle(&self) -> bool {
        // Acquire: what all users did is seen by whoever takes it apart.
        self.word.compare_exchange(0, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the object is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DEAD != 0
    }

    /// The references now; a hint, for caches that look for resting objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.word.load(Ordering::Relaxed) & !DEAD
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rests_revives_and_dies_once() {
        let refs = IdleRef::new(1);
        assert!(!refs.kill_idle(), "it is used");
        refs.clone_held();
        assert_eq!((refs.put(), refs.count()), (Rest::InUse, 1));
        assert_eq!((refs.put(), refs.count()), (Rest::Resting, 0));
        assert!(refs.get(), "revived");
        assert!(!refs.kill_idle() && !refs.is_dead());
        assert_eq!(refs.put(), Rest::Resting);
        assert!(refs.kill_idle() && refs.is_dead());
        assert!(!refs.kill_idle(), "killed twice");
        assert!(!refs.get(), "a dead object was revived");
        assert_eq!(refs.count(), 0);
    }

    #[test]
    fn begins_at_rest() {
        assert!(IdleRef::new(0).get());
        assert!(IdleRef::new(0).kill_idle());
    }
}

#[cfg(all(test, loom))]
#[path = "idle_ref_loom.rs"]
mod loom_model;
