//! Directory entries of the host.

use std::{mem::MaybeUninit, os::fd::AsFd, sync::Arc};

use pando_vfs::{Error, FileKind, Record, RecordMask, Result};
use rustix::fs::{OFlags, RawDir, SeekFrom, seek};

use crate::{attr::from_errno, nodes::Node, tree::Tree};

/// The bytes of one getdents64(2), as in glibc's readdir.
const BUFFER_BYTES: usize = 32 << 10;
/// Cookies below this are those of `.` and `..`.
const FIRST_COOKIE: u64 = 3;
/// The number of an inode that could not be looked up. No inode has it.
const NO_NUMBER: u64 = u64::MAX;
/// The positions of the host go up to this.
const LAST_POSITION: u64 = i64::MAX as u64;

impl Tree {
    /// Calls `each` for the entries after a cookie, until it returns false.
    pub(crate) fn scan(
        &self,
        dir: &Arc<Node>,
        cookie: u64,
        wanted: RecordMask,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> Result<()> {
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
            let known = FileKind::from_mode(entry.file_type().as_raw_mode());
            if wanted.contains(RecordMask::ATTR) || known.is_none() {
                match self.lookup_listed(dir, name, Some(entry.ino())) {
                    Ok(Some(found)) => {
                        let record = Record::new(name, found.attr.ino, found.attr.kind, cookie).attr(&found.attr);
                        if !each(record) {
                            return Ok(());
                        }
                        continue;
                    }
                    // Removed since.
                    Ok(None) => continue,
                    Err(_) => {}
                }
            }
            let Some(kind) = known else { return Err(Error::Io) };
            // Without attributes, an inode that has a number of our own is shown with that of the
            // host. A reader that wants attributes would ask for those of that number.
            let ino = if wanted.contains(RecordMask::ATTR) { NO_NUMBER } else { entry.ino() };
            if !each(Record::new(name, ino, kind, cookie)) {
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
