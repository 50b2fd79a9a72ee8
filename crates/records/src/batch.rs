//! Names and answers together, and the view of one entry.

use std::{ffi::CStr, sync::Arc};

use crate::{Attr, FileKind, Filled, Names, PART_ENTRIES, Part, Xattrs, names::Entry};

/// The place of an entry's answers, from the first entry that is shown: the part in the upper bits,
/// the index in it in the lower bits.
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
    /// Shows names, if nothing else was asked for.
    pub fn show_names(&mut self, names: Arc<Names>) {
        self.assemble(names, &mut Vec::new(), 0);
        self.to = self.names.len();
    }

    /// Combines names and answers. The batch shows the entries from `from` up to the first one
    /// without answers. `parts` is emptied.
    pub fn assemble(&mut self, names: Arc<Names>, parts: &mut Vec<Part>, from: usize) {
        self.names = names;
        std::mem::swap(&mut self.parts, parts);
        parts.clear();
        self.from = from;
        self.places.clear();
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

    /// Takes the names and parts out again. The batch is then empty.
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

    /// Whether it shows no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// A record by its index, in directory order; none beyond the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        (index < self.len()).then(|| self.record(self.from + index))
    }

    /// The records, in directory order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Record<'_>> + ExactSizeIterator {
        (self.from..self.to).map(|index| self.record(index))
    }

    #[inline]
    fn record(&self, index: usize) -> Record<'_> {
        let (part, filled) = match self.places.get(index - self.from) {
            None => (&UNASKED_PART, &UNASKED),
            Some(&place) => {
                let part = &self.parts[(place >> PLACE_BITS) as usize];
                (part, &part.attrs[(place & ((1 << PLACE_BITS) - 1)) as usize])
            }
        };
        Record { names: &self.names, entry: &self.names.entries[index], part, filled }
    }
}

/// The answers if only names were asked for.
static UNASKED_PART: Part = Part::EMPTY;
static UNASKED: Filled = Filled::NOTHING;

const _: () = assert!(PART_ENTRIES < 1 << PLACE_BITS);

/// One entry, with the answers.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    names: &'a Names,
    entry: &'a Entry,
    part: &'a Part,
    filled: &'a Filled,
}

impl<'a> Record<'a> {
    /// The name: any bytes but `/` and zero. Empty if the directory is damaged.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.names.name_of(self.entry)
    }

    /// The name, for a system call.
    #[must_use]
    #[inline]
    pub fn name_c(&self) -> &'a CStr {
        self.names.name_c_of(self.entry)
    }

    /// The `d_type` of the directory entry; 0 if the file system does not know it.
    #[must_use]
    #[inline]
    pub fn dtype(&self) -> u8 {
        self.entry.dtype
    }

    /// The kind of the file, from its attributes or from its directory entry; none if neither has
    /// it.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> Option<FileKind> {
        self.attr().and_then(Attr::kind).or_else(|| self.entry.kind())
    }

    /// The inode number in the directory. At a mount point, [`Attr::ino`] differs.
    #[must_use]
    #[inline]
    pub fn ino(&self) -> u64 {
        self.entry.ino
    }

    /// The cookie to continue a scan after this entry.
    #[must_use]
    #[inline]
    pub fn cookie(&self) -> u64 {
        self.entry.cookie
    }

    /// The attributes; none if they were not asked for, or could not be read ([`Record::errno`]).
    #[must_use]
    #[inline]
    pub fn attr(&self) -> Option<&'a Attr> {
        self.filled.attr.as_ref()
    }

    /// The errno if the attributes could not be read: ENOENT if the entry vanished, or another one
    /// of statx.
    #[must_use]
    #[inline]
    pub fn errno(&self) -> Option<i32> {
        Some(self.filled.errno).filter(|&errno| errno != 0)
    }

    /// The errno if there are no extended attributes, or not all of them. E2BIG: they do not fit
    /// into the scan's budget. ENOSYS: no system call reaches them here (before Linux 6.13, without
    /// /proc).
    ///
    /// A file system without extended attributes is no error: the entry has none.
    #[must_use]
    #[inline]
    pub fn xattr_errno(&self) -> Option<i32> {
        Some(self.filled.xattr_errno).filter(|&errno| errno != 0)
    }

    /// The target of a symbolic link, or the errno of reading it. E2BIG: it does not fit into the
    /// scan's budget. None for other entries, and if it was not asked for.
    #[must_use]
    #[inline]
    pub fn link_target(&self) -> Option<Result<&'a [u8], i32>> {
        Some(self.filled.link.target?.map(|target| self.part.target(target)))
    }

    /// The mode of the file at the end of a symbolic link, or an errno: ENOENT for a dangling link.
    /// None for other entries, and if it was not asked for.
    #[must_use]
    #[inline]
    pub fn link_end(&self) -> Option<Result<u32, i32>> {
        self.filled.link.end
    }

    /// Whether it is an executable file with capabilities; false if that was not asked for.
    #[must_use]
    #[inline]
    pub fn has_capabilities(&self) -> bool {
        self.filled.has_capabilities
    }

    /// Whether it changed while it was read, at each try. Attributes, extended attributes and the
    /// target may then be of different moments.
    #[must_use]
    #[inline]
    pub fn changed(&self) -> bool {
        self.filled.changed
    }

    /// The extended attributes; none if they were not asked for.
    #[must_use]
    #[inline]
    pub fn xattrs(&self) -> Xattrs<'a> {
        self.part.xattrs_of(self.filled)
    }
}
