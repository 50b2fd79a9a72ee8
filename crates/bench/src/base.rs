//! The floor of the crate: readings of the system, synchronization of workers, errors, files.
//! Nothing here knows a target or a workload.

pub(crate) mod barrier;
pub(crate) mod cancel;
pub(crate) mod child;
pub(crate) mod failure;
pub(crate) mod locks;
pub(crate) mod measure;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod phase;
