//! Basics for every other module: cache lines, prefetch, a hash.

pub(crate) mod padded;
pub(crate) mod prefetch;
pub(crate) mod siphash;
#[cfg(all(test, not(loom)))]
pub(crate) mod stopper;
pub(crate) mod stripe_hint;
