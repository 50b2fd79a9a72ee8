//! Traces and watches of a namespace.

use crate::objects::{tracing::Tracing, watches::Watches};

/// See the module. What each operation reads of it is in one cache line, whose neighbours are not
/// written often.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Observers {
    pub tracing: Tracing,
    pub watches: Watches,
}
