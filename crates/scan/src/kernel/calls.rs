//! Calls about one entry. Calls that a signal interrupts are repeated, and answers have the form of
//! records.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use pando_records::{Attr, Fields, Time};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, StatxTimestamp},
    io::Errno,
};

use super::sys;

/// How the extended attributes of an entry are reached. Before Linux 6.13, there is no way without
/// /proc (ENOSYS).
pub enum Way<'a> {
    /// By its name in the directory (Linux 6.13).
    At { dir: BorrowedFd<'a>, name: &'a CStr, follow: bool },
    /// By a descriptor of the entry itself, through the calls for paths, which find it under /proc.
    /// Unlike the calls for descriptors, these accept one that was opened with `O_PATH`. Symbolic
    /// links, devices and unreadable files have no other descriptor.
    Proc { _held: OwnedFd, path: [u8; 32] },
}

impl<'a> Way<'a> {
    pub fn to(dir: BorrowedFd<'a>, name: &'a CStr, follow: bool) -> Result<Self, Errno> {
        if sys::has_xattrat() {
            return Ok(Self::At { dir, name, follow });
        }
        Self::by_proc(dir, name, follow)
    }

    fn by_proc(dir: BorrowedFd<'_>, name: &CStr, follow: bool) -> Result<Self, Errno> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        let held = retry(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
        let mut path = [0; 32];
        let mut rest = &mut path[..31];
        // Never fails: the prefix and the longest number fit.
        std::io::Write::write_fmt(&mut rest, format_args!("/proc/self/fd/{}", held.as_raw_fd()))
            .map_err(|_| Errno::IO)?;
        Ok(Self::Proc { _held: held, path })
    }

    pub fn list(&self, list: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::At { dir, name, follow } => sys::listxattrat(*dir, name, *follow, list),
            Self::Proc { path, .. } => match rustix::fs::listxattr(c_path(path), list) {
                Err(Errno::NOENT) if rustix::fs::lstat(c_path(path)).is_err() => Err(Errno::NOSYS),
                listed => listed,
            },
        }
    }

    pub fn value(&self, xattr: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::At { dir, name, follow } => sys::getxattrat(*dir, name, *follow, xattr, value),
            Self::Proc { path, .. } => rustix::fs::getxattr(c_path(path), xattr, value),
        }
    }
}

fn c_path(path: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(path).unwrap_or_default()
}

/// Offers `short` bytes of the room first, and all of it if that is too little.
pub fn short_first(
    room: &mut [u8],
    short: usize,
    mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    if room.len() > short {
        match retry(|| call(&mut room[..short])) {
            Err(Errno::RANGE) => {}
            other => return other,
        }
    }
    retry(|| call(room))
}

/// Asks for the entry itself, not for the target of a link. Nothing is mounted by it.
pub const UNFOLLOWED: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);

/// As [`UNFOLLOWED`], or for the target of a link if `follow`. Nothing is mounted by it.
pub const fn looking(follow: bool) -> AtFlags {
    if follow { AtFlags::NO_AUTOMOUNT } else { UNFOLLOWED }
}

/// The attributes of a path, as records have them: for a directory itself, and for files that are
/// no directory. A symbolic link is followed if `follows`. Nothing is mounted by it.
///
/// # Errors
/// As statx(2).
pub fn attributes(path: impl AsRef<Path>, follows: bool) -> io::Result<Attr> {
    let links = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let (flags, fields) = (links | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS | StatxFlags::BTIME);
    Ok(attr_of(&retry(|| rustix::fs::statx(CWD, path.as_ref(), flags, fields))?))
}

/// Signals do not interrupt one call more often in a row. After that, EINTR is the answer of the
/// file system (FUSE).
const INTERRUPTIONS: u32 = 100;

/// Repeats a call that a signal interrupted.
#[inline]
pub fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut interruptions = 0;
    loop {
        match call() {
            Err(Errno::INTR) if interruptions < INTERRUPTIONS => interruptions += 1,
            other => return other,
        }
    }
}

fn time(time: StatxTimestamp) -> Time {
    Time { secs: time.tv_sec, nanos: time.tv_nsec }
}

/// The record of an answer of statx.
#[inline]
pub fn attr_of(statx: &Statx) -> Attr {
    Attr {
        have: Fields::from_bits_truncate(statx.stx_mask),
        mode: u32::from(statx.stx_mode),
        nlink: statx.stx_nlink,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        blksize: statx.stx_blksize,
        rdev_major: statx.stx_rdev_major,
        rdev_minor: statx.stx_rdev_minor,
        dev_major: statx.stx_dev_major,
        dev_minor: statx.stx_dev_minor,
        ino: statx.stx_ino,
        size: statx.stx_size,
        blocks: statx.stx_blocks,
        attributes: statx.stx_attributes.bits(),
        attributes_mask: statx.stx_attributes_mask.bits(),
        atime: time(statx.stx_atime),
        mtime: time(statx.stx_mtime),
        ctime: time(statx.stx_ctime),
        btime: time(statx.stx_btime),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::XattrFlags;

    use super::*;

    /// Kernels before 6.13 have only the way by /proc. This one may have both.
    #[test]
    fn way_by_proc_reads_the_same() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        let value = vec![b'x'; 2000];
        let set = |name: &str, xattr: &str| {
            rustix::fs::lsetxattr(dir.path().join(name), xattr, &value, XattrFlags::empty()).is_ok()
        };
        let expected = [("file", set("file", "user.grove")), ("link", set("link", "trusted.grove"))];
        let fd = std::fs::File::open(dir.path()).unwrap();
        for (name, has) in expected {
            let name = std::ffi::CString::new(name).unwrap();
            for way in [Way::to(fd.as_fd(), &name, false).unwrap(), Way::by_proc(fd.as_fd(), &name, false).unwrap()] {
                let mut list = [0; 256];
                let len = way.list(&mut list).unwrap_or(0);
                let names: Vec<_> =
                    list[..len].split(|&byte| byte == 0).filter(|name| name.ends_with(b".grove")).collect();
                assert_eq!(names.len(), usize::from(has), "{name:?}");
                if let [xattr] = names[..] {
                    let xattr = std::ffi::CString::new(xattr).unwrap();
                    let mut room = vec![0; 4096];
                    let len = short_first(&mut room, 256, |room| way.value(&xattr, room)).unwrap();
                    assert_eq!(room[..len], value);
                    assert_eq!(way.value(&xattr, &mut room[..100]), Err(Errno::RANGE));
                }
            }
        }
        assert_eq!(Way::by_proc(fd.as_fd(), c"nothing", false).err(), Some(Errno::NOENT));
        let mut path = [0; 32];
        path[..8].copy_from_slice(b"/nowhere");
        let nowhere = Way::Proc { _held: fd.into(), path };
        assert_eq!(nowhere.list(&mut []), Err(Errno::NOSYS), "/proc is missing, not the entry");
    }
}
