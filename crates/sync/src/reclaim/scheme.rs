//! The scheme that frees what was retired, outside the model checker.
//!
//! Freeing an object touches its memory. When the thread that ends a grace period frees whatever
//! has expired, it pulls other threads' objects into its core's cache, and they pull the memory
//! back when they use it again. Measured, that doubles the cost of create + unlink with two
//! threads. Sending expired objects back to their owner still costs a quarter. So retired objects
//! stay where they are, and only the information that a grace period is over ([`GracePeriods`]) is
//! shared:
//!
//! 1. A thread collects what it retires in a *bag* (`filling`). Full bags wait in the thread's
//!    retire list (`retire_list`), each for a grace period. A bag that is not full is flushed when
//!    the thread only reads, when it is heavy, and when it holds something that other threads may
//!    wait for.
//! 2. Once in [`RUN_BAGS`](crate::tuning::RUN_BAGS) bags, and now and then while it only reads, the
//!    thread begins a period if none is in progress and enough waits. It ends the one in progress
//!    if it can, and frees some of the bags whose period is over (`thread`).
//! 3. Lists are behind locks, which are hardly contended. A thread that frees bags visits another
//!    list now and then, and frees what has waited much longer than it must: the owner may be
//!    asleep, or have ended. [`collect`], [`collect_all`] and [`back_pressure`] free from all lists
//!    (`pressure`). Objects in the open bag of a sleeping thread stay there until it wakes: fewer
//!    than [`BAG`](crate::tuning::BAG) objects, and less than
//!    [`HEAVY_BYTES`](crate::tuning::HEAVY_BYTES).
//!
//! Objects are freed inside [`pin`] (when the thread holds no guard), [`collect`], [`collect_all`]
//! and [`back_pressure`].

use super::{grace::GracePeriods, retire_list::RetireLists};

pub(crate) use super::{
    guards::{Inner, pin},
    pressure::{back_pressure, collect, collect_all, retired_bytes},
    thread::{flush, retire},
};

pub(super) static GRACE_PERIODS: GracePeriods = GracePeriods::new();
pub(super) static LISTS: RetireLists = RetireLists::new();

#[cfg(test)]
mod tests;
