//! The wire format of FUSE: requests are parsed here, and replies are built.
//!
//! It is our own, because no crate knows FUSE over io_uring, TMPFILE and STATX. It is also the one
//! place for it, whichever transport brings the bytes. Nothing here knows a file system, nor where
//! the bytes come from.

pub(crate) mod abi;
mod reply;
mod request;

use pando_vfs::Result;

pub(crate) use reply::{
    AttrFormat, ReplyWriter, attr_out, directory_entries, dots_out, entry_out, negative_out, statfs_out, statx_out,
};
pub(crate) use request::Request;

/// The outcome of a request: the length of the reply's body in bytes, or an error.
pub(crate) type Outcome = Result<usize>;
