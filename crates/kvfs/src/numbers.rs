//! Inode numbers. Each directory takes those of its files from a run of its own, so that their
//! records stand side by side. When two threads want a number at the same time, for one directory
//! or for others of its part, it takes several runs from then on, each of them for some threads. So
//! threads seldom need one part of the records, or one line of memory. A number is never used
//! again.

use std::{
    collections::HashMap,
    sync::{
        Mutex, TryLockError,
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
const RUNS: usize = 16;
/// In place of the next number: the directory has a run for each stripe.
const SEVERAL: u64 = u64::MAX;

/// The next numbers of directories, by the number of the directory. 0: its run is used up.
type Next = HashMap<u64, u64>;

/// See the module. Each mutex is a leaf.
pub(crate) struct InodeNumbers {
    /// The first run that no directory has. Atomic: a single independent value.
    next_run: AtomicU64,
    /// The runs of directories that have one for all threads.
    parts: [Padded<Mutex<Next>>; PARTS],
    /// The runs of the others, for the threads of each stripe.
    stripes: [Padded<Mutex<Next>>; RUNS],
}

impl InodeNumbers {
    pub(crate) fn new(next_run: u64) -> Self {
        Self {
            next_run: AtomicU64::new(next_run.max(1)),
            parts: std::array::from_fn(|_| Padded::default()),
            stripes: std::array::from_fn(|_| Padded::default()),
        }
    }

    /// A new number for an inode of a directory.
    pub(crate) fn next(&self, dir: u64) -> u64 {
        let stripe = &self.stripes[stripe_hint() % RUNS].0;
        if let Some(next) = lock(stripe).get_mut(&dir) {
            return self.take(next);
        }
        let (mut part, was_held) = match self.part(dir).try_lock() {
            Ok(part) => (part, false),
            Err(TryLockError::Poisoned(part)) => (part.into_inner(), false),
            Err(TryLockError::WouldBlock) => (lock(self.part(dir)), true),
        };
        if was_held || part.get(&dir) == Some(&SEVERAL) {
            *place(&mut part, dir) = SEVERAL;
            drop(part);
            return self.take(place(&mut lock(stripe), dir));
        }
        self.take(place(&mut part, dir))
    }

    fn part(&self, dir: u64) -> &Mutex<Next> {
        &self.parts[(dir ^ dir >> RUN_BITS) as usize % PARTS].0
    }

    /// The next number, from a new run if need be.
    fn take(&self, next: &mut u64) -> u64 {
        let number = match *next {
            0 => self.next_run.fetch_add(1, Ordering::Relaxed) << RUN_BITS,
            number => number,
        };
        let after = number + 1;
        *next = if after >> RUN_BITS == number >> RUN_BITS { after } else { 0 };
        number
    }

    /// The tree does not use a directory any more. The rest of its runs is not used.
    pub(crate) fn forget(&self, dir: u64) {
        if lock(self.part(dir)).remove(&dir) == Some(SEVERAL) {
            self.stripes.iter().for_each(|stripe| _ = lock(&stripe.0).remove(&dir));
        }
    }

    /// All runs that were handed out are before this one.
    pub(crate) fn next_run(&self) -> u64 {
        self.next_run.load(Ordering::Relaxed)
    }
}

/// The next number of a directory, 0 if it is not remembered.
fn place(runs: &mut Next, dir: u64) -> &mut u64 {
    if runs.len() >= DIRECTORIES && !runs.contains_key(&dir) {
        runs.clear();
    }
    runs.entry(dir).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that make files in the same directories, also while these are forgotten.
    #[test]
    fn no_number_is_given_twice() {
        const EACH: usize = 20_000;
        let numbers = InodeNumbers::new(0);
        let take = |thread: usize| {
            let numbers = &numbers;
            move || {
                let number = |round: usize| {
                    if (round + thread).is_multiple_of(1000) {
                        numbers.forget(round as u64 % 3);
                    }
                    numbers.next(round as u64 % 3)
                };
                (0..EACH).map(number).collect::<Vec<_>>()
            }
        };
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(take(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(all.iter().all(|number| number >> RUN_BITS < numbers.next_run()));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * EACH);
    }

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
