//! Bulk metadata: names, attributes and extended attributes of many entries, in an arena of fixed pages.
//!
//! A [`Batch`] is what a scan hands out: some entries of one directory, in directory order. It has two halves.
//!
//! ```text
//!  Names                                      Parts, each filled by one thread
//!  +-----------------------------+            +-------------------------------------+
//!  | entries: place of the name, |  entry no. | attrs:  Filled, Filled, ...         |
//!  |          ino, cookie, type  |<-----------+   errno, Attr, where its xattrs are |
//!  | pages:   bytes of names     |            | pages:  name value name value ...   |
//!  +-----------------------------+            +-------------------------------------+
//! ```
//!
//! The names come first and never change while the parts are filled, in any order and by any number of threads. A part
//! belongs to one thread while it grows, so nothing is locked for an entry, and nothing is allocated for one: pages have one
//! size ([`PAGE_BYTES`], room for the largest attribute value that Linux has) and are used again.
//!
//! The idea of one call for names, attributes and extended attributes into a vector of pages is that of xgetdents
//! (Abhijith Das, "readdirplus-type system call", linux-fsdevel, 2012 to 2014).

use std::{ffi::CStr, sync::Arc};

use bitflags::bitflags;

use crate::{FileKind, XATTR_NAME_MAX, XATTR_SIZE_MAX};

/// Bytes in a page of a batch: the largest attribute value with its name and head fits into one.
pub const PAGE_BYTES: usize = XATTR_SIZE_MAX + 512;
/// Entries in one [`Part`], so that its attributes take about a page as well.
pub const PART_ENTRIES: usize = PAGE_BYTES / size_of::<Filled>();

bitflags! {
    /// What a scan asks for besides the names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Mask: u32 {
        /// The attributes: all that statx says.
        const STAT = 1;
        /// The names of the extended attributes.
        const XATTR_NAMES = 2;
        /// The values of the extended attributes; implies their names.
        const XATTR_VALUES = 4;
    }
}

impl Mask {
    /// The levels of xgetdents: 0 names, 1 and attributes, 2 and names of extended attributes, 3 and their values. None
    /// for other numbers.
    #[must_use]
    pub const fn level(level: u32) -> Option<Self> {
        Some(match level {
            0 => Self::empty(),
            1 => Self::STAT,
            2 => Self::STAT.union(Self::XATTR_NAMES),
            3 => Self::all(),
            _ => return None,
        })
    }

    /// Whether extended attributes are asked for, by name or by value.
    #[must_use]
    pub const fn wants_xattrs(self) -> bool {
        self.intersects(Self::XATTR_NAMES.union(Self::XATTR_VALUES))
    }
}

bitflags! {
    /// Which attributes are asked for, and which were had: the `STATX_*` bits of Linux.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Fields: u32 {
        /// The kind in the mode.
        const TYPE = 0x1;
        /// The permission bits in the mode.
        const MODE = 0x2;
        /// Number of names.
        const NLINK = 0x4;
        /// Owner.
        const UID = 0x8;
        /// Group.
        const GID = 0x10;
        /// Last access.
        const ATIME = 0x20;
        /// Last change of contents.
        const MTIME = 0x40;
        /// Last change of contents or attributes.
        const CTIME = 0x80;
        /// Inode number.
        const INO = 0x100;
        /// Bytes.
        const SIZE = 0x200;
        /// Occupied blocks.
        const BLOCKS = 0x400;
        /// What stat has always said.
        const BASIC = 0x7ff;
        /// Birth.
        const BTIME = 0x800;
    }
}

impl Default for Fields {
    /// All of them.
    fn default() -> Self {
        Self::all()
    }
}

/// A time as the kernel gives it; it is never clamped. Ordered as time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since the epoch, rounded down.
    pub secs: i64,
    /// Nanoseconds after them, less than 10^9.
    pub nanos: u32,
}

