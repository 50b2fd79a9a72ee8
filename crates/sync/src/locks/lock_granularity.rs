//! `LockGranularity`: how finely the names of one directory are locked.
//!
//! A lock for each name lets threads in one directory pass each other. But names fall under the stripes of [`crate::NameLocks`] at
//! random, and so do those of all other directories: a thread that is alone in its directory takes, for each new name, a line
//! that some other core had last. So all names of a directory have *one* lock, on one line that stays where it is used, until two
//! threads get into each other's way; from then on each name has its own. (As with counts and times, which lie in one stripe
//! until threads contend for it: [`Striped`](crate::Striped).)
//!
//! ```text
//!  coarse --(somebody found the lock taken)--> crowded --(by one who holds that lock)--> fine
//! ```
//!
//! Who changes a name asks for its [`key`](LockGranularity::key), takes the lock of that, and asks whether the key
//! [`stands`](LockGranularity::stands). Two who hold the lock of one name, by keys that stand, are never there at the same time: two
//! coarse keys are one lock, and so are two fine ones. A coarse key stands only as long as nobody has made it fine, and that
//! is done with the coarse lock in hand: before it, everybody who held one has given it back; after it, none that is taken stands.
//! Nor does it ever become coarse again.

use crate::{
    facade::{AtomicBool, Ordering},
    locks::name_locks::NameKey,
};

/// No name has this hash: it stands for all of a directory.
const ALL: u64 = u64::MAX - 1;

/// How finely the names of one directory are locked.
#[derive(Debug)]
pub struct LockGranularity {
    /// Somebody has found the lock taken: whoever holds it next makes it fine.
    crowded: AtomicBool,
    /// A lock for each name; for good.
    fine: AtomicBool,
}

impl LockGranularity {
    /// One lock for all names, until threads get into each other's way.
    #[must_use]
    pub fn coarse() -> Self {
        Self { crowded: AtomicBool::new(false), fine: AtomicBool::new(false) }
    }

    /// A lock for each name, from the start: for locks that are held while somebody else is asked for something.
    #[must_use]
    pub fn fine() -> Self {
        Self { crowded: AtomicBool::new(true), fine: AtomicBool::new(true) }
    }

    /// What to lock for the name of this hash, in the directory of this number. Once that is locked, ask whether it
    /// [`stands`](LockGranularity::stands).
    #[inline]
    #[must_use]
    pub fn key(&self, dir: u64, hash: u64) -> NameKey {
        // Acquire: those who held the coarse lock have done what they did.
        let hash = if self.fine.load(Ordering::Acquire) { hash } else { ALL };
        NameKey { dir, hash }
    }

    /// Whether the lock of `key`, which is held, is the one that everybody takes for that name. If not it is given back, and
    /// another key asked for.
    #[inline]
    #[must_use]
    pub fn stands(&self, key: NameKey) -> bool {
        // Relaxed: it was made fine by one who held this lock, and he wished it before that.
        key.hash != ALL || !self.crowded.load(Ordering::Relaxed) || self.refine()
    }

    /// With the coarse lock held: makes it fine, if it is not. What is held is not the name's lock, then.
    #[cold]
    fn refine(&self) -> bool {
        // Release: what was done under the coarse lock is done.
        self.fine.store(true, Ordering::Release);
        false
    }

    /// The lock of some name in here was found taken. The next one who has it makes it a finer one.
    #[cold]
    pub fn note_contention(&self) {
        // Looked at first: it is on a line that everybody reads. Relaxed: a wish.
        if !self.crowded.load(Ordering::Relaxed) {
            self.crowded.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_get_locks_of_their_own_when_one_was_in_the_way() {
        let grain = LockGranularity::coarse();
        let [a, b] = [1, 2].map(|hash| grain.key(7, hash));
        assert_eq!(a, b);
        assert_ne!(a, grain.key(8, 1));
        assert!(grain.stands(a), "nobody was in the way");
        grain.note_contention();
        let crowded = grain.key(7, 1);
        assert_eq!(crowded, a, "others may hold the lock of all");
        assert!(!grain.stands(crowded));
        let [a, b] = [1, 2].map(|hash| grain.key(7, hash));
        assert_ne!(a, b);
        assert!(grain.stands(a) && !grain.stands(crowded));
        grain.note_contention();
        assert_eq!(grain.key(7, 1), a, "for good");
    }

    #[test]
    fn what_is_fine_from_the_start_stays_so() {
        let grain = LockGranularity::fine();
        grain.note_contention();
        assert_eq!(grain.key(7, 1), NameKey { dir: 7, hash: 1 });
        assert!(grain.stands(grain.key(7, 1)));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
