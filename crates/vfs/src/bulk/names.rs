//! The names half of a batch, and pages.

use std::ffi::CStr;

use crate::{FileKind, XATTR_SIZE_MAX, name::first_zero};

/// Bytes in a page of a batch: the largest attribute value with its name and head fits into one.
pub const PAGE_BYTES: usize = XATTR_SIZE_MAX + 512;

/// A page: a fixed number of bytes, of which the first `used` count.
#[derive(Debug)]
pub struct Page {
    pub(super) bytes: Box<[u8]>,
    pub(super) used: usize,
}

impl Page {
    /// A page of zeros.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; PAGE_BYTES].into_boxed_slice(), used: 0 }
    }

    /// Empties it. The bytes stay.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// All its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

/// One entry as the directory has it. Its name lies in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub ino: u64,
    pub cookie: u64,
    at: u32,
    page: u16,
    len: u16,
    pub dtype: u8,
}

/// The names half of a batch.
#[derive(Debug, Default)]
pub struct Names {
    pages: Vec<Page>,
    pub(super) entries: Vec<Entry>,
}

impl Names {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes an empty page. Names are written into it, each with a zero byte behind it, as getdents leaves them;
    /// entries pushed from now on are of this page.
    pub fn push_page(&mut self, mut page: Page) {
        page.clear();
        self.pages.push(page);
    }

    /// An entry of the last page: its name, which has no zero byte, begins at `at`, and up to `end` there is one that ends it
    /// and fewer than eight bytes more, as getdents pads records.
    ///
    /// # Panics
    /// If there is no page, or the name does not lie in it, or no zero byte is there: the caller's mistake.
    pub fn push_entry(&mut self, at: usize, end: usize, ino: u64, cookie: u64, dtype: u8) {
        let page = self.pages.len().checked_sub(1).expect("a page comes before its entries");
        let last = self.pages[page].bytes[..end].last_chunk().expect("a record is longer than that");
        // Of a short name, what lies before it is no zero.
        let before = (at + 8).saturating_sub(end) as u32;
        let zero = first_zero(u64::from_le_bytes(*last) | !u64::MAX.wrapping_shl(before * 8));
        let name_end = end - 8 + zero.expect("a zero byte ends the name");
        let len = name_end.checked_sub(at).expect("it begins before its end");
        self.entries.push(Entry {
            ino,
            cookie,
            at: u32::try_from(at).expect("less than a page"),
            page: u16::try_from(page).expect("a batch has few pages"),
            len: u16::try_from(len).expect("less than a page"),
            dtype,
        });
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The bytes of the last page.
    #[must_use]
    pub fn last_page(&self) -> &[u8] {
        self.pages.last().map_or(&[], Page::bytes)
    }

    /// The same, to be written. What lies in [`Names::last_used`] are names already.
    pub fn last_page_mut(&mut self) -> &mut [u8] {
        self.pages.last_mut().map_or(&mut [], Page::bytes_mut)
    }

    /// How many bytes of the last page are taken.
    #[must_use]
    pub fn last_used(&self) -> usize {
        self.pages.last().map_or(0, |page| page.used)
    }

    /// So many bytes of the last page are taken now.
    pub fn set_last_used(&mut self, used: usize) {
        if let Some(page) = self.pages.last_mut() {
            page.used = used;
        }
    }

    /// The name of an entry.
    #[must_use]
    pub fn name(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.pages[usize::from(entry.page)].bytes[entry.at as usize..][..usize::from(entry.len)]
    }

    /// The name of an entry, for a system call.
    #[must_use]
    pub fn name_c(&self, index: usize) -> &CStr {
        let entry = &self.entries[index];
        let bytes = &self.pages[usize::from(entry.page)].bytes[entry.at as usize..][..=usize::from(entry.len)];
        CStr::from_bytes_with_nul(bytes).unwrap_or_default()
    }

    /// What an entry is, if the directory says so.
    #[must_use]
    pub fn kind(&self, index: usize) -> Option<FileKind> {
        match self.entries[index].dtype {
            0 => None,
            dtype => FileKind::from_mode(u32::from(dtype) << 12),
        }
    }

    /// The inode number of an entry, as the directory has it.
    #[must_use]
    pub fn ino(&self, index: usize) -> u64 {
        self.entries[index].ino
    }

    /// Empties it, and gives its pages to `recycle`.
    pub fn clear(&mut self, recycle: impl FnMut(Page)) {
        self.entries.clear();
        self.pages.drain(..).for_each(recycle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As getdents has it: padded to eight bytes, with whatever lay there before.
    #[test]
    fn names_end_at_their_zero_byte_whatever_lies_around() {
        for padding in [0_u8, 1, 0x80, 0xff] {
            let mut names = Names::default();
            names.push_page(Page::new());
            let mut at = 0;
            for len in 1..=255 {
                let begin = at + 19;
                let end = at + (19 + len + 1_usize).next_multiple_of(8);
                let record = &mut names.last_page_mut()[at..end];
                record.fill(padding);
                record[19..19 + len].fill(b'n');
                record[19 + len] = 0;
                names.push_entry(begin, end, 0, 0, 0);
                at = end;
            }
            for len in 1..=255 {
                assert_eq!(names.name(len - 1), vec![b'n'; len], "{padding}");
                assert_eq!(names.name_c(len - 1).count_bytes(), len);
            }
        }
    }
}
