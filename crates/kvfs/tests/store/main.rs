//! What a store keeps: when it is closed and opened again, and when the machine crashes.

mod concurrent;
mod crash;
mod failures;
mod machine;
mod operations;
mod reopen;
mod support;
#[path = "../../../kv/tests/engine/volatile.rs"]
mod volatile;
