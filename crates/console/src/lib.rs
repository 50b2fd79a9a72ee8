//! The parts that several commands of pando share.
//!
//! From below:
//!
//! ```text
//!  args           parsers and places of options, for clap
//!  size           sizes as text: 512M
//!  characters     which characters can be printed, and how wide they are
//!  quote          names as text: as they are, or quoted
//!  failure        messages on stderr
//!  output         lines on stdout
//!  signals        signals that are ignored stay ignored
//!  mountinfo      the mount table
//!  memory_limits  the memory that this process may use
//!  cache_room     how much of it the kernel's caches can still take
//! ```
#![forbid(unsafe_code)]

pub mod args;
pub mod cache_room;
pub mod characters;
pub mod failure;
pub mod memory_limits;
pub mod mountinfo;
pub mod output;
pub mod quote;
pub mod signals;
pub mod size;
