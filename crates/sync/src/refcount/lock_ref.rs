//! `LockRef`: a reference count that is dead at zero, and a bit that freezes it, in one word.

use crate::facade::{AtomicUsize, Ordering};

/// A reference count that cannot be revived: when the last reference has been put, no thread can
/// get another.
///
/// The word has the number of references in the low 47 bits. Zero means dead, for ever. The next
/// bit means frozen: no more references are given out, although some are left. The bits above are a
/// constant for the allocator of the object (see `counted`), which no operation changes.
#[derive(Debug)]
pub struct LockRef {
    word: AtomicUsize,
}

/// The bits of the count.
const COUNT: usize = FROZEN - 1;
/// The count is frozen: references can be put and cloned, but not got.
const FROZEN: usize = 1 << (TAG_SHIFT - 1);
/// The shift of the constant.
const TAG_SHIFT: u32 = usize::BITS - 16;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("pando-sync needs pointers of 64 bits: a count and its allocator's constant take one word");

/// If references are leaked, the count could overflow into the bits above it. Long before that the
/// process aborts, as it does with the standard library's `Arc`.
#[inline]
fn check(old: usize) {
    if old & COUNT > COUNT / 2 {
        std::process::abort();
    }
}

impl LockRef {
    /// A count of two, beside a constant. Both references belong to the caller.
    pub(crate) fn two_tagged(tag: u16) -> Self {
        Self { word: AtomicUsize::new(2 | usize::from(tag) << TAG_SHIFT) }
    }

    /// The constant.
    pub(crate) fn tag(&self) -> u16 {
        (self.word.load(Ordering::Relaxed) >> TAG_SHIFT) as u16
    }

    /// A count of so many references. All of them belong to the caller.
    #[must_use]
    pub fn new(references: usize) -> Self {
        Self { word: AtomicUsize::new(references) }
    }

    /// Adds a reference. The caller holds one already.
    pub fn clone_held(&self) {
        // Relaxed: the reference that the caller holds orders everything.
        let old = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(old & COUNT > 0, "a reference was cloned from a dead count");
        check(old);
    }

    /// Adds a reference, or returns `None` if the count is dead or frozen. The result says whether
    /// another thread changed the word at the same time (contention).
    #[must_use]
    pub fn get(&self) -> Option<bool> {
        let mut contended = false;
        let mut old = self.word.load(Ordering::Relaxed);
        while old & COUNT != 0 && old & FROZEN == 0 {
            // Acquire: pairs with the release in `unfreeze`.
            match self.word.compare_exchange_weak(old, old + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    check(old);
                    return Some(contended);
                }
                Err(now) => (old, contended) = (now, true),
            }
        }
        None
    }

    /// Removes so many references at once. Returns true if they were the last: then the count is
    /// dead.
    #[must_use]
    pub fn put(&self, references: usize) -> bool {
        let old = self.word.fetch_sub(references, Ordering::AcqRel);
        debug_assert!(old & COUNT >= references, "a reference was put twice");
        old & COUNT == references
    }

    /// Freezes the count if there are exactly `references`, all of which belong to the caller.
    /// Returns false if there are others.
    #[must_use]
    pub fn freeze(&self, references: usize) -> bool {
        let old = self.word.load(Ordering::Relaxed);
        // Acquire: sees what the holders of other references did before they put them.
        old & (COUNT | FROZEN) == references
            && self.word.compare_exchange(old, old | FROZEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Undoes [`LockRef::freeze`]: references can be got again. Called by the thread that froze the
    /// count.
    pub fn unfreeze(&self) {
        // Release: a thread that gets a reference sees what was done while the count was frozen.
        let old = self.word.fetch_and(!FROZEN, Ordering::Release);
        debug_assert!(old & FROZEN != 0, "a count was unfrozen that was not frozen");
    }

    /// How many references there are; a hint, for diagnostics and for caches that look for idle
    /// objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.word.load(Ordering::Relaxed) & COUNT
    }
}

#[cfg(all(test, loom))]
mod loom_model;
