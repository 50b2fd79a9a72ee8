//! The calls that fill the kernel's caches.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
    path::Arg,
};

use crate::kernel::calls::{Way, retry};

/// Whether the kernel has the attributes in its caches. It asks no disk and no server for that.
pub(super) fn is_cached(dir: impl AsFd, name: impl Arg, flags: OFlags) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::CACHED).is_ok()
}

/// Reads the target of a link. The kernel reads all of it, whatever the buffer's size.
pub(super) fn ask_target(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match retry(|| rustix::fs::readlinkat_raw(dir, name, &mut [0_u8; 1][..])) {
        // No link any more, or one of those in /proc, which only their owner can read.
        Ok(_) | Err(Errno::INVAL | Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The longest list of names (`XATTR_LIST_MAX`), and the longest value.
const XATTR_MAX: usize = 65536;

thread_local! {
    /// Buffers for names and values, which are not used.
    static XATTRS: std::cell::RefCell<(Vec<u8>, Vec<u8>)> =
        std::cell::RefCell::new((vec![0; XATTR_MAX], vec![0; XATTR_MAX]));
}

pub(super) fn ask_xattrs(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let way = Way::to(dir, name, false)?;
    ask_each_xattr(|list| way.list(list), |xattr, value| way.value(xattr, value))
}

/// Those of a path's target, as for its attributes.
pub(super) fn ask_xattrs_of_path(path: &Path) -> Result<(), Errno> {
    ask_each_xattr(|list| rustix::fs::listxattr(path, list), |xattr, value| rustix::fs::getxattr(path, xattr, value))
}

fn ask_each_xattr(
    names: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    value_of: impl Fn(&CStr, &mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    XATTRS.with_borrow_mut(|(list, value)| {
        let length = match retry(|| names(list)) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            result => result?,
        };
        for xattr in list[..length].split_inclusive(|&byte| byte == 0) {
            let Ok(xattr) = CStr::from_bytes_with_nul(xattr) else { continue };
            match retry(|| value_of(xattr, value)) {
                // Removed meanwhile, or without a value for any caller.
                Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    })
}
