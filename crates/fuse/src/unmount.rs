//! Unmounting any mount: by umount2(2), or by fusermount3 for those who may not.
//!
//! Who fears that a path changes its meaning between a look at it and this names the place `/proc/self/fd/N/NAME`, by a
//! descriptor of the directory that it is in.

use std::{io, path::Path, process::Command};

use rustix::{io::Errno, mount::UnmountFlags};

use crate::{device::HELPER, held::for_others};

/// Unmounts what is on top at `path`; "busy" if it is in use.
///
/// # Errors
/// EBUSY; EINVAL if nothing is mounted there; what fusermount3 said.
pub fn cleanly(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Takes the mount out of the tree now; it ends when nobody uses it any more.
///
/// # Errors
/// EINVAL if nothing is mounted there; what fusermount3 said.
pub fn detach(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-z"])
}

/// Breaks off requests that wait for the server, then unmounts; who still has a file open there can only close it.
///
/// # Errors
/// EPERM for those who are not root; EINVAL if nothing is mounted there.
pub fn by_force(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        // It is broken off now, whether or not it is in use: it answers nobody any more, and would only stand there dead.
        Err(Errno::BUSY) => match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
            // Its server, at its end, has been faster.
            Err(Errno::INVAL) => Ok(()),
            result => Ok(result?),
        },
        result => Ok(result?),
    }
}

fn unmount(path: &Path, flags: UnmountFlags, helper: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => by_helper(path, helper),
        result => Ok(result?),
    }
}

/// fusermount3 is setuid root, and unmounts what the caller has mounted.
fn by_helper(path: &Path, args: &[&str]) -> io::Result<()> {
    let output = match Command::new(HELPER).args(args).arg("--").arg(&*for_others(path)).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(io::Error::other("only root may unmount without fusermount3 (install the package fuse3)"));
        }
        result => result?,
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // What it says in words is an errno to us: callers want to know of "busy".
    if said.contains("busy") { Err(Errno::BUSY.into()) } else { Err(io::Error::other(said.trim().to_owned())) }
}
