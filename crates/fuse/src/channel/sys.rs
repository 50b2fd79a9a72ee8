//! FUSE_DEV_IOC_CLONE, an ioctl(2) that has no safe wrapper.

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use super::DEVICE;

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// Opens one more channel of the connection that `device` belongs to. The two channels share only
/// the queue of requests, so that threads that read different channels do not contend for a lock.
///
/// # Errors
/// The device cannot be opened, or there are too many descriptors.
pub(crate) fn clone_channel(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let channel = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let original = device.as_raw_fd() as u32;
    // SAFETY: both descriptors are open during the call, which reads 4 bytes at the address of
    // `original`.
    let done = unsafe { libc::ioctl(channel.as_raw_fd(), CLONE, &raw const original) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(channel.into()) }
}
