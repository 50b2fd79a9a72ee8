//! An entry of a listing: a view of a record, or of a copy that is kept until it is printed.

pub mod colours;
pub mod order;
pub mod sorter;
pub mod version;

use std::borrow::Cow;

use pando_records::{Attr, BulkXattr, Fields, FileKind, Time, XattrValue, Xattrs};

use crate::text::values::WhichTime;

/// The target of a symbolic link, as far as it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// No link, or a target that was not looked at.
    Unknown,
    /// The target does not exist.
    Nothing,
    /// The target has this mode.
    Mode(u32),
}

/// An entry, with the requested facts as far as they could be read.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// The name, or the path of an argument.
    pub name: &'a [u8],
    /// The kind, if it is known.
    pub kind: Option<FileKind>,
    /// The inode number in the directory.
    pub ino: u64,
    /// The position in its directory.
    pub position: u64,
    /// The attributes, borrowed from the record.
    pub attr: Option<Cow<'a, Attr>>,
    /// The error if they could not be read.
    pub errno: Option<i32>,
    /// The error if extended attributes could not be read.
    pub xattr_errno: Option<i32>,
    /// Whether it changed each time it was read.
    pub changed: bool,
    /// The target of a link.
    pub target: Option<&'a [u8]>,
    /// The error if the target could not be read.
    pub target_errno: Option<i32>,
    /// The kind of the target.
    pub link_end: LinkEnd,
    /// Whether it is an executable with capabilities, if only that was asked for.
    pub has_capabilities: bool,
    /// The extended attributes.
    pub xattrs: EntryXattrs<'a>,
}

/// The extended attributes of an entry.
#[derive(Debug, Clone)]
pub enum EntryXattrs<'a> {
    /// In a record of the stream.
    Live(Xattrs<'a>),
    /// Kept, encoded.
    Kept(&'a [u8]),
}

impl EntryXattrs<'_> {
    /// Whether there are no extended attributes.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Live(xattrs) => xattrs.len() == 0,
            Self::Kept(bytes) => bytes.is_empty(),
        }
    }
}

impl<'a> Iterator for EntryXattrs<'a> {
    type Item = BulkXattr<'a>;

    #[inline]
    fn next(&mut self) -> Option<BulkXattr<'a>> {
        let rest = match self {
            Self::Live(xattrs) => return xattrs.next(),
            Self::Kept(rest) => rest,
        };
        if rest.is_empty() {
            return None;
        }
        let mut reader = Reader { bytes: rest };
        let name = reader.bytes_with_len();
        let value = match reader.number() {
            0 => XattrValue::NotRead,
            1 => XattrValue::Bytes(reader.bytes_with_len()),
            _ => XattrValue::Errno(reader.number() as i32),
        };
        *rest = reader.bytes;
        Some(BulkXattr { name, value })
    }
}

