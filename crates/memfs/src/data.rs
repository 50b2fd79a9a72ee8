//! The contents of one file: sparse, in pages.
//!
//! The first 64 pages (256 KiB) are an array of their own. Each later run of 64 pages is in a
//! B-tree, if one of its pages exists. So a small file is one array with one slot and one short
//! page. A large file costs one search in 64 pages, and a hole of any length costs nothing. The
//! next page after an offset, which SEEK_DATA, punch and truncate need, is the next one in order:
//! holes are never scanned.
//!
//! Invariants:
//! - `pages` is the number of pages in all chunks, and this many are charged to the space
//! - no chunk in the tree is empty
//! - bytes beyond the end of the file are zeros: a write ends at the new end, and a truncation
//!   zeros the tail

use std::{collections::BTreeMap, sync::Arc};

use pando_vfs::{FileData, Layout, Result};

use crate::{
    page::{CHUNK_PAGES, Chunk, PAGE_BYTES, Page},
    space::Space,
};

const CHUNK_BYTES: u64 = (PAGE_BYTES * CHUNK_PAGES) as u64;

/// The contents of one regular file in memory. As the slots of a chunk, they share no cache line
/// with other memory of the program.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct MemData {
    space: Arc<Space>,
    /// Pages 0 to 63.
    head: Chunk,
    /// Later chunks by their number (page / 64), from 1 on.
    rest: BTreeMap<u64, Chunk>,
    pages: u64,
    /// The data ranges: pages that exist and were written to.
    layout: Layout,
}

/// The place of a page: the number of its chunk, and its slot in the chunk.
#[derive(Clone, Copy)]
struct Place {
    chunk: u64,
    slot: usize,
}

impl Place {
    /// The place of the page that contains `offset`.
    fn of(offset: u64) -> Self {
        Self::of_page(offset / PAGE_BYTES as u64)
    }

    fn of_page(page: u64) -> Self {
        Self { chunk: page / CHUNK_PAGES as u64, slot: (page % CHUNK_PAGES as u64) as usize }
    }
}

/// The slots of `chunk` whose pages are in `first..end`.
fn slots_within(chunk: u64, first: u64, end: u64) -> (usize, usize) {
    let base = chunk * CHUNK_PAGES as u64;
    let clip = |page: u64| page.saturating_sub(base).min(CHUNK_PAGES as u64) as usize;
    (clip(first), clip(end))
}

impl MemData {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self { space, head: Chunk::default(), rest: BTreeMap::new(), pages: 0, layout: Layout::default() }
    }

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        if number == 0 { Some(&self.head) } else { self.rest.get(&number) }
    }

    fn chunk_mut(&mut self, number: u64) -> Option<&mut Chunk> {
        if number == 0 { Some(&mut self.head) } else { self.rest.get_mut(&number) }
    }

    /// Runs `work` on a chunk. A missing chunk is made for it, and kept only if it has a page
    /// afterwards.
    fn with_chunk<T>(&mut self, number: u64, work: impl FnOnce(&mut Chunk, &Space, &mut u64) -> T) -> T {
        let Self { space, head, rest, pages, .. } = self;
        if number == 0 {
            let done = work(head, space, pages);
            head.trim();
            return done;
        }
        let chunk = rest.entry(number).or_default();
        let done = work(chunk, space, pages);
        chunk.trim();
        if chunk.is_empty() {
            rest.remove(&number);
        }
        done
    }

    /// Frees the pages `first..end`. The memory is freed before the space is released, so that no
    /// thread fills the space while the memory is still in use. But other threads do not have to
    /// wait for the last of many pages: the space of each chunk is released when the chunk is
    /// freed.
    fn free_pages(&mut self, first: u64, end: u64) {
        if first >= end || self.pages == 0 {
            return;
        }
        let (from, to) = slots_within(0, first, end);
        let freed = self.head.free(from, to);
        self.release_pages(freed);
        let chunk_pages = CHUNK_PAGES as u64;
        let mut next = (first / chunk_pages).max(1);
        while let Some((&number, _)) = self.rest.range(next..end.div_ceil(chunk_pages).max(next)).next() {
            let (from, to) = slots_within(number, first, end);
            let chunk = self.rest.get_mut(&number).expect("the chunk was just found");
            let freed = chunk.free(from, to);
            if chunk.is_empty() {
                self.rest.remove(&number);
            }
            self.release_pages(freed);
            next = number + 1;
        }
    }

    /// Releases the space of freed pages.
    fn release_pages(&mut self, pages: u64) {
        self.pages -= pages;
        self.space.release_pages(pages);
    }

    /// Zeros `from..to` within the page that contains `page_start`, if that page exists.
    fn zero_within(&mut self, page_start: u64, from: usize, to: usize) {
        let place = Place::of(page_start);
        if let Some(page) = self.chunk_mut(place.chunk).and_then(|chunk| chunk.page_mut(place.slot)) {
            page.zero(from, to);
        }
    }

    /// The number of existing pages in `first..end`.
    fn count_pages(&self, first: u64, end: u64) -> u64 {
        let count = |(number, chunk): (u64, &Chunk)| {
            let (from, to) = slots_within(number, first, end);
            chunk.slots().take(to).skip(from).flatten().count() as u64
        };
        let chunk_pages = CHUNK_PAGES as u64;
        let from = (first / chunk_pages).max(1);
        let later = self.rest.range(from..end.div_ceil(chunk_pages).max(from));
        count((0, &self.head)) + later.map(|(&number, chunk)| count((number, chunk))).sum::<u64>()
    }
}

