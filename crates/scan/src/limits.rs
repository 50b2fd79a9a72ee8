//! Bounds of what a caller may choose.

use pando_records::PAGE_BYTES;

/// The smallest budget: a page of names with its index, one part, and two pages for extended
/// attributes.
pub const MIN_BUDGET_BYTES: usize = 8 * PAGE_BYTES;
/// The most threads that a scan starts by itself.
pub const MAX_WORKERS: usize = 64;
/// The most that [`Workers::Fixed`](crate::Workers::Fixed) may ask for.
pub const MAX_FIXED_WORKERS: usize = 1024;
