//! The reports of a read-ahead.

use std::{io, path::PathBuf};

/// The progress of a read-ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmProgress {
    /// Directories read.
    pub directories: u64,
    /// Entries found so far.
    pub found: u64,
    /// Entries that were read, or failed.
    pub done: u64,
    /// Entries and directories that could not be read. Entries that vanished meanwhile do not
    /// count.
    pub failed: u64,
    /// It ended because of [`WarmOptions::at_most`](crate::WarmOptions::at_most).
    pub ran_out: bool,
    /// All directories were read, so `found` is the final number.
    pub all_found: bool,
}

/// A failure.
#[derive(Debug)]
pub struct WarmFailure {
    /// The path that could not be read.
    pub path: PathBuf,
    /// The reason.
    pub error: io::Error,
}

/// The result of [`Warm::next_event`](crate::Warm::next_event).
#[derive(Debug)]
pub enum WarmEvent {
    /// Something could not be read. The rest continues.
    Failed(WarmFailure),
    /// Nothing yet.
    Nothing,
    /// All was read, or it was cancelled and no call is in flight. If a thread panicked, that
    /// cancelled it, and was reported as a failure.
    Ended,
}
