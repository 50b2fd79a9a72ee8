//! The wire format: requests as bytes, and answers.
//!
//! It is ours, since no crate knows FUSE over io_uring, TMPFILE and STATX, and so that whoever brings the requests, they are
//! taken apart in one place. Nothing here knows a file system, nor where the bytes come from.

pub(crate) mod abi;
mod answer;
mod request;

pub(crate) use answer::{Answer, absent_out, attr_out, dots_out, entry_out, statfs_out, statx_out};
pub(crate) use request::Request;
