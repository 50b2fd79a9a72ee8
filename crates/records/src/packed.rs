//! Records one after the other in a buffer of the caller, as xgetdents returns them.
//!
//! Numbers have the byte order of the machine. A record begins at a multiple of 8 bytes:
//!
//! ```text
//! from  bytes
//!    0   4   length of the record, a multiple of 8
//!    4   2   length of the name
//!    6   1   kind: DT_*
//!    7   1   flags: 1 attributes follow, 2 a link target follows
//!    8   8   inode number
//!   16   8   cookie: the position after this entry
//!   24   4   why there are no attributes: an errno, or 0
//!   28   4   why there are no extended attributes: an errno, or 0
//!   32   4   number of extended attributes
//!   36   4   length of the link target
//!   40 128   attributes, if they follow:
//!              4 each: which are valid (STATX_*), mode, links, owner, group, preferred size of
//!                      I/O, major and minor number of a device node, the same of the device below
//!              8 each: inode number, size, blocks, STATX_ATTR_* bits, which of them are known,
//!                      seconds of atime, mtime, ctime, btime
//!              4 each: nanoseconds of the four
//!            name, NUL
//!            link target, NUL, if it follows
//!            to a multiple of 8, then for each extended attribute:
//!    0   4     size of the value, whether or not it is here
//!    4   2     why the value is not here: an errno, or 0
//!    6   1     length of the name
//!    7   1     flags: 1 the value follows
//!    8         name, NUL, value, to a multiple of 8
//! ```
//!
//! A value that does not fit into the whole buffer is left out with its size and ERANGE, as
//! getxattr(2) answers.
//!
//! A record of an entry that is to be made ([`crate::XCREATE`]) has the contents of a file where
//! another record has the target of a link.

mod change;
mod read;

use crate::{Attr, BulkXattr, FileKind, XATTR_NAME_MAX, XattrList, XattrValue};

pub use self::{
    change::{refuse_xattrs, update_records},
    read::{PackedRecord, PackedXattr, PackedXattrs, Unpacked},
};

const HEAD_BYTES: usize = 40;
const ATTR_BYTES: usize = 128;
const XATTR_HEAD_BYTES: usize = 8;
const ALIGN: usize = 8;

const HAS_ATTR: u8 = 1;
const HAS_TARGET: u8 = 2;
const HAS_VALUE: u8 = 1;

/// The errno of a value or of names that do not fit, as of getxattr(2) and listxattr(2).
pub const ERANGE: u16 = 34;

/// The least bytes of a record, with or without attributes.
#[must_use]
pub const fn least_bytes(with_attributes: bool) -> usize {
    (HEAD_BYTES + if with_attributes { ATTR_BYTES } else { 0 } + 2).next_multiple_of(ALIGN)
}

/// A directory entry to be packed.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The kind of file. None if it is not known.
    pub kind: Option<FileKind>,
    /// The inode number.
    pub ino: u64,
    /// The position after this entry.
    pub cookie: u64,
    /// The attributes. None if they were not asked for, or could not be read.
    pub attr: Option<&'a Attr>,
    /// Why there are no attributes: an errno, or 0.
    pub errno: i32,
    /// The target of a symbolic link. None if it was not asked for. Of a file that is to be made,
    /// its contents.
    pub target: Option<&'a [u8]>,
    /// Why there are no extended attributes: an errno, or 0.
    pub xattr_errno: i32,
}

impl<'a> Entry<'a> {
    /// An entry without attributes.
    #[must_use]
    pub const fn new(name: &'a [u8], kind: Option<FileKind>, ino: u64, cookie: u64) -> Self {
        Self { name, kind, ino, cookie, attr: None, errno: 0, target: None, xattr_errno: 0 }
    }

    /// The bytes before the extended attributes.
    fn bytes(&self) -> usize {
        let attr = if self.attr.is_some() { ATTR_BYTES } else { 0 };
        (HEAD_BYTES + attr + self.name.len() + 1 + self.target.map_or(0, |target| target.len() + 1))
            .next_multiple_of(ALIGN)
    }
}

/// The result of [`Packer::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// The record is in the buffer.
    Packed,
    /// The record does not fit behind the others.
    Full,
    /// The record does not fit into the whole buffer, not even without values. It needs this many
    /// bytes, with them.
    Needs(usize),
}

/// Writes records into a buffer.
#[derive(Debug)]
pub struct Packer<'b> {
    bytes: &'b mut [u8],
    used: usize,
    entries: usize,
}

