//! Random numbers from a seed, also for tests of other crates.

use std::hash::{BuildHasher, Hasher, RandomState};

#[path = "splitmix.rs"]
mod splitmix;

/// A small generator of random numbers.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        splitmix::next(&mut self.0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The seed from `PANDO_TEST_SEED`, or a new one. It is printed, so that a failing run can be
/// repeated.
pub fn seed() -> u64 {
    let seed = pandofs_testkit::number("PANDO_TEST_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("PANDO_TEST_SEED={seed}");
    seed
}
