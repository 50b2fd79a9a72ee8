//! The operations: what a caller asks of the tree.

pub(crate) mod attr;
pub(crate) mod create;
pub(crate) mod dpath;
pub(crate) mod file;
pub(crate) mod locks;
pub(crate) mod namei;
pub(crate) mod open;
pub(crate) mod permit;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod xattr;
