//! One page of a file, and a run of neighbouring pages.

use pando_sync::BlockBytes;
use pando_vfs::{Error, Result};

/// The unit in which space is counted, allocated and freed.
pub const PAGE_BYTES: usize = 4096;

/// The number of pages in a [`Chunk`]: 256 KiB of a file, so that a chunk is searched once in 64
/// pages.
pub(crate) const CHUNK_PAGES: usize = 64;

/// The smallest allocation of a page's bytes.
const SMALLEST: usize = 64;

/// A page: the first bytes of 4096, of which the rest are zeros.
///
/// Its length is the smallest size class (64, 128, .. 4096) for the bytes that were written. So a
/// file of a hundred bytes has 128 bytes in memory. It is *counted* as a whole page nevertheless.
/// This keeps the accounting to one number, and the memory below that number. A page of length 0
/// was allocated and not written to: it is charged, and reads as a hole.
#[derive(Debug, Default)]
pub(crate) struct Page(BlockBytes);

impl Page {
    /// A page with `data` at `within`.
    pub(crate) fn new(within: usize, data: &[u8]) -> Result<Self> {
        Self::build(&[], within, data)
    }

    /// Writes `data` at `within`, into a larger allocation if necessary.
    pub(crate) fn write(&mut self, within: usize, data: &[u8]) -> Result<()> {
        match self.0.get_mut(within..within + data.len()) {
            Some(bytes) => bytes.copy_from_slice(data),
            None => *self = Self::build(&self.0, within, data)?,
        }
        Ok(())
    }

    /// Builds a page: `old`, zeros up to `within`, `data`, which must end beyond `old`, and zeros
    /// up to the size class.
    fn build(old: &[u8], within: usize, data: &[u8]) -> Result<Self> {
        debug_assert!(old.len() < within + data.len() && within + data.len() <= PAGE_BYTES);
        let len = (within + data.len()).next_power_of_two().max(SMALLEST);
        BlockBytes::patched(len, old, within, data).map(Self).ok_or(Error::NoMemory)
    }

    /// Fills `buf` with the bytes at `within`.
    pub(crate) fn read(&self, within: usize, buf: &mut [u8]) {
        let here = self.0.get(within..).unwrap_or_default();
        let n = here.len().min(buf.len());
        buf[..n].copy_from_slice(&here[..n]);
        buf[n..].fill(0);
    }

    /// Zeros the bytes `from..to`.
    pub(crate) fn zero(&mut self, from: usize, to: usize) {
        let len = self.0.len();
        self.0[from.min(len)..to.min(len)].fill(0);
    }

    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.0.len()
    }
}

/// Up to [`CHUNK_PAGES`] neighbouring pages. It ends at its last page, so a file of one page has
/// one line of slots.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    lines: Vec<Line>,
    /// The number of slots up to the last page.
    len: usize,
}

/// Slots on a cache line of their own. Otherwise they could share it with anything in the program's
/// memory, and a reader would wait for a thread that has nothing to do with the file.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([Option<Page>; LINE_SLOTS]);

const LINE_SLOTS: usize = 64 / size_of::<Option<Page>>();
const _: () = assert!(size_of::<Line>() == 64 && CHUNK_PAGES.is_multiple_of(LINE_SLOTS));

impl Chunk {
    /// The page in slot `index`. `None` is a hole that is not charged.
    pub(crate) fn page(&self, index: usize) -> Option<&Page> {
        self.lines.get(index / LINE_SLOTS)?.0[index % LINE_SLOTS].as_ref()
    }

    /// Like [`Chunk::page`], for a change.
    pub(crate) fn page_mut(&mut self, index: usize) -> Option<&mut Page> {
        self.lines.get_mut(index / LINE_SLOTS)?.0[index % LINE_SLOTS].as_mut()
    }

    /// The slot itself. The chunk is extended if necessary.
    pub(crate) fn slot(&mut self, index: usize) -> Result<&mut Option<Page>> {
        debug_assert!(index < CHUNK_PAGES);
        if index >= self.len {
            self.extend(index + 1)?;
        }
        Ok(&mut self.lines[index / LINE_SLOTS].0[index % LINE_SLOTS])
    }

    /// Adds slots until there are `len`.
    #[cold]
    fn extend(&mut self, len: usize) -> Result<()> {
        let lines = len.div_ceil(LINE_SLOTS);
        if lines > self.lines.capacity() {
            let capacity = lines.next_power_of_two();
            self.lines.try_reserve_exact(capacity - self.lines.len()).map_err(|_| Error::NoMemory)?;
        }
        self.lines.resize_with(lines, Line::default);
        self.len = len;
        Ok(())
    }

    /// The slots up to the last page.
    pub(crate) fn slots(&self) -> impl ExactSizeIterator<Item = Option<&Page>> {
        (0..self.len).map(|index| self.page(index))
    }

    /// Frees the pages in `from..to`. Returns their number.
    pub(crate) fn free(&mut self, from: usize, to: usize) -> u64 {
        let mut freed = 0;
        for index in from..to.min(self.len) {
            let slot = &mut self.lines[index / LINE_SLOTS].0[index % LINE_SLOTS];
            freed += u64::from(slot.take().is_some());
        }
        self.trim();
        freed
    }

    /// Drops the slots after the last page, and most of their memory.
    #[inline]
    pub(crate) fn trim(&mut self) {
        let is_trim = self.len > 0 && self.page(self.len - 1).is_some();
        if !is_trim || self.lines.len() * 4 <= self.lines.capacity() {
            self.drop_slots();
        }
    }

    #[cold]
    fn drop_slots(&mut self) {
        while self.len > 0 && self.page(self.len - 1).is_none() {
            self.len -= 1;
        }
        self.lines.truncate(self.len.div_ceil(LINE_SLOTS));
        let lines = self.lines.len();
        if lines == 0 || lines * 4 <= self.lines.capacity() {
            self.lines.shrink_to(lines.next_power_of_two().min(lines * 2));
        }
    }

    /// Whether it has no page.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_the_length_of_its_size_class() {
        let mut page = Page::new(0, b"abc").unwrap();
        assert_eq!(page.allocated(), 64);
        page.write(60, b"12345").unwrap();
        assert_eq!(page.allocated(), 128);
        page.write(10, &[9; 118]).unwrap();
        assert_eq!(page.allocated(), 128);
        page.write(4095, b"z").unwrap();
        assert_eq!(page.allocated(), PAGE_BYTES);
        let mut bytes = [1; 12];
        page.read(0, &mut bytes);
        assert_eq!(&bytes, b"abc\0\0\0\0\0\0\0\x09\x09");
        assert_eq!(Page::default().allocated(), 0);
    }

    #[test]
    fn chunk_ends_at_its_last_page() {
        let mut chunk = Chunk::default();
        *chunk.slot(0).unwrap() = Some(Page::default());
        assert_eq!(chunk.lines.capacity(), 1);
        *chunk.slot(40).unwrap() = Some(Page::default());
        assert_eq!((chunk.slots().len(), chunk.lines.capacity()), (41, 16));
        assert_eq!(chunk.free(1, 64), 1);
        assert_eq!((chunk.slots().len(), chunk.lines.capacity()), (1, 1));
        assert_eq!(chunk.free(0, 64), 1);
        assert!(chunk.is_empty() && chunk.lines.capacity() == 0);
    }
}
