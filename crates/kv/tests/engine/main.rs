//! Engines against an obvious model: a map, and a disk that fails or loses what was not flushed.

mod compaction;
mod crash;
mod damage;
mod disk;
mod failures;
mod model;
mod support;
mod volatile;
