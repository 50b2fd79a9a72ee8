//! Calls that have no safe wrapper: file handles, and extended attributes of a descriptor of
//! O_PATH.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use rustix::fs::{OFlags, XattrFlags};

/// The most bytes that a handle has (`MAX_HANDLE_SZ` in the kernel).
const HANDLE_MAX: usize = 128;
/// `AT_HANDLE_FID`, since Linux 6.5: a handle that identifies a file, and need not open it.
const AT_HANDLE_FID: libc::c_int = 0x200;

/// `struct file_handle`, with room for the largest handle.
#[repr(C)]
struct RawHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; HANDLE_MAX],
}

/// A file handle: it names an inode of one file system for as long as the inode exists, and no
/// other inode after that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    kind: i32,
    bytes: Box<[u8]>,
}

impl Handle {
    /// A handle that the kernel has given.
    pub(crate) fn new(kind: i32, bytes: &[u8]) -> Self {
        Self { kind, bytes: bytes.into() }
    }

    /// The handle of an open file.
    ///
    /// # Errors
    /// EOPNOTSUPP if the file system has none.
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        match Self::with(file, 0) {
            // Overlayfs, for instance, can identify files and not open them again.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Self::with(file, AT_HANDLE_FID),
            found => found,
        }
    }

    fn with(file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Self> {
        let mut raw = RawHandle { bytes: HANDLE_MAX as libc::c_uint, kind: 0, handle: [0; HANDLE_MAX] };
        let mut mount = 0;
        // SAFETY: the path is a string, and `raw` has room for as many bytes as it says.
        let done = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH | flags,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { kind: raw.kind, bytes: raw.handle[..raw.bytes as usize].into() })
    }

    /// Opens the file. `mount` is any open file of its mount.
    ///
    /// # Errors
    /// ESTALE if the inode is gone, EPERM without CAP_DAC_READ_SEARCH, and those of open(2).
    pub(crate) fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
        // ext4 answers ENOMEM, too, while it gives the number of an inode that is gone to a new
        // file (`iget_locked` finds an inode with I_CREATING). That takes microseconds, and a
        // little longer if it waits for the journal.
        for pause in (0..10).map(|round| Duration::from_micros(10 << round)) {
            match self.try_open(mount, flags) {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => std::thread::sleep(pause),
                opened => return opened,
            }
        }
        self.try_open(mount, flags)
    }

    fn try_open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
        let mut raw = RawHandle { bytes: self.bytes.len() as libc::c_uint, kind: self.kind, handle: [0; HANDLE_MAX] };
        raw.handle[..self.bytes.len()].copy_from_slice(&self.bytes);
        let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
        // SAFETY: `raw` has as many bytes as it says.
        let file = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has returned a new descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// `struct xattr_args` of setxattrat(2) and getxattrat(2).
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

// The numbers are the same on all architectures. Linux has these calls since 6.13.
const SETXATTRAT: libc::c_long = 463;
const GETXATTRAT: libc::c_long = 464;
const LISTXATTRAT: libc::c_long = 465;
const REMOVEXATTRAT: libc::c_long = 466;

/// A name as the kernel takes it.
fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A file that is open, by its name in the directory of open descriptors (`/proc/self/fd`). Some
/// calls take no descriptor of O_PATH.
pub(crate) struct OpenFile<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: CString,
    /// Open as long as the name is used.
    _file: BorrowedFd<'a>,
}

impl<'a> OpenFile<'a> {
    /// `dir` is `/proc/self/fd`.
    pub(crate) fn new(dir: BorrowedFd<'a>, file: BorrowedFd<'a>) -> Self {
        // A number has no NUL.
        let name = CString::new(file.as_raw_fd().to_string()).unwrap_or_default();
        Self { dir, name, _file: file }
    }
}

/// The result of a call. If the kernel does not have it, that of `old` with a path to the file.
fn or_by_path(
    done: libc::c_long,
    open: &OpenFile<'_>,
    old: impl FnOnce(&str) -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    if done >= 0 {
        return Ok(done as usize);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOSYS) => {
            Ok(old(&format!("/proc/self/fd/{}", open.name.to_string_lossy()))?)
        }
        error => Err(error),
    }
}

/// setxattrat(2) or getxattrat(2), by its number.
///
/// # Safety
/// `value` points to `size` bytes: to be read by the first, to be written by the second.
unsafe fn value_call(
    number: libc::c_long,
    open: &OpenFile<'_>,
    name: &[u8],
    value: *const u8,
    size: u32,
) -> io::Result<libc::c_long> {
    let (name, mut args) = (c_name(name)?, XattrArgs { value: value as u64, size, flags: 0 });
    // SAFETY: the strings end with a NUL, and the caller says that the value is there.
    Ok(unsafe {
        libc::syscall(
            number,
            open.dir.as_raw_fd(),
            open.name.as_ptr(),
            0,
            name.as_ptr(),
            &raw mut args,
            size_of::<XattrArgs>(),
        )
    })
}

/// Sets an extended attribute.
///
/// # Errors
/// Those of setxattr(2).
pub(crate) fn set_xattr(open: &OpenFile<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    let size = u32::try_from(value.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    // SAFETY: the value has `size` bytes, and the call reads them.
    let done = unsafe { value_call(SETXATTRAT, open, name, value.as_ptr(), size) }?;
    or_by_path(done, open, |path| rustix::fs::setxattr(path, name, value, XattrFlags::empty()).map(|()| 0)).map(drop)
}

/// Removes an extended attribute.
///
/// # Errors
/// Those of removexattr(2).
pub(crate) fn remove_xattr(open: &OpenFile<'_>, name: &[u8]) -> io::Result<()> {
    let c_name = c_name(name)?;
    // SAFETY: the strings end with a NUL.
    let done = unsafe { libc::syscall(REMOVEXATTRAT, open.dir.as_raw_fd(), open.name.as_ptr(), 0, c_name.as_ptr()) };
    or_by_path(done, open, |path| rustix::fs::removexattr(path, name).map(|()| 0)).map(drop)
}

/// Reads an extended attribute. Returns its size, also if `buffer` is empty.
///
/// # Errors
/// Those of getxattr(2).
pub(crate) fn get_xattr(open: &OpenFile<'_>, name: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
    let size = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    // SAFETY: the buffer has at least `size` bytes, and the call writes to them.
    let done = unsafe { value_call(GETXATTRAT, open, name, buffer.as_mut_ptr(), size) }?;
    or_by_path(done, open, |path| rustix::fs::getxattr(path, name, buffer))
}

/// Reads the names of all extended attributes, each with a NUL at its end. Returns their size, also
/// if `buffer` is empty.
///
/// # Errors
/// Those of listxattr(2).
pub(crate) fn list_xattrs(open: &OpenFile<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the path ends with a NUL, and the buffer is as long as it says.
    let done = unsafe {
        libc::syscall(LISTXATTRAT, open.dir.as_raw_fd(), open.name.as_ptr(), 0, buffer.as_mut_ptr(), buffer.len())
    };
    or_by_path(done, open, |path| rustix::fs::listxattr(path, buffer))
}
