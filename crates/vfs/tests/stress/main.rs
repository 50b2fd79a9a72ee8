//! The promises of the name space under many threads.
//!
//! Each test does a bounded number of operations and takes a few seconds; `support/harness.rs` says which variables make
//! it longer, repeat it, and what happens when it hangs.
#![forbid(unsafe_code)]

mod files;
#[path = "../support/harness.rs"]
mod harness;
mod memory;
mod names;
mod paths;
mod permissions;
mod remembered;
mod rename;
mod scan;
mod topology;
#[path = "../support/tree.rs"]
mod tree;
mod watchdog;
