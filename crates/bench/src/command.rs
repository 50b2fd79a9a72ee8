//! The subcommands beside `run`, each in a module of its own.

pub(crate) mod conflicts;
pub(crate) mod cost;
pub(crate) mod footprint;
pub(crate) mod page;
pub(crate) mod seeds;
