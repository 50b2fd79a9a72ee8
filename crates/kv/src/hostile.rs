//! An engine that does to its client what an engine on other machines may do.

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{Capabilities, Engine, Outcome, Result, Snapshot, Transaction};

/// What a [`Hostile`] engine does, and how often.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hostility {
    /// The seed of all decisions. In one thread, the same seed leads to the same decisions.
    pub seed: u64,
    /// How many of 1,000 commits are refused as if another client had been faster.
    pub conflicts: u32,
    /// How many of 1,000 commits have an unknown outcome. One in three of them is made at once, one
    /// never, and one later: before some other commit.
    pub unknown: u32,
    /// The largest transaction, in bytes.
    pub largest: Option<usize>,
    /// The longest that a call may take more than needed.
    pub delay: Duration,
    /// Whether pages have fewer records than asked for.
    pub short_pages: bool,
}

/// Wraps an engine and is hostile to its client, within what [`Engine`] allows.
pub struct Hostile<E> {
    engine: E,
    hostility: Hostility,
    /// Guarded by its own mutex.
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// Transactions whose outcome the client does not know, and that may still be committed.
    late: Vec<Transaction>,
}

impl<E> fmt::Debug for Hostile<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hostile").field("hostility", &self.hostility).finish_non_exhaustive()
    }
}

/// A generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % n.max(1)
    }

    fn happens(&mut self, of_1000: u32) -> bool {
        self.below(1000) < u64::from(of_1000)
    }
}

impl<E: Engine> Hostile<E> {
    /// Wraps an engine.
    pub const fn new(engine: E, hostility: Hostility) -> Self {
        let state = Mutex::new(State { random: Random(hostility.seed), late: Vec::new() });
        Self { engine, hostility, state }
    }

    /// The wrapped engine. Commits that are late are never made.
    pub fn into_inner(self) -> E {
        self.engine
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let most = self.hostility.delay.as_nanos() as u64;
        if most > 0 {
            let nanos = self.state().random.below(most);
            thread::sleep(Duration::from_nanos(nanos));
        }
    }
}

/// What happens to a commit.
enum Fate {
    Normal,
    Conflict,
    /// The client learns nothing.
    Unknown {
        committed: bool,
    },
}

impl<E: Engine> Engine for Hostile<E> {
    fn capabilities(&self) -> Capabilities {
        let inner = self.engine.capabilities();
        let largest = [inner.largest, self.hostility.largest].into_iter().flatten().min();
        Capabilities { largest, ..inner }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.wait();
        let inner = self.engine.snapshot()?;
        if !self.hostility.short_pages {
            return Ok(inner);
        }
        Ok(Box::new(ShortPages { inner, random: Mutex::new(Random(self.state().random.below(u64::MAX))) }))
    }

    fn commit(&self, transaction: &Transaction) -> Result<Outcome> {
        self.wait();
        if self.hostility.largest.is_some_and(|largest| transaction.bytes() > largest) {
            return Ok(Outcome::TooLarge);
        }
        let (late, fate) = {
            let state = &mut *self.state();
            let count = state.late.len() as u64;
            let late = (count > 0 && state.random.below(2) == 0).then(|| state.random.below(count) as usize);
            let late = late.map(|index| state.late.swap_remove(index));
            let fate = if state.random.happens(self.hostility.conflicts) {
                Fate::Conflict
            } else if state.random.happens(self.hostility.unknown) {
                let chance = state.random.below(3);
                if chance == 1 {
                    state.late.push(transaction.clone());
                }
                Fate::Unknown { committed: chance == 0 }
            } else {
                Fate::Normal
            };
            (late, fate)
        };
        if let Some(late) = late {
            self.engine.commit(&late)?;
        }
        match fate {
            Fate::Conflict => return Ok(Outcome::Conflict),
            Fate::Unknown { committed: false } => return Ok(Outcome::Unknown),
            Fate::Normal | Fate::Unknown { committed: true } => {}
        }
        let outcome = self.engine.commit(transaction)?;
        self.wait();
        Ok(if matches!(fate, Fate::Unknown { .. }) { Outcome::Unknown } else { outcome })
    }
}

/// A snapshot that returns fewer records at a time than asked for.
struct ShortPages {
    inner: Box<dyn Snapshot>,
    random: Mutex<Random>,
}

impl Snapshot for ShortPages {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.get(keys)
    }

    fn page(&self, range: Range<&[u8]>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Vec<u8>>> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let fewer = if limit > 0 { 1 + random.below(limit as u64) as usize } else { 0 };
        self.inner.page(range, fewer, each)
    }
}
