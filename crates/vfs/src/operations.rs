//! The operations that a caller asks of the tree: walk, create, remove, rename, open, read, write,
//! attributes, readdir.

pub(crate) mod acl;
pub(crate) mod ahead;
pub(crate) mod attempt;
pub(crate) mod attr;
pub(crate) mod batch;
pub(crate) mod bound;
pub(crate) mod copy_range;
pub(crate) mod create;
pub(crate) mod dpath;
pub(crate) mod exports;
pub(crate) mod file;
pub(crate) mod file_lock;
pub(crate) mod handle;
pub(crate) mod locks;
pub(crate) mod lookup;
pub(crate) mod make;
pub(crate) mod mount;
pub(crate) mod moving;
pub(crate) mod namei;

pub(crate) mod open;
pub(crate) mod opened;
pub(crate) mod parent;
pub(crate) mod permit;
pub(crate) mod readahead;
pub(crate) mod readdir;
pub(crate) mod remote;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod step;
pub(crate) mod xattr;
pub(crate) mod xgetdents;
