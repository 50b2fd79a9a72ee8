//! Counts, times and limits that are spread over the cores when the cores contend for them.

pub(crate) mod quota;
pub(crate) mod striped;
pub(crate) mod tally;
