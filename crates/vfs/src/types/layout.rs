//! The layout of a file: which of its pages hold data, and which are holes.

use rpds::RedBlackTreeMapSync;

/// The size of a page, the unit in which holes are known.
const PAGE_BYTES: u64 = 4096;
/// The number of pages whose bits share a word.
const WORD_PAGES: u64 = 64;

/// The pages of a file that hold data. Cheap to clone: clones share the parts that neither has
/// changed since.
///
/// The part of a file before its first hole is one number, however long it is. After that, each 64
/// pages are a word in a persistent map (Driscoll, Sarnak, Sleator & Tarjan, *Making data
/// structures persistent*, 1989), so a change copies only the path to one word.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// All pages before this one hold data.
    full: u64,
    /// The pages from there on. The key is page / 64; the value has a bit for each page that holds
    /// data. No word is zero.
    rest: RedBlackTreeMapSync<u64, u64>,
    /// Incremented by each change.
    version: u64,
}

/// The bits of the pages `from..to` in this word.
fn bits(word: u64, from: u64, to: u64) -> u64 {
    let clip = |page: u64| page.saturating_sub(word * WORD_PAGES).min(WORD_PAGES);
    let below = |count: u64| if count == WORD_PAGES { u64::MAX } else { (1 << count) - 1 };
    below(clip(to)) & !below(clip(from))
}

impl Layout {
    /// Records that a range holds data. It covers each page that the range touches.
    pub fn set_data(&mut self, offset: u64, len: u64) {
        let (first, end) = (offset / PAGE_BYTES, (offset + len).div_ceil(PAGE_BYTES));
        if len == 0 || end <= self.full {
            return;
        }
        if first <= self.full {
            self.version += 1;
            self.full = end;
            self.absorb();
            return;
        }
        for word in first / WORD_PAGES..=(end - 1) / WORD_PAGES {
            let old = self.word(word);
            let new = old | bits(word, first, end);
            if new != old {
                self.version += 1;
                self.rest.insert_mut(word, new);
            }
        }
    }

    /// Records that a range is a hole. It covers only pages that lie in the range completely.
    pub fn set_hole(&mut self, offset: u64, len: u64) {
        let (first, end) = (offset.div_ceil(PAGE_BYTES), offset.saturating_add(len) / PAGE_BYTES);
        if first >= end {
            return;
        }
        if first < self.full {
            self.version += 1;
            let full = std::mem::replace(&mut self.full, first);
            // The full part ended behind the hole. Its rest is recorded in words now.
            for word in end / WORD_PAGES..full.div_ceil(WORD_PAGES) {
                let more = bits(word, end, full);
                if more != 0 {
                    self.rest.insert_mut(word, self.word(word) | more);
                }
            }
        }
        let mut next = first / WORD_PAGES;
        while let Some((&word, &old)) = self.rest.range(next..=(end - 1) / WORD_PAGES).next() {
            let new = old & !bits(word, first, end);
            if new != old {
                self.version += 1;
                if new == 0 {
                    self.rest.remove_mut(&word);
                } else {
                    self.rest.insert_mut(word, new);
                }
            }
            next = word + 1;
            if next > (end - 1) / WORD_PAGES {
                break;
            }
        }
    }

    /// Truncates the file to a size. Everything beyond is a hole, also space that was allocated
    /// there.
    pub fn cut(&mut self, size: u64) {
        self.set_hole(size, u64::MAX - size);
    }

    /// Extends the full part by the words that now adjoin it.
    fn absorb(&mut self) {
        while let Some((&word, &old)) = self.rest.iter().next() {
            let behind = old & !bits(word, 0, self.full);
            let start = self.full.max(word * WORD_PAGES);
            if start > self.full {
                return;
            }
            let run = u64::from((!(behind >> (start % WORD_PAGES))).trailing_zeros());
            let run = if self.full >= (word + 1) * WORD_PAGES { 0 } else { run.min(WORD_PAGES - start % WORD_PAGES) };
            self.full += run;
            let left = behind & !bits(word, 0, self.full);
            if left != 0 {
                self.rest.insert_mut(word, left);
                return;
            }
            self.rest.remove_mut(&word);
        }
    }

