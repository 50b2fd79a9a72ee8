//! Runs workloads on targets: the loop of a worker, pools of threads or processes, and the order of
//! measurements.

pub(crate) mod pool;
pub(crate) mod processes;
pub(crate) mod schedule;
mod worker;
