//! `LockRef`: a reference count that is dead at zero, and a bit that condemns it, in one word.

use crate::facade::{AtomicUsize, Ordering};

/// A reference count that knows it is dead: once the last reference is put, no other can be got.
///
/// The word: the number of references in the low 47 bits, where zero is dead and stays so; a bit that says that no more
/// will be given out although some are left; above them a constant of the
/// object's allocator (see `counted`), which no operation changes.
#[derive(Debug)]
pub struct LockRef {
    word: AtomicUsize,
}

/// The bits that count.
const COUNT: usize = CONDEMNED - 1;
/// References are put and cloned as ever, but none is got any more.
const CONDEMNED: usize = 1 << (TAG_SHIFT - 1);
/// Where the constant begins.
const TAG_SHIFT: u32 = usize::BITS - 16;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("pando-sync needs pointers of 64 bits: a count and its allocator's constant take one word");

/// References that were forgotten may be so many that the count runs over into the bits beside it: long before that the
/// process ends, as with the standard library's.
#[inline]
fn check(old: usize) {
    if old & COUNT > COUNT / 2 {
        std::process::abort();
    }
}

impl LockRef {
    /// A count of two, both the caller's, beside a constant.
    pub(crate) fn two_tagged(tag: u16) -> Self {
        Self { word: AtomicUsize::new(2 | usize::from(tag) << TAG_SHIFT) }
    }

    /// The constant.
    pub(crate) fn tag(&self) -> u16 {
        (self.word.load(Ordering::Relaxed) >> TAG_SHIFT) as u16
    }

    /// A count of so many references, all of them the caller's.
    #[must_use]
    pub fn new(references: usize) -> Self {
        Self { word: AtomicUsize::new(references) }
    }

    /// One more reference, for a caller that holds one already.
    pub fn clone_held(&self) {
        // Relaxed: the reference that the caller holds orders everything.
        let old = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(old & COUNT > 0, "a reference was cloned from a dead count");
        check(old);
    }

    /// One more reference; none if the count is dead. Says whether another thread was in the way.
    #[must_use]
    pub fn get(&self) -> Option<bool> {
        let mut contended = false;
        let mut old = self.word.load(Ordering::Relaxed);
        while old & COUNT != 0 && old & CONDEMNED == 0 {
            // Acquire: pairs with `reprieve`.
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

    /// So many references less, at once; true if they were the last, which leaves the count dead.
    #[must_use]
    pub fn put(&self, references: usize) -> bool {
        let old = self.word.fetch_sub(references, Ordering::AcqRel);
        debug_assert!(old & COUNT >= references, "a reference was put twice");
        old & COUNT == references
    }

    /// If there are exactly `references`, all of which the caller answers for: gives out no more. False if there are others.
    #[must_use]
    pub fn condemn(&self, references: usize) -> bool {
        let old = self.word.load(Ordering::Relaxed);
        // Acquire: what the holders of other references did before they put them has happened.
        old & (COUNT | CONDEMNED) == references
            && self.word.compare_exchange(old, old | CONDEMNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes back what [`LockRef::condemn`] did: references are given out again. For who condemned it.
    pub fn reprieve(&self) {
        // Release: whoever gets a reference sees what was done while there were none to get.
        let old = self.word.fetch_and(!CONDEMNED, Ordering::Release);
        debug_assert!(old & CONDEMNED != 0, "a count was reprieved that was not condemned");
    }

    /// The references now; a hint, for diagnostics and for caches that look for idle objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.word.load(Ordering::Relaxed) & COUNT
    }
}

#[cfg(all(test, loom))]
mod loom_model;