impl<'b> Packer<'b> {
    /// An empty sequence of records in this buffer.
    #[must_use]
    pub const fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, used: 0, entries: 0 }
    }

    /// Continues a sequence of this many bytes and records, which another packer has begun in this
    /// buffer.
    ///
    /// # Panics
    /// If the buffer has fewer bytes.
    #[must_use]
    pub const fn resume(bytes: &'b mut [u8], used: usize, entries: usize) -> Self {
        assert!(used <= bytes.len());
        Self { bytes, used, entries }
    }

    /// The number of bytes that the records take.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The number of records.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// The number of bytes that are free.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// As [`Packer::push`], with all extended attributes of a list, which are copied as they are.
    #[inline]
    pub fn push_list(&mut self, entry: &Entry<'_>, xattrs: &XattrList) -> Pushed {
        match write_list(&mut self.bytes[self.used..], entry, xattrs) {
            Some(length) => self.added(length),
            None => {
                self.push(entry, xattrs.iter().map(|(name, value)| BulkXattr { name, value: XattrValue::Bytes(value) }))
            }
        }
    }

    /// Adds a record. Values that do not fit are left out only of a record that is the first of its
    /// buffer.
    ///
    /// # Panics
    /// If a name has more than 65,535 bytes, or the name of an extended attribute more than 255.
    #[inline]
    pub fn push<'x>(&mut self, entry: &Entry<'_>, xattrs: impl Iterator<Item = BulkXattr<'x>> + Clone) -> Pushed {
        let room = &mut self.bytes[self.used..];
        let written = write(room, entry, xattrs.clone(), usize::MAX);
        let length = match written {
            Some(length) => length,
            None if self.used > 0 => return Pushed::Full,
            None => match write_smaller(room, entry, xattrs) {
                Ok(length) => length,
                Err(needed) => return Pushed::Needs(needed),
            },
        };
        self.added(length)
    }

    fn added(&mut self, length: usize) -> Pushed {
        self.used += length;
        self.entries += 1;
        Pushed::Packed
    }
}

/// The bytes of an extended attribute with a value of this length.
pub(crate) const fn xattr_bytes(name: usize, value: usize) -> usize {
    (XATTR_HEAD_BYTES + name + 1 + value).next_multiple_of(ALIGN)
}

/// The bytes that a value adds to its record.
fn value_bytes(xattr: &BulkXattr<'_>) -> usize {
    match xattr.value {
        XattrValue::Bytes(value) => xattr_bytes(xattr.name.len(), value.len()) - xattr_bytes(xattr.name.len(), 0),
        XattrValue::NotRead | XattrValue::Errno(_) => 0,
    }
}

/// Writes a record without the values that do not fit. The error is the number of bytes that the
/// whole record needs, if even then there is no room.
#[cold]
fn write_smaller<'x>(
    room: &mut [u8],
    entry: &Entry<'_>,
    xattrs: impl Iterator<Item = BulkXattr<'x>> + Clone,
) -> Result<usize, usize> {
    let without = entry.bytes() + xattrs.clone().map(|xattr| xattr_bytes(xattr.name.len(), 0)).sum::<usize>();
    let whole = without + xattrs.clone().map(|xattr| value_bytes(&xattr)).sum::<usize>();
    let spare = room.len().checked_sub(without).ok_or(whole)?;
    write(room, entry, xattrs, spare).ok_or(whole)
}

/// Bytes that are written from the front.
struct Cursor<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// A NUL, and more of them up to a multiple of [`ALIGN`].
    #[inline]
    fn align(&mut self) -> Option<()> {
        const NULS: [u8; ALIGN] = [0; ALIGN];
        self.put(&NULS[..self.at.next_multiple_of(ALIGN) - self.at])
    }

    /// An extended attribute. `size` is that of the value, also if the value is not here.
    #[inline]
    fn put_xattr(&mut self, name: &[u8], value: Option<&[u8]>, size: usize, errno: u16) -> Option<()> {
        let name_len = u8::try_from(name.len()).expect("at most XATTR_NAME_MAX");
        let mut head = Bytes([0; XATTR_HEAD_BYTES], 0);
        head.put((size as u32).to_ne_bytes());
        head.put(errno.to_ne_bytes());
        head.put([name_len, if value.is_some() { HAS_VALUE } else { 0 }]);
        self.put(&head.0)?;
        self.put(name)?;
        self.put(&[0])?;
        self.put(value.unwrap_or_default())?;
        self.align()
    }
}

