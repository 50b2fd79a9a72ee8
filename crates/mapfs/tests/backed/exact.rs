//! The tests of `main.rs`, on a store that reports each name and each inode that others change.

mod anonymous;
mod attributes;
mod bulk;
mod cache;
mod faults;
mod misses;
mod naive;
mod others;
mod panics;
mod permissions;
mod random;
mod read_ahead;
mod reports;
mod seeks;
mod stress;
mod support;
mod umount;
mod unknown;

/// Changes by others are reported for names and inodes.
const EXACT_REPORTS: bool = true;
