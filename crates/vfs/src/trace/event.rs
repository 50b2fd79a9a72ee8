//! A recorded operation, as the reader sees it.

use std::time::Duration;

use crate::{Error, types::trace_op::TraceOp};

/// A recorded operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The operation.
    pub op: TraceOp,
    /// The time from the beginning of the trace to the start of the operation.
    pub start: Duration,
    /// The duration of the operation.
    pub latency: Duration,
    /// The error, if the operation failed.
    pub error: Option<Error>,
    /// The path of the operation's object. Paths beyond 4096 bytes are truncated.
    pub path: Vec<u8>,
    /// The second path: the new path of a rename, the new name of a hard link, the target of a
    /// symbolic link.
    pub second: Option<Vec<u8>>,
    /// The number of the thread. Threads are numbered in the order in which they joined the trace.
    pub thread: u32,
}
