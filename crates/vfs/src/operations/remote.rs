//! Changes of backed trees: trees whose state a driver keeps elsewhere.
//!
//! Such a change has three steps:
//! 1. *Prepare*: an attempt under a guard, as for a tree in memory. It walks, checks, and locks the
//!    names. If the cache lacks a binding, the attempt ends with a question to the backing
//!    ([`lookup`]). It yields a [`PreparedChange`](change::PreparedChange), which holds its
//!    directories.
//! 2. *Commit*: the change is sent to the backing. No guard is held, since the backing may take
//!    long. The locks are held.
//! 3. *Publish*: the cache takes over the committed change. Nothing is checked again, since the
//!    backing has the last word.

pub(crate) mod anonymous;
pub(crate) mod attr;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod xgetdents;
