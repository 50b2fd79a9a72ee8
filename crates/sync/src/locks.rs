//! Locks, their order, and their statistics.

pub(crate) mod biased_rw_lock;
pub(crate) mod class_mutex;
pub(crate) mod departures;
pub(crate) mod fair_lock;
pub(crate) mod lock_granularity;
pub mod lock_order;
pub(crate) mod lock_stats;
pub(crate) mod name_locks;
pub(crate) mod position;
pub(crate) mod revocable;
pub(crate) mod seq_rw_lock;
pub(crate) mod single_flight;
pub(crate) mod wait_group;
