//! The instrument of pandofs: the field's metadata workloads, for any target, side by side in one run.
//!
//! ```text
//!   cli        what was asked for
//!   runner     turns: for each repeat every target once
//!   crew       one measurement: workers that start together and stop together
//!   processes  the same with workers that are processes
//!   work       one worker's way through it: timed, or in rounds; `gate` is where they wait for each other
//!   workload/  what a worker does, over and over; `registry` lists all, with their sources
//!   target/    whom it is done to: pandofs in process, a directory of the kernel's, other crates, bare maps
//!   measure    CPU time, context switches, latency, memory; minimum, median, maximum
//!   locks      locks that the library took and waited for
//!   report/    the table, the JSON, and what changed between two of them
//!   output     files that results go to
//!   seeds      the published measurements again
//!   page/      the five results on one page, with plots
//!   conflicts/ which cache lines operations would fight for, traced without a second core
//!   cost/      instructions of an operation
//!   lackey/    every memory access of a piece of work, by valgrind
//!   child      this program again, in a process of its own
//!   footprint  bytes per empty file, per empty directory and per cached inode
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
//! CPU time is that of the workers, user and system. For a FUSE mount that leaves the server's out.
// One module, `lackey::sys`, makes a raw call and says why that is sound.
#![deny(unsafe_code)]

mod child;
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
mod output;
mod page;
mod path;
mod processes;
mod report;
mod runner;
mod seeds;
mod target;
mod work;
mod workload;

pub use failure::Failure;
