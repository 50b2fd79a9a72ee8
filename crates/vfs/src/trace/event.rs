//! One operation, as its reader sees it.

use std::time::Duration;

use crate::{Error, types::trace_op::TraceOp};

/// One operation, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub op: TraceOp,
    /// When it began, since the trace began.
    pub start: Duration,
    /// How long it took.
    pub latency: Duration,
    /// Why it failed, if it did.
    pub error: Option<Error>,
    /// To what; beyond 4096 bytes it is cut.
    pub path: Vec<u8>,
    /// Where to: the new path of a rename, the new name of a link, the target of a symbolic link.
    pub second: Option<Vec<u8>>,
    /// By which thread: numbers in the order in which threads were first seen.
    pub thread: u32,
}
