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

use pando_vfs::bulk::Names;
use rustix::io::Errno;

use crate::{calls::retry, sys};

/// What getdents64 is given: not the odd bytes that a page has beyond.
const BUFFER_BYTES: usize = 1 << 16;
const NAME_AT: usize = 19;

/// Reads entries into what is free in the last page of `names`; how many bytes are left there, none at the end of the
/// directory.
pub fn read(dir: BorrowedFd<'_>, names: &mut Names, dots: bool) -> Result<Option<usize>, Errno> {
    let mut at = names.last_used();
    let len = retry(|| sys::getdents64(dir, &mut names.last_page_mut()[at..BUFFER_BYTES]))?;
    if len == 0 {
        return Ok(None);
    }
    let end = at + len;
    while let Some(head) = names.last_page().get(at..end).and_then(Head::of) {
        let name = at + NAME_AT..at + NAME_AT + head.name_len;
        if dots || !is_dot(&names.last_page()[name.clone()]) {
            names.push_entry(name.start, head.name_len, head.ino, head.cookie, head.dtype);
        }
        at += head.len;
    }
    names.set_last_used(end);
    Ok(Some(BUFFER_BYTES - end))
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
