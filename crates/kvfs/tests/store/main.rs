//! What a store keeps: when it is closed and opened again, and when the machine crashes.

#[path = "../../../vfs/tests/support/acl.rs"]
mod acl;
mod checks;
mod concurrent;
mod crash;
mod failures;
mod handles;
mod limits;
mod listings;
mod machine;
mod many_files;
mod operations;
mod pairs;
mod removal;
mod reopen;
mod support;
#[path = "../../../kv/tests/engine/volatile.rs"]
mod volatile;
