//! Changes of trees that are kept elsewhere.
//!
//! Such a change has three steps, and a type for each:
//! 1. *Prepare*: an attempt under a guard, as for a tree in memory. It walks, checks, and locks the names. What the cache
//!    does not know it asks for ([`lookup`]). It yields a [`Change`](change::Change), which holds its directories.
//! 2. *Commit*: the backing is told. No guard is held, since it may take its time; the locks are.
//! 3. *Publish*: the cache takes over what the backing has done. Nothing is checked again: the backing has the last word.

pub(crate) mod attr;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
