//! The system call fork.

#![allow(unsafe_code)]

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use nix::{
    libc,
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};

use crate::base::failure::print_error;

/// Runs `work` in a copy of this process that has only this thread, and exits afterwards. This
/// process sees none of its effects. Returns the copy's process id.
///
/// To be called while no other thread of the process runs; they may wait on a channel, for example.
/// A lock that another thread holds at that moment would be held in the copy for ever.
///
/// # Errors
/// The process cannot be copied, or `work` failed in the copy.
pub(super) fn in_forked_copy(work: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    // SAFETY: the child has only this thread. It calls the allocator, whose locks the C library
    // takes around a fork. It also uses objects whose locks no other thread holds, as these threads
    // wait. It ends without running exit handlers.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let code = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    print_error(format_args!("in a copy of the process: {error}"));
                    1
                }
                Err(_) => 101,
            };
            // SAFETY: `_exit` may be called at any time.
            unsafe { libc::_exit(code) }
        }
    };
    match waitpid(child, None)? {
        WaitStatus::Exited(_, 0) => Ok(child.as_raw()),
        status => Err(io::Error::other(format!("the copy of the process ended with {status:?}"))),
    }
}
