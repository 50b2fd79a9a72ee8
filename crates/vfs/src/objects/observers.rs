//! Traces and watches of a namespace.

use crate::objects::{tracing::Tracing, watches::Watches};

/// See the module. Each operation reads one cache line of it. The lines beside it are not written
/// often.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Observers {
    pub tracing: Tracing,
    pub watches: Watches,
}
