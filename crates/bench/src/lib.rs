//! `pando bench`: metadata workloads of the literature, on several targets side by side in one run.
//!
//! A folder is a floor. Imports point down, from the top of this list:
//!
//! ```text
//!   cli        the command line, and the subcommand `run`
//!   command/   the other subcommands
//!     page/      the five published results on one HTML page, with plots
//!     seeds      the published measurements with their own parameters
//!     footprint  bytes per empty file, per empty directory and per cached inode
//!     conflicts/ cache lines for which two operations compete, found without timing
//!     cost/      instructions of an operation
//!   report/    the table, the JSON, and the comparison of two reports
//!   run/       measurements
//!     schedule   their order: in each repeat, every target once
//!     pool       one measurement with threads that start together and stop together
//!     processes  the same with processes
//!     worker     the loop of one worker: timed, or in rounds
//!   workload/  the operations that a worker repeats; `registry` lists all, with their sources
//!   target/    the targets: pandofs in process, a directory of the kernel, other crates, bare maps
//!   lackey/    traces of every memory access of a piece of work, by valgrind
//!   base/      readings of the system (CPU time, context switches, latency, memory, locks),
//!              barriers, cancellation, child processes, errors, output files
//! ```
//!
//! These are the usual sources of error in benchmarks, and the measures against them:
//!
//! 1. *The speed of a machine drifts.* Targets alternate within one run. Ratios are computed within
//!    one repeat, not between averages.
//! 2. *Machines are shared.* The CPU time per operation is reported beside operations per second,
//!    as other programs disturb it far less. A spread of more than a fifth is marked as noise in
//!    the table, and never averaged away.
//! 3. *Names can be lucky.* Every repeat draws new names (the same for all targets), so that no
//!    stripe and no hash bucket favours one target.
//! 4. *The loop has a cost.* Names and paths are made before the clock starts. The rest of the
//!    loop's cost is measured with a target that does nothing, and printed.
//! 5. *Counters share cache lines.* A thread counts in a register, and its count is read once at
//!    the end.
//!
//! CPU time is the user and system time of the workers. It does not include the server of a FUSE
//! mount.
// One module, `lackey::sys`, makes a raw call and says why that is sound.
#![deny(unsafe_code)]

mod base;
pub mod cli;
mod command;
mod lackey;
mod report;
mod run;
mod target;
mod workload;

pub use base::failure::Failure;
