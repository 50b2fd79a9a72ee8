//! The namespace over a backed tree: the behavior of the cache, and that it has no visible effect.

mod anonymous;
mod attributes;
mod bulk;
mod cache;
mod faults;
mod limits;
mod misses;
mod naive;
mod others;
mod panics;
mod permissions;
mod random;
mod read_ahead;
mod seeks;
mod stress;
mod support;
mod umount;
mod unknown;

/// Changes by others are reported for directories.
const EXACT_REPORTS: bool = false;
