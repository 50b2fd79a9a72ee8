//! `LockRef`: a reference count and a dead bit in one word.

use crate::facade::{AtomicUsize, Ordering};

/// A reference count that knows it is dead: once the last reference is put, no other can be got.
///
/// The word is the number of references; zero is dead and stays so.
#[derive(Debug)]
pub struct LockRef {
    word: AtomicUsize,
}

impl LockRef {
    /// A count of one, the caller's.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicUsize::new(1) }
    }

    /// One more reference, for a caller that holds one already.
    pub fn clone_held(&self) {
        // Relaxed: the reference that the caller holds orders everything.
        let old = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(old > 0, "a reference was cloned from a dead count");
    }

    /// One more reference, unless the count is dead.
    #[must_use]
    pub fn get(&self) -> bool {
        let mut old = self.word.load(Ordering::Relaxed);
        while old != 0 {
            match self.word.compare_exchange_weak(old, old + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// One reference less; true for the last one, which leaves the count dead.
    #[must_use]
    pub fn put(&self) -> bool {
        let old = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(old > 0, "a reference was put twice");
        old == 1
    }

    /// The references now; a hint, for diagnostics and for caches that look for idle objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.word.load(Ordering::Relaxed)
    }
}

impl Default for LockRef {
    fn default() -> Self {
        Self::new()
    }
}
