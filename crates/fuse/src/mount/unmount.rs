//! Unmounting any mount: by umount2(2), or by fusermount3 for users who may not call it.
//!
//! A caller that must exclude that the path is replaced after it has looked at the mount passes
//! `/proc/self/fd/N/NAME`, with a descriptor of the parent directory.

use std::{io, path::Path, process::Command};

use rustix::{io::Errno, mount::UnmountFlags};

use super::{HELPER, path_for_others};

/// Unmounts the topmost mount at `path`.
///
/// # Errors
/// EBUSY if it is in use; EINVAL if nothing is mounted there; the message of fusermount3.
pub fn cleanly(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Detaches the mount from the tree now. It is unmounted when it is no longer in use.
///
/// # Errors
/// EINVAL if nothing is mounted there; the message of fusermount3.
pub fn detach(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-z"])
}

/// Aborts the connection with all requests in flight, then unmounts. A program that has a file open
/// there can only close it.
///
/// # Errors
/// EPERM for users other than root; EINVAL if nothing is mounted there.
pub fn by_force(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        // The connection is aborted even if the mount is in use, and the mount would stay dead.
        Err(Errno::BUSY) => match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
            // The server has ended meanwhile, and has unmounted it.
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

/// fusermount3 is setuid root. It unmounts what the caller has mounted.
fn by_helper(path: &Path, args: &[&str]) -> io::Result<()> {
    let output = match Command::new(HELPER).args(args).arg("--").arg(&*path_for_others(path)).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(io::Error::other("only root may unmount without fusermount3 (install the package fuse3)"));
        }
        result => result?,
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // It reports errors in words only. Callers must be able to recognise EBUSY.
    if said.contains("busy") { Err(Errno::BUSY.into()) } else { Err(io::Error::other(said.trim().to_owned())) }
}
