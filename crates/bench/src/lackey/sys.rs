//! The raw edge: fork.

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

use crate::failure::say;

/// Runs `work` in a copy of this process that has this one thread, and that ends with it: nothing that it does, this
/// process sees. Returns the copy's process id.
///
/// To be called while no other thread of the process runs (they wait on a channel, say): what they hold at that
/// moment, the copy would find held for ever.
///
/// # Errors
/// That there could be no copy, or that `work` failed there.
pub(super) fn in_a_copy(work: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    // SAFETY: the child has this thread only. It calls the allocator, whose locks the C library takes around a fork, and
    // what the other threads, which wait meanwhile, hold no lock of; and it ends without running anybody's exit handlers.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let code = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    say(format_args!("in a copy of the process: {error}"));
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
