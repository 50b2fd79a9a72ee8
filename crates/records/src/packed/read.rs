//! Reading records.

use super::{ALIGN, ATTR_BYTES, HAS_ATTR, HAS_TARGET, HAS_VALUE, HEAD_BYTES, xattr_bytes};
use crate::{Attr, Fields, FileKind, Time, XattrValue};

/// Bytes that are read from the front.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

fn attr_of(bytes: &[u8]) -> Option<Attr> {
    let mut from = Numbers(bytes);
    let mut attr = Attr {
        have: Fields::from_bits_retain(from.u32()?),
        mode: from.u32()?,
        nlink: from.u32()?,
        uid: from.u32()?,
        gid: from.u32()?,
        blksize: from.u32()?,
        rdev_major: from.u32()?,
        rdev_minor: from.u32()?,
        dev_major: from.u32()?,
        dev_minor: from.u32()?,
        ino: from.u64()?,
        size: from.u64()?,
        blocks: from.u64()?,
        attributes: from.u64()?,
        attributes_mask: from.u64()?,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        btime: Time::default(),
    };
    let mut times = [&mut attr.atime, &mut attr.mtime, &mut attr.ctime, &mut attr.btime];
    for time in &mut times {
        time.secs = from.take().map(i64::from_ne_bytes)?;
    }
    for time in &mut times {
        time.nanos = from.u32()?;
    }
    Some(attr)
}

/// Reads records from a buffer. It ends after the last one, or at bytes that are no record.
#[derive(Debug, Clone)]
pub struct Unpacked<'a>(&'a [u8]);

impl<'a> Unpacked<'a> {
    /// The records in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that were not read yet. If any are left at the end, they are no record.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Unpacked<'a> {
    type Item = PackedRecord<'a>;

    fn next(&mut self) -> Option<PackedRecord<'a>> {
        let record = PackedRecord::parse(self.0)?;
        self.0 = &self.0[record.length..];
        Some(record)
    }
}

impl std::iter::FusedIterator for Unpacked<'_> {}

/// A record in a buffer.
#[derive(Debug, Clone, Copy)]
pub struct PackedRecord<'a> {
    pub(super) length: usize,
    kind: u8,
    pub(super) ino: u64,
    pub(super) cookie: u64,
    errno: i32,
    xattr_errno: i32,
    xattr_count: u32,
    attr: Option<&'a [u8]>,
    name: &'a [u8],
    target: Option<&'a [u8]>,
    xattrs: &'a [u8],
}

impl<'a> PackedRecord<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Numbers(bytes);
        let length = from.u32()? as usize;
        let name_len: usize = from.take().map(u16::from_ne_bytes)?.into();
        let [kind, flags] = from.take()?;
        let (ino, cookie) = (from.u64()?, from.u64()?);
        let (errno, xattr_errno) = (from.u32()? as i32, from.u32()? as i32);
        let (xattr_count, target_len) = (from.u32()?, from.u32()? as usize);
        let mut left = Some(length)
            .filter(|length| length.is_multiple_of(ALIGN))
            .and_then(|length| bytes.get(HEAD_BYTES..length))?;
        let mut take = |len: usize| {
            let (taken, rest) = left.split_at_checked(len)?;
            left = rest;
            Some(taken)
        };
        let attr = if flags & HAS_ATTR != 0 { Some(take(ATTR_BYTES)?) } else { None };
        let name = take(name_len)?;
        take(1)?;
        let target = if flags & HAS_TARGET != 0 { Some(take(target_len)?) } else { None };
        if target.is_some() {
            take(1)?;
        }
        let padding = left.len() % ALIGN;
        let xattrs = left.get(padding..)?;
        Some(Self { length, kind, ino, cookie, errno, xattr_errno, xattr_count, attr, name, target, xattrs })
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The kind of file. None if it is not known.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        if self.kind == 0 { None } else { FileKind::from_mode(u32::from(self.kind) << 12) }
    }

    /// The inode number.
    #[must_use]
    pub const fn ino(&self) -> u64 {
        self.ino
    }

    /// The position after this entry, where the next call continues.
    #[must_use]
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The attributes. None if they were not asked for, or could not be read.
    #[must_use]
    pub fn attr(&self) -> Option<Attr> {
        self.attr.and_then(attr_of)
    }

    /// Why there are no attributes. None if they could be read.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        Some(self.errno).filter(|&errno| errno != 0)
    }

    /// The target of a symbolic link. None if it is no link, or was not asked for. Of a file that
    /// is to be made, its contents.
    #[must_use]
    pub const fn target(&self) -> Option<&'a [u8]> {
        self.target
    }

    /// Why there are no extended attributes. None if they could be read.
    #[must_use]
    pub fn xattr_errno(&self) -> Option<i32> {
        Some(self.xattr_errno).filter(|&errno| errno != 0)
    }

    /// How many extended attributes there are. [`PackedRecord::xattrs`] has fewer if the bytes of
    /// the record are malformed.
    #[must_use]
    pub const fn xattr_count(&self) -> u32 {
        self.xattr_count
    }

    /// The extended attributes.
    #[must_use]
    pub const fn xattrs(&self) -> PackedXattrs<'a> {
        PackedXattrs { bytes: self.xattrs, left: self.xattr_count }
    }
}

/// An extended attribute in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedXattr<'a> {
    /// Its name, with the namespace it is in (`user.`, `security.` and others).
    pub name: &'a [u8],
    /// Its value. ERANGE says that it did not fit into the buffer.
    pub value: XattrValue<'a>,
    /// The size of the value in bytes, also if it did not fit.
    pub size: usize,
}

/// Iterates over the extended attributes of a record. It ends early at bytes that are none.
#[derive(Debug, Clone)]
pub struct PackedXattrs<'a> {
    bytes: &'a [u8],
    left: u32,
}

impl<'a> PackedXattrs<'a> {
    pub(crate) const fn new(bytes: &'a [u8], count: u32) -> Self {
        Self { bytes, left: count }
    }
}

impl<'a> Iterator for PackedXattrs<'a> {
    type Item = PackedXattr<'a>;

    fn next(&mut self) -> Option<PackedXattr<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut from = Numbers(self.bytes);
        let size = from.u32()? as usize;
        let errno = from.take().map(u16::from_ne_bytes)?;
        let [name_len, flags] = from.take()?;
        let (name, rest) = from.0.split_at_checked(name_len.into())?;
        let value = if flags & HAS_VALUE != 0 {
            XattrValue::Bytes(rest.get(1..)?.get(..size)?)
        } else if errno != 0 {
            XattrValue::Errno(errno.into())
        } else {
            XattrValue::NotRead
        };
        let value_len = if let XattrValue::Bytes(value) = value { value.len() } else { 0 };
        self.bytes = self.bytes.get(xattr_bytes(name.len(), value_len)..)?;
        Some(PackedXattr { name, value, size })
    }
}
