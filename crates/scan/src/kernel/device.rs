//! The device of a directory.

use std::{fs, os::fd::BorrowedFd};

use rustix::fs::{AtFlags, StatxFlags};

/// Whether the device rotates, as /sys says. False if /sys does not say, as for network file
/// systems.
pub fn is_rotational(dir: BorrowedFd<'_>) -> bool {
    let Ok(statx) = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::INO) else { return false };
    let device = format!("/sys/dev/block/{}:{}", statx.stx_dev_major, statx.stx_dev_minor);
    // A partition has no queue of its own. Its disk is one level up.
    ["queue", "../queue"]
        .iter()
        .find_map(|queue| fs::read(format!("{device}/{queue}/rotational")).ok())
        .is_some_and(|answer| answer.starts_with(b"1"))
}
