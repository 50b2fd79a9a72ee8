//! Directory entries of the host.

use std::{mem::MaybeUninit, os::fd::AsFd, sync::Arc};

use pando_vfs::{FileKind, Record, Result};
use rustix::fs::{OFlags, RawDir, SeekFrom, seek};

use crate::{attr::from_errno, nodes::Node, tree::Tree};

/// The bytes of one getdents64(2), as in glibc's readdir.
const BUFFER_BYTES: usize = 32 << 10;
/// Cookies below this are those of `.` and `..`.
const FIRST_COOKIE: u64 = 3;
/// The positions of the host go up to this.
const LAST_POSITION: u64 = i64::MAX as u64;

impl Tree {
    /// Calls `each` for the entries after a cookie, until it returns false.
    pub(crate) fn scan(&self, dir: &Arc<Node>, cookie: u64, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()> {
        let dir_fd = self.path_fd(dir)?;
        // Each scan has a position of its own.
        let file = self.reopen(dir_fd.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        if cookie != 0 {
            seek(&file, SeekFrom::Start(position_of(cookie))).map_err(from_errno)?;
        }
        let mut buffer = Box::new_uninit_slice(BUFFER_BYTES);
        let buffer: &mut [MaybeUninit<u8>] = &mut buffer;
        let mut entries = RawDir::new(file.as_fd(), buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The directory was removed.
                Err(rustix::io::Errno::NOENT) => return Ok(()),
                entry => entry.map_err(from_errno)?,
            };
            let (name, cookie) = (entry.file_name().to_bytes(), cookie_of(entry.next_entry_cookie()));
            if name == b"." || name == b".." {
                continue;
            }
            let more = match FileKind::from_mode(entry.file_type().as_raw_mode()) {
                // An inode that has a number of our own is shown with that of the host.
                Some(kind) => each(Record::new(name, entry.ino(), kind, cookie)),
                // The file system does not tell kinds.
                None => match self.lookup(dir, name)? {
                    Some(found) => each(Record::new(name, found.attr.ino, found.attr.kind, cookie).attr(&found.attr)),
                    // Removed since.
                    None => continue,
                },
            };
            if !more {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The cookie of a position. No entry has a position below [`FIRST_COOKIE`] on the file systems of
/// Linux, where `.` and `..` come first. If one had, its cookie would be at the other end.
fn cookie_of(position: u64) -> u64 {
    if position < FIRST_COOKIE { LAST_POSITION - FIRST_COOKIE + position } else { position }
}

fn position_of(cookie: u64) -> u64 {
    let low = (LAST_POSITION - FIRST_COOKIE..LAST_POSITION).contains(&cookie);
    if low { cookie - (LAST_POSITION - FIRST_COOKIE) } else { cookie }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_stand_for_positions() {
        for position in [0, 1, 2, 3, 4, 1 << 40, LAST_POSITION - 4, LAST_POSITION] {
            let cookie = cookie_of(position);
            assert!(cookie >= FIRST_COOKIE);
            assert_eq!(position_of(cookie), position);
        }
    }
}
