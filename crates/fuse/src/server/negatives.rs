//! The names that the kernel may take for missing, because it has a negative dentry.
//!
//! Such a dentry would hide an entry that the kernel has not made itself (`xcreate`). There is no
//! good way to drop it. FUSE_NOTIFY_INVAL_ENTRY waits for the lock of the directory, which the
//! caller of xcreate holds. After FUSE_NOTIFY_INC_EPOCH the kernel unmounts what is mounted in the
//! tree. So the server knows the names, and leaves them to single calls.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long the kernel may keep a negative dentry, at most. The longer it may, the more names must
/// be known; a look-up once a minute costs nothing.
pub(super) const VALID_MAX: Duration = Duration::from_secs(60);

/// How many names of a minute are known. With more, the kernel may have a negative dentry of any.
const NAMES_MAX: usize = 1 << 16;
/// A name is kept for the minute in which it came and for two more: the kernel counts its minute
/// from the reply.
const MINUTES: usize = 3;

/// A name is inserted before the reply that gives the kernel a negative dentry. The kernel holds
/// the lock of the directory until it has that reply, and while xcreate runs. So xcreate finds the
/// name.
pub(super) struct Negatives {
    recent: Mutex<Recent>,
    hasher: RandomState,
    begin: Instant,
}

/// The hashes of names.
#[derive(Default)]
struct Recent {
    minute: u64,
    names: [HashSet<u64>; MINUTES],
}

impl Negatives {
    pub(super) fn new() -> Self {
        Self { recent: Mutex::default(), hasher: RandomState::new(), begin: Instant::now() }
    }

    /// The kernel is about to get a negative dentry.
    pub(super) fn insert(&self, dir: u64, name: &[u8]) {
        self.recent().insert(self.hasher.hash_one((dir, name)));
    }

    /// The kernel has made an entry with this name, so it has no negative dentry any more. It looks
    /// up each name before.
    pub(super) fn remove(&self, dir: u64, name: &[u8]) {
        self.recent().remove(self.hasher.hash_one((dir, name)));
    }

    /// Whether the kernel may have a negative dentry. It may be true of a name that never was
    /// inserted, but rarely.
    pub(super) fn may_have(&self, dir: u64, name: &[u8]) -> bool {
        self.recent().may_have(self.hasher.hash_one((dir, name)))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        let minute = self.begin.elapsed().as_secs() / VALID_MAX.as_secs();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.expire(minute);
        recent
    }
}

impl Recent {
    /// Drops what has expired when this minute begins.
    fn expire(&mut self, minute: u64) {
        for minute in (self.minute..minute).take(MINUTES) {
            self.names[(minute + 1) as usize % MINUTES] = HashSet::new();
        }
        self.minute = self.minute.max(minute);
    }

    fn insert(&mut self, hash: u64) {
        let names = &mut self.names[self.minute as usize % MINUTES];
        if names.len() < NAMES_MAX {
            names.insert(hash);
        }
    }

    fn remove(&mut self, hash: u64) {
        // From a full set nothing is removed: it would not be full any more.
        self.names.iter_mut().filter(|names| names.len() < NAMES_MAX).for_each(|names| {
            names.remove(&hash);
        });
    }

    fn may_have(&self, hash: u64) -> bool {
        self.names.iter().any(|names| names.len() >= NAMES_MAX || names.contains(&hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_until_they_are_removed() {
        let negatives = Negatives::new();
        let name = |number: u32| number.to_ne_bytes();
        (0..2000).for_each(|number| negatives.insert(1, &name(number)));
        assert!((0..2000).all(|number| negatives.may_have(1, &name(number))));
        assert!((0..50_000).all(|number| !negatives.may_have(2, &name(number))));
        (0..1000).for_each(|number| negatives.remove(1, &name(number)));
        assert!((0..2000).all(|number| negatives.may_have(1, &name(number)) == (number >= 1000)));
    }

    #[test]
    fn with_too_many_names_any_may_be_negative() {
        let mut recent = Recent::default();
        (0..NAMES_MAX as u64 - 1).for_each(|hash| recent.insert(hash));
        assert!(!recent.may_have(u64::MAX));
        for hash in [1 << 40, 1 << 41] {
            recent.insert(hash);
            recent.remove(hash);
            assert!(recent.may_have(u64::MAX));
        }
        recent.expire(MINUTES as u64);
        assert!(!recent.may_have(1));
    }

    #[test]
    fn a_name_is_kept_for_a_whole_minute_at_least() {
        for insertion in [0, 1, 2, 3, 7] {
            for pause in 1..9 {
                for step in [1, pause] {
                    let mut recent = Recent::default();
                    recent.expire(insertion);
                    recent.insert(1);
                    // Another name in each minute, or only in the last one.
                    for minute in (insertion..=insertion + pause).step_by(step as usize) {
                        recent.expire(minute);
                        recent.insert(2);
                    }
                    assert_eq!(recent.may_have(1), pause < MINUTES as u64, "{insertion} {pause} {step}");
                    assert!(recent.may_have(2));
                }
            }
        }
    }
}