/// The attributes of an entry: everything statx says. A field that [`Attr::have`] does not name means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Which of the fields the file system gave.
    pub have: Fields,
    /// Kind and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The unit in which reading and writing goes best.
    pub blksize: u32,
    /// The device that a device node stands for: its major number, otherwise 0.
    pub rdev_major: u32,
    /// The same: its minor number.
    pub rdev_minor: u32,
    /// The device that the file system is on: its major number.
    pub dev_major: u32,
    /// The same: its minor number.
    pub dev_minor: u32,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Occupied, in units of 512 bytes.
    pub blocks: u64,
    /// `STATX_ATTR_*` bits that are set (immutable, compressed, mount root and others).
    pub attributes: u64,
    /// The `STATX_ATTR_*` bits that the file system knows.
    pub attributes_mask: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

impl Attr {
    /// What it is; none for a kind that Linux does not know, or if [`Fields::TYPE`] was not had.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        // No kind at all means a regular file to mknod only.
        if self.have.contains(Fields::TYPE) && self.mode & crate::S_IFMT != 0 {
            FileKind::from_mode(self.mode)
        } else {
            None
        }
    }

    /// The device that the file system is on, as (major, minor).
    #[must_use]
    pub const fn dev(&self) -> (u32, u32) {
        (self.dev_major, self.dev_minor)
    }
}

/// A page: a fixed number of bytes, of which the first `used` count.
#[derive(Debug)]
pub struct Page {
    bytes: Box<[u8]>,
    used: usize,
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
struct Entry {
    ino: u64,
    cookie: u64,
    at: u32,
    page: u16,
    len: u16,
    dtype: u8,
}

/// The names half of a batch.
#[derive(Debug, Default)]
pub struct Names {
    pages: Vec<Page>,
    entries: Vec<Entry>,
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

    /// Takes an empty page. Names are written into it, each with a zero byte behind it, as getdents leaves them; entries pushed from now on
    /// are of this page.
    pub fn push_page(&mut self, mut page: Page) {
        page.clear();
        self.pages.push(page);
    }

    /// An entry of the last page: its name begins at `at` and has `len` bytes; a zero byte follows.
    ///
    /// # Panics
    /// If there is no page, or the name does not lie in it: the caller's mistake.
    pub fn push_entry(&mut self, at: usize, len: usize, ino: u64, cookie: u64, dtype: u8) {
        let page = self.pages.len().checked_sub(1).expect("a page comes before its entries");
        assert_eq!(self.pages[page].bytes[at + len], 0, "a zero byte ends the name");
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

/// What was had of one entry.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
    /// Which entry of the [`Names`].
    pub entry: u32,
    /// Why there are no attributes: an errno, or 0.
    pub errno: i32,
    /// Why there are no extended attributes, or not all: an errno, or 0.
    pub xattr_errno: i32,
    /// It changed while it was read, each time it was tried.
    pub changed: bool,
    /// The attributes; none if they were not asked for, or not to be had.
    pub attr: Option<Attr>,
    xattr_page: u16,
    xattr_at: u32,
    xattrs: u32,
}

/// A place in a part's pages, to go back to ([`Part::rewind`]).
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    page: u16,
    at: u32,
    count: u32,
}

/// Bytes of an attribute's head in a page: length of the name, what follows, length of the value or errno.
const HEAD_BYTES: usize = 8;
const TAG_NOT_READ: u16 = 0;
const TAG_BYTES: u16 = 1;
const TAG_ERRNO: u16 = 2;

/// The answers of one thread: at most [`PART_ENTRIES`] entries, and the pages with their extended attributes.
#[derive(Debug)]
pub struct Part {
    attrs: Vec<Filled>,
    pages: Vec<Page>,
    xattrs: u32,
}

impl Default for Part {
    fn default() -> Self {
        Self { attrs: Vec::with_capacity(PART_ENTRIES), pages: Vec::new(), xattrs: 0 }
    }
}

impl Part {
    /// Whether another entry fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.attrs.len() < PART_ENTRIES
    }

    /// Takes a page for extended attributes; the ones before are full.
    pub fn push_page(&mut self, mut page: Page) {
        page.clear();
        self.pages.push(page);
    }

    /// Whether the last page is there and empty: what does not fit into it fits nowhere.
    #[must_use]
    pub fn page_is_fresh(&self) -> bool {
        self.pages.last().is_some_and(|page| page.used == 0)
    }

