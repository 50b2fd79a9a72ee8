//! The objects that callers hold: the [`Vfs`](vfs::Vfs), a [`Context`](context::Context), an open
//! file.

pub(crate) mod context;
pub(crate) mod file;
pub(crate) mod held;
pub(crate) mod read_ahead;
pub(crate) mod teardown;
pub(crate) mod vfs;
pub(crate) mod watcher;