    fn word(&self, word: u64) -> u64 {
        self.rest.get(&word).copied().unwrap_or(0)
    }

    /// Whether a file of `size` bytes has no hole.
    #[must_use]
    pub fn is_full(&self, size: u64) -> bool {
        self.rest.is_empty() && self.full >= size.div_ceil(PAGE_BYTES)
    }

    /// Whether this layout equals `older`, from which it was made by changes.
    pub(crate) fn is_same_version(&self, older: &Self) -> bool {
        self.version == older.version
    }

    /// The first offset at or after `offset` with data, in a file of `size` bytes (SEEK_DATA). None
    /// if the rest is a hole.
    #[must_use]
    pub fn data_after(&self, offset: u64, size: u64) -> Option<u64> {
        let page = offset / PAGE_BYTES;
        if page < self.full {
            return Some(offset).filter(|found| *found < size);
        }
        let at_or_after = |(&word, &all): (&u64, &u64)| {
            let found = all & bits(word, page, u64::MAX);
            (found != 0).then(|| word * WORD_PAGES + u64::from(found.trailing_zeros()))
        };
        let found = self.rest.range(page / WORD_PAGES..).find_map(at_or_after)?;
        Some((found * PAGE_BYTES).max(offset)).filter(|found| *found < size)
    }

    /// The first offset at or after `offset` in a hole (SEEK_HOLE). The end of the file counts as a
    /// hole.
    #[must_use]
    pub fn hole_after(&self, offset: u64, size: u64) -> u64 {
        let mut page = (offset / PAGE_BYTES).max(self.full);
        loop {
            let data = self.word(page / WORD_PAGES) >> (page % WORD_PAGES);
            let run = u64::from((!data).trailing_zeros());
            if run < WORD_PAGES - page % WORD_PAGES {
                let hole = (page + run).saturating_mul(PAGE_BYTES);
                return hole.max(offset).min(size);
            }
            page = (page / WORD_PAGES + 1) * WORD_PAGES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a list of pages.
    #[test]
    fn agrees_with_a_list_of_pages() {
        const PAGES: u64 = 200;
        let mut random = 7_u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % n
        };
        for _ in 0..40 {
            let (mut layout, mut model) = (Layout::default(), [false; PAGES as usize]);
            for _ in 0..60 {
                let first = below(PAGES);
                let len = if below(3) == 0 { below(PAGES - first + 1) } else { below(5).min(PAGES - first) };
                let range = first as usize..(first + len) as usize;
                let before = layout.clone();
                match below(5) {
                    0 => {
                        layout.cut(first * PAGE_BYTES);
                        model[first as usize..].fill(false);
                    }
                    1 => {
                        layout.set_hole(first * PAGE_BYTES, len * PAGE_BYTES);
                        model[range].fill(false);
                    }
                    _ => {
                        layout.set_data(first * PAGE_BYTES, len * PAGE_BYTES);
                        model[range].fill(true);
                    }
                }
                let size = (below(PAGES) + 1) * PAGE_BYTES - below(2) * 9;
                let page_of = |layout: &Layout, page: u64| {
                    layout.data_after(page * PAGE_BYTES, u64::MAX) == Some(page * PAGE_BYTES)
                };
                let all: Vec<bool> = (0..PAGES).map(|page| page_of(&layout, page)).collect();
                assert_eq!(all, model);
                let old: Vec<bool> = (0..PAGES).map(|page| page_of(&before, page)).collect();
                assert!(old == all || !layout.is_same_version(&before));
                let within = size.div_ceil(PAGE_BYTES) as usize;
                if model[within..].iter().all(|data| !data) {
                    assert_eq!(layout.is_full(size), model[..within].iter().all(|data| *data));
                }
                let offset = below(size);
                let page = (offset / PAGE_BYTES) as usize;
                let place = |wanted: bool| (page..PAGES as usize).find(|page| model[*page] == wanted);
                let start = |page: usize| (page as u64 * PAGE_BYTES).max(offset);
                assert_eq!(layout.data_after(offset, size), place(true).map(start).filter(|at| *at < size));
                assert_eq!(layout.hole_after(offset, size), place(false).map_or(size, start).min(size));
            }
        }
    }
}