    /// Where the next extended attribute will lie.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let page = self.pages.len().saturating_sub(1);
        Mark {
            page: u16::try_from(page).expect("a part has few pages"),
            at: self.pages.last().map_or(0, |page| page.used as u32),
            count: self.xattrs,
        }
    }

    /// Forgets the extended attributes since `mark`; pages that came since then are given back.
    pub fn rewind(&mut self, mark: Mark, recycle: impl FnMut(Page)) {
        if !self.pages.is_empty() {
            let keep = usize::from(mark.page) + 1;
            self.pages.drain(keep..).for_each(recycle);
            self.pages[keep - 1].used = mark.at as usize;
        }
        self.xattrs = mark.count;
    }

    /// Room for the value of an attribute with this name, as much as the page has; none if not even the name fits, and a
    /// page must come first. [`Part::put_xattr`] ends what this began.
    pub fn value_room(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        let page = self.pages.last_mut()?;
        let begin = page.used + HEAD_BYTES;
        let room = page.bytes.get_mut(begin..)?;
        let (name_room, value_room) = room.split_at_mut_checked(name.len())?;
        name_room.copy_from_slice(name);
        Some(value_room)
    }

    /// Ends the attribute whose name was given to [`Part::value_room`] last: the value's bytes are in its room.
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

    /// An entry's answers; its extended attributes are those put since `mark`.
    pub fn push(&mut self, entry: usize, attr: Result<Option<Attr>, i32>, xattr_errno: i32, changed: bool, mark: Mark) {
        self.attrs.push(Filled {
            entry: entry as u32,
            errno: attr.err().unwrap_or(0),
            xattr_errno,
            changed,
            attr: attr.unwrap_or_default(),
            xattr_page: mark.page,
            xattr_at: mark.at,
            xattrs: self.xattrs - mark.count,
        });
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

/// What became of the value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrOutcome {
    /// It was not asked for.
    NotRead,
    /// It has this many bytes.
    Bytes(usize),
    /// It could not be read.
    Errno(i32),
}

/// Where an entry's answers are, from the first one that is shown: the part in the upper bits, the place in it in the lower.
const PLACE_BITS: u32 = 16;
const NO_PLACE: u32 = u32::MAX;

/// Some entries of a directory, in directory order.
#[derive(Debug, Default)]
pub struct Batch {
    names: Arc<Names>,
    parts: Vec<Part>,
    places: Vec<u32>,
    from: usize,
    to: usize,
}

impl Batch {
    /// Puts names and answers together. The batch shows the entries from `from` up to the first one without answers (all,
    /// if nothing but names was asked for and there are no parts). `parts` is emptied.
    pub fn assemble(&mut self, names: Arc<Names>, parts: &mut Vec<Part>, from: usize) {
        self.names = names;
        std::mem::swap(&mut self.parts, parts);
        parts.clear();
        self.from = from;
        self.to = self.names.len();
        self.places.clear();
        if self.parts.is_empty() {
            return;
        }
        let answered = self.parts.iter().flat_map(|part| &part.attrs);
        let end = answered.map(|filled| filled.entry as usize + 1).max().unwrap_or(from);
        self.places.resize(end - from, NO_PLACE);
        for (index, part) in self.parts.iter().enumerate() {
            for (at, filled) in part.attrs.iter().enumerate() {
                self.places[filled.entry as usize - from] = (index as u32) << PLACE_BITS | at as u32;
            }
        }
        let missing = self.places.iter().position(|&place| place == NO_PLACE);
        self.to = from + missing.unwrap_or(self.places.len());
    }

    /// Takes it apart again; the batch is then empty.
    pub fn dismantle(&mut self, mut recycle: impl FnMut(Part)) -> Arc<Names> {
        self.parts.drain(..).for_each(&mut recycle);
        self.places.clear();
        (self.from, self.to) = (0, 0);
        std::mem::take(&mut self.names)
    }

    /// The index of the entry after the last one that is shown.
    #[must_use]
    pub fn end(&self) -> usize {
        self.to
    }

