//! The first half of a batch: the names, in pages.

use std::ffi::CStr;

use crate::{FileKind, Page};

/// One entry of the directory. Its name lies in a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub ino: u64,
    pub cookie: u64,
    at: u32,
    page: u16,
    len: u16,
    pub dtype: u8,
}

impl Entry {
    /// The kind of the file, if the directory has it.
    #[inline]
    pub fn kind(&self) -> Option<FileKind> {
        match self.dtype {
            0 => None,
            dtype => FileKind::from_mode(u32::from(dtype) << 12),
        }
    }
}

/// The first half of a batch.
#[derive(Debug, Default)]
pub struct Names {
    pages: Vec<Page>,
    pub(crate) entries: Vec<Entry>,
}

impl Names {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an empty page. The caller writes names into it, each with a zero byte after it, as
    /// getdents does. Entries pushed from now on are in this page.
    pub fn push_page(&mut self, mut page: Page) {
        page.clear();
        self.pages.push(page);
    }

    /// Adds an entry of the last page. Its name begins at `at` and ends at the first zero byte,
    /// which is before `end`. More than padding may follow that byte.
    ///
    /// # Panics
    /// If there is no page, the name is not in it, or it has no zero byte: a mistake of the caller.
    pub fn push_entry(&mut self, at: usize, end: usize, ino: u64, cookie: u64, dtype: u8) {
        let page = self.pages.len().checked_sub(1).expect("a page comes before its entries");
        let len =
            until_zero(&self.pages[page].bytes[at..]).filter(|len| at + len < end).expect("a zero byte ends the name");
        self.entries.push(Entry {
            ino,
            cookie,
            at: u32::try_from(at).expect("less than a page"),
            page: u16::try_from(page).expect("a batch has few pages"),
            len: u16::try_from(len).expect("less than a page"),
            dtype,
        });
    }

    /// Whether a name of this length can be copied into the last page.
    #[must_use]
    pub fn has_room(&self, name: usize) -> bool {
        self.last_used() + name < self.last_page().len()
    }

    /// Copies a name into the last page and adds its entry. A name ends at its first zero byte.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn push_name(&mut self, name: &[u8], ino: u64, cookie: u64, dtype: u8) {
        let at = self.last_used();
        let end = at + name.len();
        let page = self.last_page_mut();
        page[at..end].copy_from_slice(name);
        page[end] = 0;
        self.set_last_used(end + 1);
        self.push_entry(at, end + 1, ino, cookie, dtype);
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

    /// The bytes of the last page, mutable. The first [`Names::last_used`] of them hold names.
    pub fn last_page_mut(&mut self) -> &mut [u8] {
        self.pages.last_mut().map_or(&mut [], Page::bytes_mut)
    }

    /// How many bytes of the last page are in use.
    #[must_use]
    pub fn last_used(&self) -> usize {
        self.pages.last().map_or(0, |page| page.used)
    }

    /// Sets how many bytes of the last page are in use.
    pub fn set_last_used(&mut self, used: usize) {
        if let Some(page) = self.pages.last_mut() {
            page.used = used;
        }
    }

    /// The name of an entry.
    #[must_use]
    pub fn name(&self, index: usize) -> &[u8] {
        self.name_of(&self.entries[index])
    }

    /// The name of an entry, for a system call.
    #[must_use]
    pub fn name_c(&self, index: usize) -> &CStr {
        self.name_c_of(&self.entries[index])
    }

    #[inline]
    pub(crate) fn name_of(&self, entry: &Entry) -> &[u8] {
        &self.pages[usize::from(entry.page)].bytes[entry.at as usize..][..usize::from(entry.len)]
    }

    pub(crate) fn name_c_of(&self, entry: &Entry) -> &CStr {
        let bytes = &self.pages[usize::from(entry.page)].bytes[entry.at as usize..][..=usize::from(entry.len)];
        CStr::from_bytes_with_nul(bytes).expect("the first zero byte ends the name")
    }

    /// The kind of an entry, if the directory has it.
    #[must_use]
    pub fn kind(&self, index: usize) -> Option<FileKind> {
        self.entries[index].kind()
    }

    /// The inode number of an entry in the directory.
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

/// The index of the first zero byte. Sixteen bytes without one take a few instructions, since
/// compilers make one comparison of a fold over so many.
#[inline]
fn until_zero(bytes: &[u8]) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    let has_zero = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, &byte| found | (byte == 0));
    let Some(at) = chunks.iter().position(has_zero) else {
        return Some(chunks.len() * 16 + rest.iter().position(|&byte| byte == 0)?);
    };
    // The lowest byte that borrows is the first zero. Bytes above it may be flagged wrongly.
    const ONES: u128 = u128::MAX / 255;
    let word = u128::from_le_bytes(chunks[at]);
    let flags = word.wrapping_sub(ONES) & !word & ONES << 7;
    Some(at * 16 + flags.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As from getdents: padded to eight bytes, with earlier contents in the padding.
    #[test]
    fn names_end_at_their_zero_byte_with_any_padding() {
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

    #[test]
    fn first_zero_byte_is_found_everywhere() {
        for len in 0..60_usize {
            // Values next to zero are the ones that carries may confuse.
            for filler in [1_u8, 0x7f, 0x80, 0x81, 0xff] {
                let bytes = vec![filler; len];
                assert_eq!(until_zero(&bytes), None);
                for at in 0..len {
                    for next in at..len {
                        let mut bytes = bytes.clone();
                        (bytes[at], bytes[next]) = (0, 0);
                        assert_eq!(until_zero(&bytes), Some(at), "{bytes:?}");
                    }
                }
            }
        }
    }

    /// A server or a damaged image has names with a zero byte inside, and getdents adds another one
    /// at the end.
    #[test]
    fn names_end_at_their_first_zero_byte_with_any_rest() {
        for behind in [b'b', 0, 0x80, 0xff] {
            for record in (24..=280).step_by(8) {
                for len in 0..record - 19 {
                    let mut names = Names::default();
                    names.push_page(Page::new());
                    let bytes = &mut names.last_page_mut()[..record];
                    bytes.fill(behind);
                    bytes[..19].fill(0);
                    bytes[19..19 + len].fill(b'a');
                    (bytes[19 + len], bytes[record - 1]) = (0, 0);
                    names.push_entry(19, record, 0, 0, 0);
                    assert_eq!(names.name(0), vec![b'a'; len], "{record}, {behind}");
                    assert_eq!(names.name_c(0).count_bytes(), len);
                }
            }
        }
    }
}
