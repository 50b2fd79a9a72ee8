//! System calls without a safe wrapper: getdents64 into plain bytes, listxattrat, getxattrat,
//! listmount, and the ioctl of pandofs.

use std::{
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd},
    sync::OnceLock,
};

use pando_records::{XGETDENTS, XGETDENTS_BYTES, XGETDENTS_HEAD_BYTES};
use rustix::io::Errno;

/// Linux 6.13 and later. The number is the same on every architecture but alpha.
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;

/// `struct xattr_args` of the kernel.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

fn result(value: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(value)
        .map_err(|_| Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
}

/// Reads directory entries into `buffer`. Returns how many bytes they take, 0 at the end.
pub fn getdents64(dir: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most `len` bytes to the buffer, which is borrowed during the
    // call.
    result(unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) })
}

fn at_flags(follow: bool) -> libc::c_int {
    if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
}

/// The names of the extended attributes of `name` in `dir`, each with a zero byte after it.
pub fn listxattrat(dir: BorrowedFd<'_>, name: &CStr, follow: bool, list: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `name` ends with a zero byte, and the kernel writes at most `len` bytes to `list`.
    // Both are borrowed during the call.
    result(unsafe {
        libc::syscall(SYS_LISTXATTRAT, dir.as_raw_fd(), name.as_ptr(), at_flags(follow), list.as_mut_ptr(), list.len())
    })
}

/// The value of an extended attribute of `name` in `dir`.
pub fn getxattrat(
    dir: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
    xattr: &CStr,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let mut args =
        XattrArgs { value: value.as_mut_ptr() as u64, size: u32::try_from(value.len()).unwrap_or(u32::MAX), flags: 0 };
    // SAFETY: both names end with a zero byte. `args` has the size that is passed, and names a
    // buffer to which the kernel writes at most `size` bytes. All are borrowed during the call.
    result(unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            at_flags(follow),
            xattr.as_ptr(),
            &raw mut args,
            size_of::<XattrArgs>(),
        )
    })
}

/// Whether the kernel has listxattrat and getxattrat, and no filter forbids them. Checked once.
pub fn has_xattrat() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        // A filter of system calls may answer EPERM for calls that it does not know. The root
        // directory itself never does.
        !matches!(listxattrat(rustix::fs::CWD, c"/", false, &mut []), Err(Errno::NOSYS | Errno::PERM))
    })
}

/// Linux 6.8 and later. The number is the same on every architecture but alpha.
const SYS_LISTMOUNT: libc::c_long = 458;

/// `struct mnt_id_req` of the kernel, in its first version.
#[repr(C)]
struct MountRequest {
    size: u32,
    spare: u32,
    mount: u64,
    after: u64,
}

/// Whether anything is mounted below the root of this mount (`STATX_MNT_ID_UNIQUE`).
pub fn has_mounts_below(mount: u64) -> Result<bool, Errno> {
    let request = MountRequest { size: size_of::<MountRequest>() as u32, spare: 0, mount, after: 0 };
    let mut found = 0_u64;
    // SAFETY: the request has the size that it says, and the kernel writes at most one number. Both
    // are borrowed during the call.
    result(unsafe { libc::syscall(SYS_LISTMOUNT, &raw const request, &raw mut found, 1, 0) }).map(|mounts| mounts > 0)
}

/// The argument of the ioctl: `struct pandofs_xgetdents`.
#[repr(C)]
pub struct Xgetdents {
    /// Where the call begins; after it, where the next one continues.
    pub cookie: u64,
    pub mask: u32,
    /// 0 at the end, 1 if there is more.
    pub next: u32,
    pub bytes: u32,
    pub entries: u32,
    pub records: [u8; XGETDENTS_BYTES - XGETDENTS_HEAD_BYTES],
}

const _: () = assert!(size_of::<Xgetdents>() == XGETDENTS_BYTES);

/// Reads many entries of a directory of pandofs. ENOTTY on other file systems.
pub fn xgetdents(dir: BorrowedFd<'_>, call: &mut Xgetdents) -> Result<(), Errno> {
    // SAFETY: the command has the size of the argument, and the kernel reads and writes no more.
    // Any bytes make a valid argument. It is borrowed during the call.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), XGETDENTS as libc::Ioctl, &raw mut *call) };
    result(done.into()).map(drop)
}
