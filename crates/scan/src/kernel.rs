//! The system calls: unsafe wrappers, calls about one entry, pages of directory entries, the device
//! of a directory, and what calls cost the calling thread.

pub mod calls;
pub mod device;
pub mod dirents;
pub mod meter;
#[allow(unsafe_code)]
pub mod sys;
