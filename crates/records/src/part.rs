//! The second half of a batch: the attributes that one thread has read, and pages with link targets
//! and extended attributes.

use crate::{Attr, PAGE_BYTES, Page, XATTR_NAME_MAX, XATTR_SIZE_MAX};

/// Entries in one [`Part`]. Their attributes take about as much memory as a page.
pub const PART_ENTRIES: usize = PAGE_BYTES / size_of::<Filled>();

/// The attributes of one entry, or why there are none.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
    /// Which entry of the [`Names`](super::Names).
    pub entry: u32,
    /// Why there are no attributes: an errno, or 0.
    pub errno: i32,
    /// Why there are no extended attributes, or not all: an errno, or 0.
    pub xattr_errno: i32,
    /// Whether it changed while it was read, at each try.
    pub changed: bool,
    /// Whether it is an executable file with capabilities.
    pub has_capabilities: bool,
    /// The attributes; none if they were not asked for, or could not be read.
    pub attr: Option<Attr>,
    /// The target and its mode, if it is a symbolic link and they were asked for.
    pub link: LinkAnswer,
    pub(crate) xattrs_at: Place,
    pub(crate) xattrs: u32,
}

/// The parts of a record that only a symbolic link has. None: not asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkAnswer {
    /// The target, or an errno.
    pub target: Option<Result<LinkTarget, i32>>,
    /// The mode of the file at its end, or an errno.
    pub end: Option<Result<u32, i32>>,
}

/// The target of a link in a part's pages ([`Part::put_target`]).
#[derive(Debug, Clone, Copy)]
pub struct LinkTarget(Place);

/// A place in a part's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub page: u16,
    pub at: u32,
}

/// A place in a part's pages, for [`Part::rewind`].
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    place: Place,
    count: u32,
}

/// Bytes of a target's head in a page: its length.
const TARGET_HEAD_BYTES: usize = 4;

/// Bytes of an attribute's head in a page: the length of the name, a tag, and the length of the
/// value or an errno.
const HEAD_BYTES: usize = 8;
const TAG_NOT_READ: u16 = 0;
const TAG_BYTES: u16 = 1;
const TAG_ERRNO: u16 = 2;

/// The attributes that one thread has read: of at most [`PART_ENTRIES`] entries, and the pages with
/// their link targets and extended attributes.
#[derive(Debug)]
pub struct Part {
    pub(crate) attrs: Vec<Filled>,
    pub(crate) pages: Vec<Page>,
    xattrs: u32,
}

impl Default for Part {
    fn default() -> Self {
        Self { attrs: Vec::with_capacity(PART_ENTRIES), ..Self::EMPTY }
    }
}

impl Filled {
    /// For an entry of which only the name was asked for.
    pub(crate) const NOTHING: Self = Self {
        entry: 0,
        errno: 0,
        xattr_errno: 0,
        changed: false,
        has_capabilities: false,
        attr: None,
        link: LinkAnswer { target: None, end: None },
        xattrs_at: Place { page: 0, at: 0 },
        xattrs: 0,
    };
}

impl Part {
    /// A part without capacity.
    pub(crate) const EMPTY: Self = Self { attrs: Vec::new(), pages: Vec::new(), xattrs: 0 };

