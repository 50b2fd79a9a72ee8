//! The ioctls by which the kernel gets backing files (passthrough). They have no safe wrapper.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// `FUSE_DEV_IOC_BACKING_OPEN`, `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: libc::Ioctl = 0x4010_e501_u32 as libc::Ioctl;
/// `FUSE_DEV_IOC_BACKING_CLOSE`, `_IOW(229, 2, uint32_t)`.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502_u32 as libc::Ioctl;

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    file: i32,
    flags: u32,
    padding: u64,
}

/// Gives the kernel a backing file. Returns the number by which the kernel knows it.
///
/// The kernel opens the file again for each handle, and reads and writes with the credentials of
/// this call. Without CAP_FSETID, a write clears setuid and setgid, as a write by an ordinary user
/// does.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ELOOP if the file system of the file is itself stacked (overlay),
/// EINVAL if it is no regular file.
pub(super) fn register(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    let own = capabilities(None)?;
    let _back = Capabilities(own);
    set_capabilities(None, CapabilitySets { effective: own.effective - CapabilitySet::FSETID, ..own })?;
    let map = BackingMap { file: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: both descriptors are open during the call, which reads the structure.
    let number = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_OPEN, &raw const map) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// The kernel gives a backing file up when no handle uses it.
///
/// # Errors
/// ENOENT if the kernel does not know the number.
pub(super) fn unregister(device: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open during the call, which reads 4 bytes.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The capabilities of the thread. It gets them back when this is dropped.
struct Capabilities(CapabilitySets);

impl Drop for Capabilities {
    fn drop(&mut self) {
        let _ = set_capabilities(None, self.0);
    }
}
