//! Inode numbers. Each directory takes those of its files from a run of its own, so that their
//! records stand side by side. When two threads want a number at the same time, for one directory
//! or for others of its part, it takes several runs from then on. Each thread uses one of them, so
//! that threads seldom need one part of the records. A number is never used again.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
};

use pando_sync::{Padded, lock, stripe_hint};

/// The bits of a number that count within its run.
pub(crate) const RUN_BITS: u32 = 8;
/// The number of the root directory, which is in the first run.
pub(crate) const ROOT: u64 = 1;

const PARTS: usize = 16;
/// The most directories of a part whose runs are remembered.
const DIRECTORIES: usize = 4096;
/// The most runs of a directory.
const RUNS: usize = 4;

/// The runs of a directory.
#[derive(Default)]
struct Runs {
    /// The next number of each run. 0: there is no run, or it is used up.
    next: [u64; RUNS],
    /// Each thread uses one of them. Otherwise there is one run.
    one_each: bool,
}

/// See the module.
pub(crate) struct InodeNumbers {
    /// The first run that no directory has. Atomic: a single independent value.
    next_run: AtomicU64,
    /// The runs of each directory. Each part is guarded by its own mutex, a leaf.
    parts: [Padded<Mutex<HashMap<u64, Runs>>>; PARTS],
}

impl InodeNumbers {
    pub(crate) fn new(next_run: u64) -> Self {
        Self { next_run: AtomicU64::new(next_run.max(1)), parts: std::array::from_fn(|_| Padded::default()) }
    }

    /// The part of a directory, and whether another thread had it.
    fn part(&self, dir: u64) -> (MutexGuard<'_, HashMap<u64, Runs>>, bool) {
        let part = &self.parts[(dir ^ dir >> RUN_BITS) as usize % PARTS].0;
        match part.try_lock() {
            Ok(part) => (part, false),
            Err(TryLockError::Poisoned(part)) => (part.into_inner(), false),
            Err(TryLockError::WouldBlock) => (lock(part), true),
        }
    }

    /// A new number for an inode of a directory.
    pub(crate) fn next(&self, dir: u64) -> u64 {
        let (mut part, was_held) = self.part(dir);
        if part.len() >= DIRECTORIES && !part.contains_key(&dir) {
            part.clear();
        }
        let runs = part.entry(dir).or_default();
        runs.one_each |= was_held;
        let next = &mut runs.next[if runs.one_each { stripe_hint() % RUNS } else { 0 }];
        let number = match *next {
            0 => self.next_run.fetch_add(1, Ordering::Relaxed) << RUN_BITS,
            number => number,
        };
        let after = number + 1;
        *next = if after >> RUN_BITS == number >> RUN_BITS { after } else { 0 };
        number
    }

    /// The tree does not use a directory any more. The rest of its run is not used.
    pub(crate) fn forget(&self, dir: u64) {
        self.part(dir).0.remove(&dir);
    }

    /// All runs that were handed out are before this one.
    pub(crate) fn next_run(&self) -> u64 {
        self.next_run.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_runs_of_their_own() {
        let numbers = InodeNumbers::new(0);
        let all: Vec<u64> = (0..600).map(|i| numbers.next(i % 2)).collect();
        let of = |dir| all.iter().skip(dir).step_by(2).copied().collect::<Vec<_>>();
        for dir in [0, 1] {
            let runs: Vec<u64> = of(dir).iter().map(|number| number >> RUN_BITS).collect();
            assert_eq!(runs.chunk_by(|one, other| one == other).count(), 2, "{runs:?}");
        }
        assert!(!all.contains(&ROOT));
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 600);
        assert_eq!(numbers.next_run(), 5);
        let later = InodeNumbers::new(numbers.next_run());
        assert!(!distinct.contains(&later.next(0)));
    }
}
