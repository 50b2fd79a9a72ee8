//! The one place that chooses between `std` and the model checker.
//!
//! Everything in this crate imports its atomics, locks and threads from here, so that a model (`*_loom.rs`) checks the
//! very code that ships.

#[cfg(loom)]
#[allow(unused_imports)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    thread,
};
#[cfg(not(loom))]
#[allow(unused_imports)]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    thread,
};
