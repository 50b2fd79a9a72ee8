//! The instrument of pandofs: the field's metadata workloads, for any target, side by side in one run.
//!
//! ```text
//!   cli        what was asked for
//!   runner     turns: for each repeat every target once; warm-up, start together, stop together
//!   workload/  what a thread does, over and over: crunl, stat
//!   target/    whom it is done to: pandofs in process, a directory of the kernel's, other crates, bare maps
//!   measure    CPU time and context switches; minimum, median, maximum
//!   report/    the table and the JSON
//!   conflicts/ which cache lines operations would fight for, traced without a second core
//!   cost/      instructions of an operation
//!   lackey/    every memory access of a piece of work, by valgrind
//!   footprint  bytes per empty file and per empty directory
//! ```
//!
//! What makes the numbers comparable, in the order in which benchmarks usually go wrong:
//!
//! 1. *Machines drift.* Targets take turns within one run, and ratios are formed within one repeat, not between averages.
//! 2. *Machines are shared.* Beside operations per second stands the CPU time per operation, which other people's
//!    work disturbs far less; a spread of more than a fifth is called noise in the table and never averaged away.
//! 3. *Names are lucky.* Every repeat draws its names anew (the same for all targets), so that no stripe and no bucket
//!    flatters one of them.
//! 4. *The loop costs.* Names and paths are made before the clock starts; what remains of the loop is measured against
//!    a target that does nothing, and printed.
//! 5. *Counters share lines.* A thread counts in a register and is asked once at the end.
//!
//! CPU time is that of this process, user and system. For a FUSE mount that leaves the server's out.
// One module, `lackey::sys`, makes a raw call and says why that is sound.
#![deny(unsafe_code)]

pub mod cli;
mod conflicts;
mod cost;
mod crew;
mod failure;
mod footprint;
mod gate;
mod halt;
mod lackey;
mod locks;
mod measure;
mod path;
mod processes;
mod report;
mod runner;
mod seeds;
mod target;
mod work;
mod workload;

pub use failure::Failure;