/// Writes into one chunk. Returns the number of bytes written, and the error that stopped the
/// write.
fn write_chunk(
    chunk: &mut Chunk,
    space: &Space,
    pages: &mut u64,
    mut data: &[u8],
    mut within: usize,
) -> (usize, Result<()>) {
    let all = data.len();
    while !data.is_empty() {
        let (here, rest) = data.split_at(data.len().min(PAGE_BYTES - within % PAGE_BYTES));
        if let Err(error) = write_page(chunk, space, pages, within / PAGE_BYTES, within % PAGE_BYTES, here) {
            return (all - data.len(), Err(error));
        }
        data = rest;
        within += here.len();
    }
    (all, Ok(()))
}

fn write_page(
    chunk: &mut Chunk,
    space: &Space,
    pages: &mut u64,
    slot: usize,
    within: usize,
    data: &[u8],
) -> Result<()> {
    let slot = chunk.slot(slot)?;
    if let Some(page) = slot {
        return page.write(within, data);
    }
    space.charge_pages(1)?;
    *slot = Some(Page::new(within, data).inspect_err(|_| space.release_pages(1))?);
    *pages += 1;
    Ok(())
}

impl FileData for MemData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut buf = &mut buf[..len];
        let mut at = offset;
        while !buf.is_empty() {
            let within = at % CHUNK_BYTES;
            let n = buf.len().min((CHUNK_BYTES - within) as usize);
            let (here, later) = buf.split_at_mut(n);
            match self.chunk(at / CHUNK_BYTES) {
                Some(chunk) => read_chunk(chunk, here, within as usize),
                None => here.fill(0),
            }
            buf = later;
            at += n as u64;
        }
        Ok(len)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = at % CHUNK_BYTES;
            let n = (data.len() - done).min((CHUNK_BYTES - within) as usize);
            let here = &data[done..done + n];
            let (written, result) = self.with_chunk(at / CHUNK_BYTES, |chunk, space, pages| {
                write_chunk(chunk, space, pages, here, within as usize)
            });
            done += written;
            self.layout.set_data(at, written as u64);
            match result {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(done)
    }

    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()> {
        // Growth keeps pages that were allocated beyond the old end, as tmpfs does.
        if new_size > old_size {
            return Ok(());
        }
        let tail = (new_size % PAGE_BYTES as u64) as usize;
        if tail > 0 {
            self.zero_within(new_size, tail, PAGE_BYTES);
        }
        self.free_pages(new_size.div_ceil(PAGE_BYTES as u64), u64::MAX);
        self.layout.cut(new_size);
        Ok(())
    }

    /// The limit applies to the whole range: it is charged first, all or nothing.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (first, end) = (offset / PAGE_BYTES as u64, (offset + len).div_ceil(PAGE_BYTES as u64));
        let mut missing = (end - first) - self.count_pages(first, end);
        if !self.space.is_conceivable(missing) {
            return Err(pando_vfs::Error::NoSpace);
        }
        self.space.charge_pages(missing)?;
        for number in Place::of_page(first).chunk..=Place::of_page(end - 1).chunk {
            let (from, to) = slots_within(number, first, end);
            let filled = self.with_chunk(number, |chunk, _, pages| {
                for index in from..to {
                    let slot = chunk.slot(index)?;
                    if slot.is_none() {
                        *slot = Some(Page::default());
                        *pages += 1;
                        missing -= 1;
                    }
                }
                Ok(())
            });
            if let Err(error) = filled {
                self.space.release_pages(missing);
                return Err(error);
            }
        }
        debug_assert_eq!(missing, 0);
        Ok(())
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let page_bytes = PAGE_BYTES as u64;
        let (end, first) = (offset + len, offset.div_ceil(page_bytes));
        let head = (offset % page_bytes) as usize;
        let tail = (end % page_bytes) as usize;
        if head > 0 {
            let same_page = offset / page_bytes == end / page_bytes;
            self.zero_within(offset, head, if same_page { tail } else { PAGE_BYTES });
        }
        if tail > 0 && first * page_bytes <= end {
            self.zero_within(end, 0, tail);
        }
        self.free_pages(first, end / page_bytes);
        self.layout.set_hole(offset, len);
        Ok(())
    }

    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        Ok(self.layout.data_after(offset, size))
    }

    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64> {
        Ok(self.layout.hole_after(offset, size))
    }

    fn layout(&self) -> Option<Layout> {
        Some(self.layout.clone())
    }

    fn blocks(&self) -> Option<u64> {
        Some(self.pages * (PAGE_BYTES as u64 / 512))
    }

    /// Contents in memory are not durable.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

fn read_chunk(chunk: &Chunk, mut buf: &mut [u8], mut within: usize) {
    while !buf.is_empty() {
        let n = buf.len().min(PAGE_BYTES - within % PAGE_BYTES);
        let (here, later) = buf.split_at_mut(n);
        match chunk.page(within / PAGE_BYTES) {
            Some(page) => page.read(within % PAGE_BYTES, here),
            None => here.fill(0),
        }
        buf = later;
        within += n;
    }
}

impl Drop for MemData {
    fn drop(&mut self) {
        self.free_pages(0, u64::MAX);
    }
}