impl Entry<'_> {
    /// The attributes.
    pub fn attr(&self) -> Option<&Attr> {
        self.attr.as_deref()
    }

    /// The inode number. None if its attributes could not be read.
    pub fn known_ino(&self) -> Option<u64> {
        match (self.attr(), self.errno) {
            (Some(attr), _) => Some(attr.ino),
            (None, Some(_)) => None,
            (None, None) => Some(self.ino),
        }
    }

    /// The error if not all requested names and values of extended attributes could be read.
    pub fn xattr_failure(&self) -> Option<i32> {
        self.xattr_errno.or_else(|| {
            self.xattrs.clone().find_map(|xattr| match xattr.value {
                XattrValue::Errno(errno) => Some(errno),
                XattrValue::NotRead | XattrValue::Bytes(_) => None,
            })
        })
    }

    /// One of its times. None if it is not known.
    pub fn time(&self, which: WhichTime) -> Option<Time> {
        let attr = self.attr()?;
        match which {
            WhichTime::Mtime => Some(attr.mtime),
            WhichTime::Atime => Some(attr.atime),
            WhichTime::Ctime => Some(attr.ctime),
            WhichTime::Btime => attr.have.contains(Fields::BTIME).then_some(attr.btime),
        }
    }

    /// Appends the encoded entry, which [`Entry::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer { out };
        writer.bytes_with_len(self.name);
        writer.number(u64::from(self.kind.map_or(0, FileKind::to_mode)));
        writer.number(self.ino);
        writer.number(self.position);
        writer.number(self.errno.unwrap_or(0) as u64);
        writer.number(self.xattr_errno.unwrap_or(0) as u64);
        writer.number(self.target_errno.unwrap_or(0) as u64);
        writer.number(u64::from(self.changed));
        writer.number(u64::from(self.has_capabilities));
        // Lengths are stored plus one: 0 stands for None.
        writer.number(self.target.map_or(0, |target| target.len() as u64 + 1));
        writer.out.extend_from_slice(self.target.unwrap_or_default());
        writer.number(match self.link_end {
            LinkEnd::Unknown => 0,
            LinkEnd::Nothing => 1,
            LinkEnd::Mode(mode) => u64::from(mode) + 2,
        });
        writer.number(u64::from(self.attr.is_some()));
        if let Some(attr) = self.attr() {
            writer.attr(attr);
        }
        for xattr in self.xattrs.clone() {
            encode_xattr(&xattr, writer.out);
        }
    }
}

/// Appends an extended attribute in the encoding of [`EntryXattrs::Kept`].
pub fn encode_xattr(xattr: &BulkXattr<'_>, out: &mut Vec<u8>) {
    let mut writer = Writer { out };
    writer.bytes_with_len(xattr.name);
    match xattr.value {
        XattrValue::NotRead => writer.number(0),
        XattrValue::Bytes(value) => {
            writer.number(1);
            writer.bytes_with_len(value);
        }
        XattrValue::Errno(errno) => {
            writer.number(2);
            writer.number(errno as u64);
        }
    }
}

impl<'a> Entry<'a> {
    /// Reads the encoding of [`Entry::encode`].
    pub fn decode(bytes: &'a [u8]) -> Self {
        let mut reader = Reader { bytes };
        let name = reader.bytes_with_len();
        let kind = match reader.number() as u32 {
            0 => None,
            mode => FileKind::from_mode(mode),
        };
        let (ino, position) = (reader.number(), reader.number());
        let mut errno = || Some(reader.number() as i32).filter(|&errno| errno != 0);
        let (errno, xattr_errno, target_errno) = (errno(), errno(), errno());
        let changed = reader.number() != 0;
        let has_capabilities = reader.number() != 0;
        let target = reader.number().checked_sub(1).map(|len| reader.take(len as usize));
        let link_end = match reader.number() {
            0 => LinkEnd::Unknown,
            1 => LinkEnd::Nothing,
            mode => LinkEnd::Mode((mode - 2) as u32),
        };
        let attr = (reader.number() != 0).then(|| Cow::Owned(reader.attr()));
        let xattrs = EntryXattrs::Kept(reader.bytes);
        Self {
            name,
            kind,
            ino,
            position,
            attr,
            errno,
            xattr_errno,
            changed,
            target,
            target_errno,
            link_end,
            has_capabilities,
            xattrs,
        }
    }

    /// The name of an encoded entry.
    pub fn decode_name(bytes: &'a [u8]) -> &'a [u8] {
        Reader { bytes }.bytes_with_len()
    }
}

/// Writes a number with seven bits per byte, the lowest first. The last byte has its high bit
/// clear.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    fn bytes_with_len(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// Times have a fixed length, because nanoseconds use most of the bits anyway.
    fn time(&mut self, time: Time) {
        self.out.extend_from_slice(&time.secs.to_ne_bytes());
        self.out.extend_from_slice(&time.nanos.to_ne_bytes());
    }

