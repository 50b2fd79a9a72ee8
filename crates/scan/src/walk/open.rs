//! Opens one directory, and checks that it is the expected one.

use std::{
    ffi::CStr,
    os::fd::{BorrowedFd, OwnedFd},
};

use pando_records::{FileKind, Record};
use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};

use crate::kernel::calls::{attr_of, looking, retry};

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It could not be opened: it vanished (ENOENT), is a symbolic link now (ELOOP, ENOTDIR), or
    /// may not be read (EACCES).
    Open,
    /// It could not be read to its end: some of its entries may be missing.
    Read,
    /// Another directory has its name now (ESTALE). Noticed if the inode was asked for as an
    /// attribute. With names alone, the other directory is entered.
    Swapped,
    /// It is its own ancestor (ELOOP).
    Loop,
}

/// The device and inode that a directory must have when it is opened, and whether opening it may
/// mount a file system there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub dev: (u32, u32),
    pub ino: u64,
    pub automount: bool,
}

/// Device and inode.
pub(super) type Identity = ((u32, u32), u64);

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Opens a root, through symbolic links.
pub(super) fn open_root(path: &std::ffi::OsStr) -> Result<OwnedFd, Errno> {
    retry(|| rustix::fs::open(path, FLAGS, Mode::empty()))
}

/// Opens a directory by its one name, and through a symbolic link only if links are followed.
pub(super) fn open_dir(parent: BorrowedFd<'_>, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let flags = if follow { FLAGS } else { FLAGS.union(OFlags::NOFOLLOW) };
    retry(|| rustix::fs::openat(parent, name, flags, Mode::empty()))
}

/// The child is on another file system and not entered for that reason. (open(2) has no EXDEV.)
pub(super) const ELSEWHERE: (Cause, Errno) = (Cause::Open, Errno::XDEV);

/// As [`open_dir`], if it is on this device. If an inode is expected, the device was checked
/// before. With names alone, it is checked here, since opening might mount a file system.
pub(super) fn open_dir_on(
    dev: Option<(u32, u32)>,
    expected: Option<Expected>,
    parent: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
) -> Result<OwnedFd, (Cause, Errno)> {
    if let Some(dev) = dev
        && expected.is_none()
        && let Ok(statx) = retry(|| rustix::fs::statx(parent, name, looking(follow), StatxFlags::INO))
        && (statx.stx_dev_major, statx.stx_dev_minor) != dev
    {
        return Err(ELSEWHERE);
    }
    open_dir(parent, name, follow).map_err(|errno| (Cause::Open, errno))
}

/// The identity of an open directory.
pub(super) fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let statx = retry(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO))?;
    Ok(((statx.stx_dev_major, statx.stx_dev_minor), statx.stx_ino))
}

/// The identity of an open directory, if it is the expected one.
pub(super) fn identity_as(fd: BorrowedFd<'_>, expected: Option<Expected>) -> Result<Identity, (Cause, Errno)> {
    let found = identity(fd).map_err(|errno| (Cause::Open, errno))?;
    match expected {
        Some(expected) if !expected.automount && (expected.dev, expected.ino) != found => {
            Err((Cause::Swapped, Errno::STALE))
        }
        _ => Ok(found),
    }
}

/// Whether a record is a directory that a walk enters.
pub(super) fn is_directory(dir: BorrowedFd<'_>, record: &Record<'_>, follow: bool) -> bool {
    let is = match record.kind() {
        Some(FileKind::Symlink) if follow && record.attr().is_none() && record.errno().is_none() => {
            leads_to_directory(dir, record, true)
        }
        Some(kind) => kind == FileKind::Directory,
        // Neither the directory entry nor the attributes have the type. Opening it may still fail.
        None => leads_to_directory(dir, record, follow),
    };
    is && record.name() != b"." && record.name() != b".."
}

fn leads_to_directory(dir: BorrowedFd<'_>, record: &Record<'_>, follow: bool) -> bool {
    retry(|| rustix::fs::statx(dir, record.name_c(), looking(follow), StatxFlags::TYPE))
        .is_ok_and(|statx| attr_of(&statx).kind() == Some(FileKind::Directory))
}
