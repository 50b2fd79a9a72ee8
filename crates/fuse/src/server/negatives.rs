//! The names that the kernel may take for missing, because it has a negative dentry.
//!
//! Such a dentry would hide an entry that the kernel has not made itself (`xcreate`). There is no
//! good way to drop it. FUSE_NOTIFY_INVAL_ENTRY waits for the lock of the directory, which the
//! caller of xcreate holds. After FUSE_NOTIFY_INC_EPOCH the kernel unmounts what is mounted in the
//! tree. So the server knows the names, and leaves them to single calls.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long the kernel may keep a negative dentry, at most. The longer it may, the more names must
/// be known; a look-up once a minute costs nothing.
pub(super) const VALID_MAX: Duration = Duration::from_secs(60);

/// The names of a minute, in 32 KiB.
const WORDS: usize = 1 << 12;
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

/// A Bloom filter for each minute. Each name has four bits of one word.
struct Recent {
    minute: u64,
    filters: [Vec<u64>; MINUTES],
}

impl Negatives {
    pub(super) fn new() -> Self {
        let recent = Recent { minute: 0, filters: [const { Vec::new() }; MINUTES] };
        Self { recent: Mutex::new(recent), hasher: RandomState::new(), begin: Instant::now() }
    }

    /// The kernel is about to get a negative dentry.
    pub(super) fn insert(&self, dir: u64, name: &[u8]) {
        let hash = self.hasher.hash_one((dir, name));
        self.recent().insert(hash);
    }

    /// Whether the kernel may have a negative dentry. It may be true of a name that never was
    /// inserted, but rarely.
    pub(super) fn may_have(&self, dir: u64, name: &[u8]) -> bool {
        let hash = self.hasher.hash_one((dir, name));
        self.recent().may_have(hash)
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
            self.filters[(minute + 1) as usize % MINUTES].clear();
        }
        self.minute = self.minute.max(minute);
    }

    fn insert(&mut self, hash: u64) {
        let filter = &mut self.filters[self.minute as usize % MINUTES];
        filter.resize(WORDS, 0);
        filter[place(hash)] |= bits(hash);
    }

    fn may_have(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.filters.iter().any(|filter| filter.get(place(hash)).is_some_and(|word| word & bits == bits))
    }
}

fn place(hash: u64) -> usize {
    (hash >> 24) as usize % WORDS
}

fn bits(hash: u64) -> u64 {
    [0, 6, 12, 18].iter().fold(0, |bits, from| bits | 1 << (hash >> from & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that was inserted and is not found would hide a new entry. One that is found without
    /// having been inserted only costs single calls.
    #[test]
    fn inserted_names_are_found_and_few_others() {
        let negatives = Negatives::new();
        let name = |number: u32| number.to_ne_bytes();
        (0..2000).for_each(|number| negatives.insert(1, &name(number)));
        assert!((0..2000).all(|number| negatives.may_have(1, &name(number))));
        let others = |dir| (0..50_000).filter(|number| negatives.may_have(dir, &name(2000 + number))).count();
        assert!(others(1) + others(2) < 1000);
    }

    #[test]
    fn a_name_is_kept_for_a_whole_minute_at_least() {
        for insertion in [0, 1, 2, 3, 7] {
            for pause in 1..9 {
                let (name, other) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
                let mut recent = Negatives::new().recent.into_inner().unwrap();
                recent.expire(insertion);
                recent.insert(name);
                // Others in each minute, or none.
                for step in [1, pause] {
                    let mut recent = Recent { minute: recent.minute, filters: recent.filters.clone() };
                    for minute in (insertion..=insertion + pause).step_by(step as usize) {
                        recent.expire(minute);
                        recent.insert(other);
                    }
                    assert_eq!(recent.may_have(name), pause < MINUTES as u64, "{insertion} {pause} {step}");
                    assert!(recent.may_have(other));
                }
            }
        }
    }
}
