//! The bytes of a file in the store: sparse, in a map of pages.

use std::collections::BTreeMap;

use pando_vfs::Layout;

/// The page size of the kernel's memory file system, so that holes are in the same places.
const PAGE: u64 = 4096;

/// The bytes of a file. A page that is not in the map is a hole and reads as zeros. Bytes beyond
/// the end are zeros too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
    layout: Layout,
}

impl Bytes {
    /// Replaces the contents.
    pub(crate) fn replace(&mut self, bytes: &[u8]) {
        self.resize(0);
        self.write(bytes, 0);
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The space of the pages, in units of 512 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE / 512)
    }

    /// Fills all of `buf`.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) {
        for (at, within, part) in parts(offset, buf.len()) {
            match self.pages.get(&at) {
                Some(page) => buf[part.clone()].copy_from_slice(&page[within..within + part.len()]),
                None => buf[part].fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, data: &[u8], offset: u64) {
        for (at, within, part) in parts(offset, data.len()) {
            let page = self.pages.entry(at).or_insert_with(empty);
            page[within..within + part.len()].copy_from_slice(&data[part]);
        }
        self.layout.set_data(offset, data.len() as u64);
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// Sets the size. Growth keeps pages that were allocated beyond the end.
    pub(crate) fn resize(&mut self, size: u64) {
        if size <= self.size {
            self.zero(size, size.next_multiple_of(PAGE));
            drop(self.pages.split_off(&size.div_ceil(PAGE)));
            self.layout.cut(size);
        }
        self.size = size;
    }

    /// Allocates the missing pages of a range. The size stays the same.
    pub(crate) fn allocate(&mut self, offset: u64, len: u64) {
        for at in offset / PAGE..(offset + len).div_ceil(PAGE) {
            self.pages.entry(at).or_insert_with(empty);
        }
    }

    /// Frees the whole pages of a range, and zeros the rest of it.
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        self.layout.set_hole(offset, len);
        let end = offset + len;
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first <= last {
            self.zero(offset, first * PAGE);
            self.zero(last * PAGE, end);
            let mut later = self.pages.split_off(&first);
            self.pages.append(&mut later.split_off(&last));
        } else {
            self.zero(offset, end);
        }
    }

    /// Zeros a range within a page, if the page exists.
    fn zero(&mut self, from: u64, to: u64) {
        if let Some(page) = self.pages.get_mut(&(from / PAGE)) {
            let within = (from % PAGE) as usize;
            page[within..within + (to - from) as usize].fill(0);
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All bytes, holes included, for files that fit into memory.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(self.size).expect("a file that fits into memory")];
        self.read(&mut all, 0);
        all
    }
}

fn empty() -> Box<[u8]> {
    vec![0; PAGE as usize].into()
}

/// Splits a range by pages: the page number, the start within that page, and the part of the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let start = done;
        done = len.min(start + PAGE as usize - within);
        (start < len).then_some((at / PAGE, within, start..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritten_ranges_are_holes() {
        let mut bytes = Bytes::default();
        bytes.replace(b"abc");
        bytes.write(b"xyz", 3 * PAGE - 1);
        let seek = |bytes: &Bytes, offset| {
            (bytes.layout.data_after(offset, bytes.size), bytes.layout.hole_after(offset, bytes.size))
        };
        assert_eq!((bytes.size(), bytes.pages.len()), (3 * PAGE + 2, 3));
        assert_eq!((seek(&bytes, 1).1, seek(&bytes, PAGE).0), (PAGE, Some(2 * PAGE)));
        assert_eq!(seek(&bytes, 2 * PAGE).1, 3 * PAGE + 2);
        bytes.punch(1, 3 * PAGE - 1);
        assert_eq!((bytes.pages.len(), seek(&bytes, PAGE).0), (2, Some(3 * PAGE)));
        let mut buf = [7; 4];
        bytes.read(&mut buf, 3 * PAGE - 2);
        assert_eq!(&buf, b"\0\0yz");
        bytes.resize(2);
        bytes.resize(5);
        assert_eq!((bytes.to_vec(), bytes.pages.len()), (b"a\0\0\0\0".to_vec(), 1));
        assert_eq!(seek(&bytes, 4), (Some(4), 5));
    }
}