/// Writes a record with values of at most `spare` bytes in all. Returns its length; none if it does
/// not fit.
#[inline]
fn write<'x>(
    room: &mut [u8],
    entry: &Entry<'_>,
    xattrs: impl Iterator<Item = BulkXattr<'x>>,
    mut spare: usize,
) -> Option<usize> {
    let mut to = Cursor { bytes: room, at: HEAD_BYTES };
    write_entry(&mut to, entry)?;
    let mut count = 0_u32;
    for xattr in xattrs {
        let needed = value_bytes(&xattr);
        match xattr.value {
            XattrValue::Bytes(value) if needed > spare => to.put_xattr(xattr.name, None, value.len(), ERANGE)?,
            XattrValue::Bytes(value) => {
                spare -= needed;
                to.put_xattr(xattr.name, Some(value), value.len(), 0)?;
            }
            XattrValue::NotRead => to.put_xattr(xattr.name, None, 0, 0)?,
            XattrValue::Errno(errno) => to.put_xattr(xattr.name, None, 0, errno as u16)?,
        }
        count += 1;
    }
    Some(write_head(&mut to, entry, count))
}

/// Writes a record with all attributes of a list.
#[inline]
fn write_list(room: &mut [u8], entry: &Entry<'_>, xattrs: &XattrList) -> Option<usize> {
    let mut to = Cursor { bytes: room, at: HEAD_BYTES };
    write_entry(&mut to, entry)?;
    to.put(xattrs.bytes())?;
    Some(write_head(&mut to, entry, xattrs.len() as u32))
}

/// Appends an extended attribute with its value.
pub(crate) fn put_xattr(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let begin = bytes.len();
    bytes.resize(begin + xattr_bytes(name.len(), value.len()), 0);
    let mut to = Cursor { bytes: &mut bytes[begin..], at: 0 };
    to.put_xattr(name, Some(value), value.len(), 0).expect("there is room for it");
}

/// Writes what lies between the head of a record and its extended attributes.
#[inline]
fn write_entry(to: &mut Cursor<'_>, entry: &Entry<'_>) -> Option<()> {
    if let Some(attr) = entry.attr {
        to.put(&attr_bytes(attr))?;
    }
    to.put(entry.name)?;
    to.put(&[0])?;
    if let Some(target) = entry.target {
        to.put(target)?;
        to.put(&[0])?;
    }
    to.align()
}

/// Writes the head of a record that ends at the cursor. Returns the length of the record.
#[inline]
fn write_head(to: &mut Cursor<'_>, entry: &Entry<'_>, count: u32) -> usize {
    let has = |part: bool, flag: u8| if part { flag } else { 0 };
    let flags = has(entry.attr.is_some(), HAS_ATTR) | has(entry.target.is_some(), HAS_TARGET);
    let kind = entry.kind.map_or(0, |kind| (kind.to_mode() >> 12) as u8);
    let mut head = Bytes([0; HEAD_BYTES], 0);
    head.put((to.at as u32).to_ne_bytes());
    head.put(u16::try_from(entry.name.len()).expect("at most 65,535").to_ne_bytes());
    head.put([kind, flags]);
    head.put(entry.ino.to_ne_bytes());
    head.put(entry.cookie.to_ne_bytes());
    head.put(entry.errno.to_ne_bytes());
    head.put(entry.xattr_errno.to_ne_bytes());
    head.put(count.to_ne_bytes());
    head.put((entry.target.map_or(0, <[u8]>::len) as u32).to_ne_bytes());
    to.bytes[..HEAD_BYTES].copy_from_slice(&head.0);
    to.at
}

/// A fixed number of bytes that are written from the front.
struct Bytes<const N: usize>([u8; N], usize);

impl<const N: usize> Bytes<N> {
    #[inline(always)]
    fn put<const M: usize>(&mut self, bytes: [u8; M]) {
        self.0[self.1..self.1 + M].copy_from_slice(&bytes);
        self.1 += M;
    }
}

#[inline]
fn attr_bytes(attr: &Attr) -> [u8; ATTR_BYTES] {
    let mut to = Bytes([0; ATTR_BYTES], 0);
    let numbers = [attr.have.bits(), attr.mode, attr.nlink, attr.uid, attr.gid, attr.blksize];
    numbers.into_iter().for_each(|number| to.put(number.to_ne_bytes()));
    let devices = [attr.rdev_major, attr.rdev_minor, attr.dev_major, attr.dev_minor];
    devices.into_iter().for_each(|number| to.put(number.to_ne_bytes()));
    let long = [attr.ino, attr.size, attr.blocks, attr.attributes, attr.attributes_mask];
    long.into_iter().for_each(|number| to.put(number.to_ne_bytes()));
    let times = [attr.atime, attr.mtime, attr.ctime, attr.btime];
    times.into_iter().for_each(|time| to.put(time.secs.to_ne_bytes()));
    times.into_iter().for_each(|time| to.put(time.nanos.to_ne_bytes()));
    to.0
}

const _: () = assert!(XATTR_NAME_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests;