    fn attr(&mut self, attr: &Attr) {
        for number in [attr.have.bits(), attr.mode, attr.nlink, attr.uid, attr.gid, attr.blksize] {
            self.number(u64::from(number));
        }
        for number in [attr.rdev_major, attr.rdev_minor, attr.dev_major, attr.dev_minor] {
            self.number(u64::from(number));
        }
        for number in [attr.ino, attr.size, attr.blocks, attr.attributes, attr.attributes_mask] {
            self.number(number);
        }
        for time in [attr.atime, attr.mtime, attr.ctime, attr.btime] {
            self.time(time);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        taken
    }

    fn bytes_with_len(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        self.take(len)
    }

    fn time(&mut self) -> Time {
        let (secs, nanos) = self.take(12).split_at(8);
        Time {
            secs: i64::from_ne_bytes(secs.try_into().expect("eight bytes")),
            nanos: u32::from_ne_bytes(nanos.try_into().expect("four bytes")),
        }
    }

    fn attr(&mut self) -> Attr {
        let mut small = || self.number() as u32;
        let (have, mode, nlink, uid, gid, blksize) = (small(), small(), small(), small(), small(), small());
        let (rdev_major, rdev_minor, dev_major, dev_minor) = (small(), small(), small(), small());
        Attr {
            have: Fields::from_bits_retain(have),
            mode,
            nlink,
            uid,
            gid,
            blksize,
            rdev_major,
            rdev_minor,
            dev_major,
            dev_minor,
            ino: self.number(),
            size: self.number(),
            blocks: self.number(),
            attributes: self.number(),
            attributes_mask: self.number(),
            atime: self.time(),
            mtime: self.time(),
            ctime: self.time(),
            btime: self.time(),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An entry whose numbers all differ.
    pub fn example(name: &[u8]) -> Entry<'_> {
        let time = |secs, nanos| Time { secs, nanos };
        let attr = Attr {
            have: Fields::all(),
            mode: 0o120_777,
            nlink: 2,
            uid: 3,
            gid: u32::MAX,
            blksize: 4096,
            rdev_major: 5,
            rdev_minor: 6,
            dev_major: 7,
            dev_minor: 8,
            ino: u64::MAX,
            size: 1 << 63,
            blocks: 9,
            attributes: 1 << 40,
            attributes_mask: 127,
            atime: time(i64::MIN, 0),
            mtime: time(i64::MAX, 999_999_999),
            ctime: time(-1, 1),
            btime: time(128, 128),
        };
        Entry {
            name,
            kind: Some(FileKind::Symlink),
            ino: 11,
            position: 12,
            attr: Some(Cow::Owned(attr)),
            errno: None,
            xattr_errno: Some(7),
            changed: true,
            target: Some(b""),
            target_errno: Some(5),
            link_end: LinkEnd::Mode(0o100_644),
            has_capabilities: true,
            xattrs: EntryXattrs::Kept(b""),
        }
    }

    #[test]
    fn encoded_entries_are_decoded() {
        // Encoded xattrs: user.a = "1\0", user.b not read, user.c failed.
        let xattrs = b"\x06user.a\x01\x021\0\x06user.b\x00\x06user.c\x02\x0d";
        let entry = Entry { xattrs: EntryXattrs::Kept(xattrs), ..example(b"\xffname\n") };
        let mut kept = Vec::new();
        entry.encode(&mut kept);
        let back = Entry::decode(&kept);
        assert_eq!(format!("{entry:?}"), format!("{back:?}"));
        let values: Vec<_> = back.xattrs.map(|xattr| xattr.value).collect();
        assert_eq!(values, [XattrValue::Bytes(b"1\0"), XattrValue::NotRead, XattrValue::Errno(13)]);
        assert_eq!(Entry::decode_name(&kept), b"\xffname\n");
    }

    #[test]
    fn encoded_names_without_attributes_are_decoded() {
        let entry = Entry {
            attr: None,
            kind: None,
            errno: Some(13),
            target: None,
            link_end: LinkEnd::Unknown,
            has_capabilities: false,
            ..example(&[b'n'; 300])
        };
        let mut kept = Vec::new();
        entry.encode(&mut kept);
        assert_eq!(format!("{entry:?}"), format!("{:?}", Entry::decode(&kept)));
    }
}
