//! A page of directory entries as getdents64 fills it, read without copying the names.
//!
//! ```text
//!  bytes  0..8   inode number
//!         8..16  cookie of the next entry
//!        16..18  length of this record
//!        18      d_type
//!        19..    the name, a zero byte, padding
//! ```

use std::{ffi::CStr, os::fd::BorrowedFd};

use pando_vfs::bulk::{Names, Page};
use rustix::io::Errno;

use crate::{fill::retry, sys};

/// What getdents64 is given: not the odd bytes that a page has beyond.
const BUFFER_BYTES: usize = 1 << 16;
const NAME_AT: usize = 19;

/// What a read of the directory gave.
pub enum Dirents {
    /// Entries were added; the page is taken.
    More,
    /// The end of the directory; the page comes back.
    End(Page),
    /// It could not be read; the page comes back.
    Failed(Page, Errno),
}

/// Reads one page of entries into `names`.
pub fn read(dir: BorrowedFd<'_>, mut page: Page, names: &mut Names, dots: bool) -> Dirents {
    let len = match retry(|| sys::getdents64(dir, &mut page.bytes_mut()[..BUFFER_BYTES])) {
        Ok(0) => return Dirents::End(page),
        Ok(len) => len,
        Err(errno) => return Dirents::Failed(page, errno),
    };
    names.push_page(page);
    let mut at = 0;
    while let Some(record) = names.last_page().get(at..len) {
        let Some(head) = Head::of(record) else { break };
        let name_len = head.name_len;
        if dots || !is_dot(&record[NAME_AT..NAME_AT + name_len]) {
            names.push_entry(at + NAME_AT, name_len, head.ino, head.cookie, head.dtype);
        }
        at += head.len;
    }
    Dirents::More
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The numbers of a record.
struct Head {
    ino: u64,
    cookie: u64,
    len: usize,
    name_len: usize,
    dtype: u8,
}

impl Head {
    /// None for what is no whole record: the kernel leaves none.
    fn of(record: &[u8]) -> Option<Self> {
        let word = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let len = usize::from(u16::from_ne_bytes(record.get(16..18)?.try_into().ok()?));
        let name_len = CStr::from_bytes_until_nul(record.get(NAME_AT..len)?).ok()?.count_bytes();
        Some(Self { ino: word(0)?, cookie: word(8)?, len, name_len, dtype: record[18] })
    }
}
