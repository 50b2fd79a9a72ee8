//! The name space over a tree that is kept elsewhere: what the cache does, and that nobody notices.

mod attributes;
mod cache;
mod faults;
mod misses;
mod others;
mod panics;
mod permissions;
mod random;
mod seeks;
mod stress;
mod support;
mod umount;
