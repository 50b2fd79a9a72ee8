//! A host that is made slow, for experiments.

use std::{
    num::NonZeroUsize,
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use pando_sync::lock;

/// How slow a host is made: how long each item takes, and how many calls are served at once. Others
/// wait.
///
/// An item is a name to look up, an inode whose attributes are read, a list of extended attributes,
/// the start of a listing, or a change. The items of one call are served one after the other. Reads
/// and writes of contents take no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    per_item: Duration,
    depth: NonZeroUsize,
}

impl Latency {
    /// `per_item` for each item, and `depth` calls at once.
    #[must_use]
    pub const fn new(per_item: Duration, depth: NonZeroUsize) -> Self {
        Self { per_item, depth }
    }
}

/// The places where calls wait.
#[derive(Debug)]
pub(crate) struct Slots {
    per_item: Duration,
    /// How many calls may begin now. A leaf.
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    pub(crate) fn new(latency: Latency) -> Self {
        Self { per_item: latency.per_item, free: Mutex::new(latency.depth.get()), freed: Condvar::new() }
    }

    /// Waits as long as a call for this many items takes. The items are not answered singly, so
    /// that a call of many costs one wake-up.
    pub(crate) fn wait(&self, items: usize) {
        let mut free =
            self.freed.wait_while(lock(&self.free), |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        drop(free);
        thread::sleep(self.per_item.saturating_mul(u32::try_from(items).unwrap_or(u32::MAX)));
        *lock(&self.free) += 1;
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn calls_beyond_the_depth_wait_for_others() {
        let slots = Slots::new(Latency::new(Duration::from_millis(10), NonZeroUsize::new(2).unwrap()));
        let long_ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    slots.wait(50);
                    long_ended.fetch_add(1, SeqCst);
                });
            }
            while *lock(&slots.free) > 0 && long_ended.load(SeqCst) < 2 {
                thread::yield_now();
            }
            // With a slot of its own it would end long before them.
            slots.wait(1);
            assert!(*lock(&slots.free) <= 2);
            // A slot is free just before the call that had it returns.
            while long_ended.load(SeqCst) == 0 {
                assert!(*lock(&slots.free) > 0, "both are still waiting");
                thread::yield_now();
            }
        });
        assert_eq!(*lock(&slots.free), 2);
    }
}
