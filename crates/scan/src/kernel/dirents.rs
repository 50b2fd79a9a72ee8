//! A page of directory entries as getdents64 fills it. The names are not copied.
//!
//! ```text
//!  bytes  0..8   inode number
//!         8..16  cookie of the next entry
//!        16..18  length of this record
//!        18      d_type
//!        19..    the name, a zero byte, padding
//! ```
//!
//! A FUSE server or a damaged image may put zero bytes into a name: the kernel refuses only
//! slashes. The name then ends at the first zero byte, as in the C library, since no call that
//! takes a name would see more of it.

use std::os::fd::BorrowedFd;

use pando_records::Names;
use rustix::io::Errno;

use super::{calls::retry, sys};

/// The length of the buffer for getdents64: a page without the odd bytes at its end.
const BUFFER_BYTES: usize = 1 << 16;
const NAME_AT: usize = 19;
/// The length of a record with a name of one to four bytes.
const SHORTEST: usize = 24;

/// Reads entries into the free space of the last page of `names`. Returns how many bytes are left
/// there, and none at the end of the directory.
pub fn read(dir: BorrowedFd<'_>, names: &mut Names, dots: bool) -> Result<Option<usize>, Errno> {
    let mut at = names.last_used();
    let len = retry(|| sys::getdents64(dir, &mut names.last_page_mut()[at..BUFFER_BYTES]))?;
    if len == 0 {
        return Ok(None);
    }
    let end = at + len;
    while let Some(head) = names.last_page().get(at..end).and_then(Head::of) {
        if dots || !head.is_dot {
            names.push_entry(at + NAME_AT, at + head.len, head.ino, head.cookie, head.dtype);
        }
        at += head.len;
    }
    names.set_last_used(end);
    Ok(Some(BUFFER_BYTES - end))
}

/// The fields of a record before its name.
struct Head {
    ino: u64,
    cookie: u64,
    len: usize,
    dtype: u8,
    is_dot: bool,
}

impl Head {
    /// None if the record is not whole. The kernel leaves none like that.
    fn of(record: &[u8]) -> Option<Self> {
        let (ino, rest) = record.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let [dtype, name @ ..] = rest else { return None };
        let is_dot = matches!(name, [b'.', 0, ..] | [b'.', b'.', 0, ..]);
        let is_whole = (SHORTEST..=record.len()).contains(&len);
        is_whole.then(|| Self {
            ino: u64::from_ne_bytes(*ino),
            cookie: u64::from_ne_bytes(*cookie),
            len,
            dtype: *dtype,
            is_dot,
        })
    }
}