    /// Whether another entry fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.attrs.len() < PART_ENTRIES
    }

    /// Adds a page for targets and extended attributes. The ones before are full.
    pub fn push_page(&mut self, mut page: Page) {
        page.clear();
        self.pages.push(page);
    }

    /// Whether the last page is empty. A value that does not fit into it fits into no page.
    #[must_use]
    pub fn page_is_fresh(&self) -> bool {
        self.pages.last().is_some_and(|page| page.used == 0)
    }

    /// Where the next target or extended attribute will lie.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let page = self.pages.len().saturating_sub(1);
        let page = u16::try_from(page).expect("a part has few pages");
        let at = self.pages.last().map_or(0, |page| page.used as u32);
        Mark { place: Place { page, at }, count: self.xattrs }
    }

    /// Drops the targets and extended attributes since `mark`. Pages that were added since then go
    /// to `recycle`.
    pub fn rewind(&mut self, mark: Mark, recycle: impl FnMut(Page)) {
        if !self.pages.is_empty() {
            let keep = usize::from(mark.place.page) + 1;
            self.pages.drain(keep..).for_each(recycle);
            self.pages[keep - 1].used = mark.place.at as usize;
        }
        self.xattrs = mark.count;
    }

    /// Space for the target of a link: the rest of the page. None if the caller must add a page
    /// first. [`Part::put_target`] completes the target.
    pub fn target_room(&mut self) -> Option<&mut [u8]> {
        let page = self.pages.last_mut()?;
        page.bytes.get_mut(page.used + TARGET_HEAD_BYTES..).filter(|room| !room.is_empty())
    }

    /// Completes a target. Its bytes are in the space that [`Part::target_room`] returned last.
    pub fn put_target(&mut self, len: usize) -> LinkTarget {
        let target = LinkTarget(self.mark().place);
        let page = self.pages.last_mut().expect("target_room was asked before");
        page.bytes[page.used..page.used + TARGET_HEAD_BYTES].copy_from_slice(&(len as u32).to_ne_bytes());
        page.used += TARGET_HEAD_BYTES + len;
        target
    }

    #[inline]
    pub(crate) fn target(&self, LinkTarget(place): LinkTarget) -> &[u8] {
        let bytes = &self.pages[usize::from(place.page)].bytes[place.at as usize..];
        let (head, bytes) = bytes.split_at(TARGET_HEAD_BYTES);
        &bytes[..head.try_into().map_or(0, u32::from_ne_bytes) as usize]
    }

    #[inline]
    pub(crate) fn xattrs_of(&self, filled: &Filled) -> Xattrs<'_> {
        if filled.xattrs == 0 {
            return Xattrs::default();
        }
        let Place { page, at } = filled.xattrs_at;
        let (first, pages) = self.pages[usize::from(page)..].split_first().expect("attributes lie in pages");
        Xattrs { bytes: &first.bytes[at as usize..first.used], pages, left: filled.xattrs }
    }

    /// Space for the value of an attribute with this name: the rest of the page. None if the caller
    /// must add a page first. The space is never empty: with an empty buffer getxattr returns the
    /// length instead of the value. [`Part::put_xattr`] completes the attribute.
    pub fn value_room(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        let page = self.pages.last_mut()?;
        let begin = page.used + HEAD_BYTES;
        let room = page.bytes.get_mut(begin..)?;
        let (name_room, value_room) = room.split_at_mut_checked(name.len()).filter(|(_, value)| !value.is_empty())?;
        name_room.copy_from_slice(name);
        Some(value_room)
    }

    /// Completes the attribute whose name was passed to [`Part::value_room`] last. The bytes of the
    /// value are in the space that it returned.
    pub fn put_xattr(&mut self, name_len: usize, value: XattrOutcome) {
        let (tag, number, value_len) = match value {
            XattrOutcome::NotRead => (TAG_NOT_READ, 0, 0),
            XattrOutcome::Bytes(len) => (TAG_BYTES, len as u32, len),
            XattrOutcome::Errno(errno) => (TAG_ERRNO, errno as u32, 0),
        };
        debug_assert!(name_len <= XATTR_NAME_MAX && value_len <= XATTR_SIZE_MAX);
        let page = self.pages.last_mut().expect("value_room was asked before");
        let head = &mut page.bytes[page.used..page.used + HEAD_BYTES];
        head[0..2].copy_from_slice(&(name_len as u16).to_ne_bytes());
        head[2..4].copy_from_slice(&tag.to_ne_bytes());
        head[4..8].copy_from_slice(&number.to_ne_bytes());
        page.used += HEAD_BYTES + name_len + value_len;
        self.xattrs += 1;
    }

    /// Adds an entry with nothing but the extended attributes that were put since `mark`. The
    /// caller writes the rest in place, since attributes are large.
    #[inline]
    pub fn push(&mut self, entry: usize, mark: Mark) -> &mut Filled {
        let filled =
            Filled { entry: entry as u32, xattrs_at: mark.place, xattrs: self.xattrs - mark.count, ..Filled::NOTHING };
        self.attrs.push(filled);
        let last = self.attrs.len() - 1;
        &mut self.attrs[last]
    }

    /// The entries answered so far.
    #[must_use]
    pub fn filled(&self) -> &[Filled] {
        &self.attrs
    }

    /// Empties it, and gives its pages to `recycle`.
    pub fn clear(&mut self, recycle: impl FnMut(Page)) {
        self.attrs.clear();
        self.xattrs = 0;
        self.pages.drain(..).for_each(recycle);
    }
}

/// The outcome of reading the value of an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrOutcome {
    /// It was not asked for.
    NotRead,
    /// It has this many bytes.
    Bytes(usize),
    /// It could not be read.
    Errno(i32),
}

/// An extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkXattr<'a> {
    /// Its name, with the namespace it is in (`user.`, `security.` and others).
    pub name: &'a [u8],
    /// Its value.
    pub value: XattrValue<'a>,
}

/// The value of an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// It was not asked for.
    NotRead,
    /// The value.
    Bytes(&'a [u8]),
    /// It could not be read.
    Errno(i32),
}

/// Iterates over the extended attributes of a record.
#[derive(Debug, Clone, Default)]
pub struct Xattrs<'a> {
    /// The rest of the current page, and the pages after it.
    bytes: &'a [u8],
    pages: &'a [Page],
    left: u32,
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = BulkXattr<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        while self.bytes.is_empty() {
            let (page, pages) = self.pages.split_first()?;
            (self.bytes, self.pages) = (&page.bytes[..page.used], pages);
        }
        let (&[len0, len1, tag0, tag1, number @ ..], rest) = self.bytes.split_first_chunk::<HEAD_BYTES>()?;
        let number = u32::from_ne_bytes(number);
        let (name, rest) = rest.split_at(u16::from_ne_bytes([len0, len1]).into());
        self.bytes = rest;
        let value = match u16::from_ne_bytes([tag0, tag1]) {
            TAG_BYTES => {
                let (value, rest) = rest.split_at(number as usize);
                self.bytes = rest;
                XattrValue::Bytes(value)
            }
            TAG_ERRNO => XattrValue::Errno(number as i32),
            _ => XattrValue::NotRead,
        };
        Some(BulkXattr { name, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Xattrs<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that ends with the page leaves no room for a value.
    #[test]
    fn room_for_a_value_is_never_empty() {
        let mut part = Part::default();
        part.push_page(Page::new());
        let whole = PAGE_BYTES - HEAD_BYTES;
        assert_eq!(part.value_room(&vec![b'x'; whole - 1]).map(|room| room.len()), Some(1));
        assert!(part.value_room(&vec![b'x'; whole]).is_none());
        assert!(part.value_room(&vec![b'x'; whole + 1]).is_none());
    }
}