    /// How many records it shows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether it shows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// A record by its number, in directory order; none beyond the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        (index < self.len()).then(|| self.record(self.from + index))
    }

    /// The records, in directory order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Record<'_>> + ExactSizeIterator {
        (self.from..self.to).map(|index| self.record(index))
    }

    fn record(&self, index: usize) -> Record<'_> {
        let filled = self.places.get(index - self.from).map(|&place| {
            let part = &self.parts[(place >> PLACE_BITS) as usize];
            (part, &part.attrs[(place & ((1 << PLACE_BITS) - 1)) as usize])
        });
        Record { names: &self.names, index, filled }
    }
}

const _: () = assert!(PART_ENTRIES < 1 << PLACE_BITS);

/// One entry, with what was asked for and could be had.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    names: &'a Names,
    index: usize,
    filled: Option<(&'a Part, &'a Filled)>,
}

impl<'a> Record<'a> {
    /// The name: any bytes but `/` and zero.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.names.name(self.index)
    }

    /// The name, for a system call.
    #[must_use]
    pub fn name_c(&self) -> &'a CStr {
        self.names.name_c(self.index)
    }

    /// The `d_type` of the directory entry; 0 if the file system does not say.
    #[must_use]
    pub fn dtype(&self) -> u8 {
        self.names.entries[self.index].dtype
    }

    /// What it is, from its attributes or from its directory entry; none if neither says.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        self.attr().and_then(Attr::kind).or_else(|| match self.dtype() {
            0 => None,
            dtype => FileKind::from_mode(u32::from(dtype) << 12),
        })
    }

    /// The inode number in the directory. Where something is mounted on the entry, [`Attr::ino`] differs.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.names.entries[self.index].ino
    }

    /// Where a scan goes on after this entry.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.names.entries[self.index].cookie
    }

    /// The attributes; none if they were not asked for, or not to be had ([`Record::errno`]).
    #[must_use]
    pub fn attr(&self) -> Option<&'a Attr> {
        self.filled.and_then(|(_, filled)| filled.attr.as_ref())
    }

    /// Why the attributes could not be had: ENOENT for an entry that vanished, and others as statx says.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.filled.map(|(_, filled)| filled.errno).filter(|&errno| errno != 0)
    }

    /// Why there are no extended attributes, or not all of them. E2BIG: they do not fit into the scan's budget.
    ///
    /// A file system without extended attributes is no error: there are none.
    #[must_use]
    pub fn xattr_errno(&self) -> Option<i32> {
        self.filled.map(|(_, filled)| filled.xattr_errno).filter(|&errno| errno != 0)
    }

    /// Whether it changed while it was read, each time it was tried: attributes and extended attributes may then be of
    /// different moments.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.filled.is_some_and(|(_, filled)| filled.changed)
    }

    /// The extended attributes; nothing if they were not asked for.
    #[must_use]
    pub fn xattrs(&self) -> Xattrs<'a> {
        match self.filled {
            None => Xattrs { pages: &[], at: 0, left: 0 },
            Some((part, filled)) => Xattrs {
                pages: part.pages.get(usize::from(filled.xattr_page)..).unwrap_or_default(),
                at: filled.xattr_at as usize,
                left: filled.xattrs,
            },
        }
    }
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
    /// Here it is.
    Bytes(&'a [u8]),
    /// It could not be read.
    Errno(i32),
}

/// Goes through the extended attributes of a record.
#[derive(Debug, Clone)]
pub struct Xattrs<'a> {
    pages: &'a [Page],
    at: usize,
    left: u32,
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = BulkXattr<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        while self.at >= self.pages.first()?.used {
            self.pages = &self.pages[1..];
            self.at = 0;
        }
        let bytes = &self.pages[0].bytes[self.at..];
        let name_len = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        let tag = u16::from_ne_bytes([bytes[2], bytes[3]]);
        let number = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let (name, rest) = bytes[HEAD_BYTES..].split_at(name_len);
        let (value, value_len) = match tag {
            TAG_BYTES => (XattrValue::Bytes(&rest[..number as usize]), number as usize),
            TAG_ERRNO => (XattrValue::Errno(number as i32), 0),
            _ => (XattrValue::NotRead, 0),
        };
        self.at += HEAD_BYTES + name_len + value_len;
        Some(BulkXattr { name, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Xattrs<'_> {}
