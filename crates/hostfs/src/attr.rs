//! Attributes, from the form of statx(2) to that of the tree.

use std::os::fd::BorrowedFd;

use pando_vfs::{Error, FileKind, NodeAttr, Result, Timestamp};
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, makedev, readlinkat, statx};

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The attributes of what a name in a directory leads to, as the host gives them, with the number
/// of its mount. A symbolic link is not followed, and nothing is mounted by it.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Statx> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED | StatxFlags::MNT_ID)
}

/// The number of an open file's mount; none before Linux 5.8.
pub(crate) fn mount_of(file: BorrowedFd<'_>) -> Option<u64> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    has(&found, StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
}

/// The attributes of an open file, as the host gives them.
pub(crate) fn stat(file: BorrowedFd<'_>) -> Result<Statx> {
    statx(file, c"", AtFlags::EMPTY_PATH, WANTED).map_err(from_errno)
}

/// The attributes in the form of the tree, with its number of the inode.
pub(crate) fn attr_of(stat: &Statx, number: u64, file: BorrowedFd<'_>) -> Result<NodeAttr> {
    let kind = kind_of(stat)?;
    let mut attr = NodeAttr::new(number, kind, u32::from(stat.stx_mode) & 0o7777, time(&stat.stx_mtime));
    attr.uid = stat.stx_uid;
    attr.gid = stat.stx_gid;
    attr.nlink = stat.stx_nlink;
    attr.size = stat.stx_size;
    attr.blocks = stat.stx_blocks;
    attr.rdev = device_number(stat.stx_rdev_major, stat.stx_rdev_minor);
    attr.atime = time(&stat.stx_atime);
    attr.ctime = time(&stat.stx_ctime);
    // Not all file systems have a time of creation. This one is at least never later than it.
    attr.btime = if has_btime(stat) { time(&stat.stx_btime) } else { attr.mtime.min(attr.ctime) };
    if kind == FileKind::Symlink {
        attr.target = readlinkat(file, c"", Vec::new()).map_err(from_errno)?.into_bytes().into();
    }
    Ok(attr)
}

pub(crate) fn kind_of(stat: &Statx) -> Result<FileKind> {
    FileKind::from_mode(stat.stx_mode.into()).ok_or(Error::Io)
}

/// The time of creation in nanoseconds; 0 if the file system has none.
pub(crate) fn born(stat: &Statx) -> i64 {
    if has_btime(stat) { time(&stat.stx_btime).0 } else { 0 }
}

fn has_btime(stat: &Statx) -> bool {
    has(stat, StatxFlags::BTIME)
}

fn has(stat: &Statx, fields: StatxFlags) -> bool {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(fields)
}

/// Beyond the years 1678 to 2262 the nearest time that the tree can express.
fn time(time: &StatxTimestamp) -> Timestamp {
    Timestamp::from_parts(time.tv_sec, time.tv_nsec)
}

/// A device number in the kernel's form of 32 bits (`new_encode_dev()`): that of the C library, as
/// long as the kernel's numbers have 12 and 20 bits.
fn device_number(major: u32, minor: u32) -> u32 {
    makedev(major, minor) as u32
}

pub(crate) fn from_errno(errno: rustix::io::Errno) -> Error {
    Error::from_errno(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_converted_both_ways() {
        for (major, minor) in [(0, 0), (8, 1), (1, 3), (259, 0x12345), (0xfff, 0xfffff)] {
            let stored = device_number(major, minor).into();
            assert_eq!((rustix::fs::major(stored), rustix::fs::minor(stored)), (major, minor));
        }
        assert_eq!(device_number(8, 1), 0x801);
    }
}
