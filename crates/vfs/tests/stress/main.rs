//! The promises of the namespace with many threads.
//!
//! Each test makes a bounded number of operations and takes a few seconds. `support/harness.rs`
//! says which variables make it longer or repeat it, and what happens if it hangs.
#![forbid(unsafe_code)]

#[path = "../support/acl.rs"]
mod acl;
mod files;
#[path = "../support/harness.rs"]
mod harness;
mod memory;
mod names;
mod paths;
mod permissions;
mod prefix_cache;
mod rename;
mod scan;
mod topology;
#[path = "../support/tree.rs"]
mod tree;
mod watchdog;
