//! `Departures`: which keys have left a cache lately.
//!
//! A cache asks a store about a key, without a lock. Meanwhile the key may leave the cache, and the
//! store may be told that it is not in use any more. Then the answer must not be used. It may be
//! older than what the cache had, or what it refers to may be gone from the store. So a thread
//! notes the moment before it asks, and when it has inserted the answer it checks whether the key
//! has left since.
//!
//! ```text
//!  thread that loads                       thread that tells the store
//!  moment := now                           leaving := leave(key)
//!  ask the store                           is the key still unused?
//!  insert the answer: the key is in use      tell the store
//!  left since moment? drop it, ask again   drop(leaving)
//! ```
//!
//! The last moment of each key is kept by class, so a check may say yes although only another key
//! of the class has left. Then the thread asks again under a lock. A load writes nothing here.

use crate::{
    facade::{AtomicU64, Ordering},
    tuning::DEPARTURE_CLASSES,
};

/// The number of bits that count the keys of a class that are leaving at present.
const LEAVING_BITS: u32 = 16;

/// The moments at which keys have left.
#[derive(Debug)]
pub struct Departures {
    /// The number of departures that have ended.
    clock: AtomicU64,
    /// For each class the moment of the last departure, and in the low bits how many keys are
    /// leaving.
    classes: Box<[AtomicU64]>,
}

/// An instant. Departures that end later have a later moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(u64);

/// A key that is leaving, until this is dropped.
#[derive(Debug)]
#[must_use = "the key is leaving only while this lives"]
pub struct Leaving<'a> {
    of: &'a Departures,
    class: &'a AtomicU64,
}

impl Departures {
    /// No key has left yet.
    #[must_use]
    pub fn new() -> Self {
        Self { clock: AtomicU64::new(0), classes: (0..DEPARTURE_CLASSES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        // All operations here are SeqCst: they are ordered with each other and with the insertion
        // of the key, which the caller makes under a lock.
        Moment(self.clock.load(Ordering::SeqCst))
    }

    /// Begins the departure of a key. What the caller does until it drops the result counts as one
    /// instant, which is later than any moment that was noted before the drop.
    pub fn leave(&self, key: u64) -> Leaving<'_> {
        let class = self.class(key);
        class.fetch_add(1, Ordering::SeqCst);
        Leaving { of: self, class }
    }

    /// Whether the key, or another one of its class, has left since a moment, or is leaving.
    #[must_use]
    pub fn any_since(&self, key: u64, moment: Moment) -> bool {
        let class = self.class(key).load(Ordering::SeqCst);
        class & ((1 << LEAVING_BITS) - 1) != 0 || class >> LEAVING_BITS > moment.0
    }

    fn class(&self, key: u64) -> &AtomicU64 {
        // The high bits of a product depend on all bits of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.classes[hash as usize % self.classes.len()]
    }
}

impl Default for Departures {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let now = self.of.clock.fetch_add(1, Ordering::SeqCst) + 1;
        let mut class = self.class.load(Ordering::SeqCst);
        loop {
            let leaving = (class & ((1 << LEAVING_BITS) - 1)) - 1;
            let last = (class >> LEAVING_BITS).max(now);
            match self.class.compare_exchange(class, last << LEAVING_BITS | leaving, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return,
                Err(other) => class = other,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_departure_is_seen_from_moments_before_its_end() {
        let departures = Departures::new();
        let before = departures.now();
        assert!(!departures.any_since(7, before));
        let leaving = departures.leave(7);
        let during = departures.now();
        assert!(departures.any_since(7, before) && departures.any_since(7, during));
        drop(leaving);
        assert!(departures.any_since(7, before) && departures.any_since(7, during));
        assert!(!departures.any_since(7, departures.now()));
    }

    /// Keys that differ in few bits are not all in one class.
    #[test]
    fn other_keys_are_mostly_not_concerned() {
        let departures = Departures::new();
        let before = departures.now();
        drop(departures.leave(1000));
        let concerned = (0..1000).filter(|key| departures.any_since(*key, before)).count();
        assert!(concerned < 10, "{concerned} of 1000 keys are in the class of one");
    }

    #[test]
    fn two_keys_of_one_class_leave_at_the_same_time() {
        let departures = Departures::new();
        let (first, second) = (departures.leave(7), departures.leave(7));
        drop(first);
        let between = departures.now();
        assert!(departures.any_since(7, between), "one is still leaving");
        drop(second);
        assert!(departures.any_since(7, between));
        assert!(!departures.any_since(7, departures.now()));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
