//! The values of records: inodes, names, extended attributes. Numbers are little-endian.

use std::sync::Arc;

use pando_vfs::{Acl, Acls, Error, FileKind, InodeFlags, NodeAttr, Result, Timestamp, Xattr};
use smallvec::{SmallVec, smallvec};

use crate::key::Key;

/// Where the contents of a regular file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// In a record of their own, or nowhere if the file is empty.
    Record,
    /// In a file of the host with this number.
    File(u64),
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Its number is not stored: it is in the key.
    pub attr: NodeAttr,
    pub contents: Contents,
    /// Whether it has a record of extended attributes.
    pub has_xattrs: bool,
    /// The records that have its names: one for each name.
    pub named_in: SmallVec<[Key; 1]>,
    /// Whether it has names in other records, too: it once had more names than can be noted.
    pub has_more_names: bool,
}

/// The most names of an inode that are noted.
pub(crate) const NOTED_MAX: usize = 16;

const KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Socket,
];

fn kind_to_byte(kind: FileKind) -> u8 {
    KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u8
}

fn kind_of_byte(byte: u8) -> Result<FileKind> {
    KINDS.get(usize::from(byte)).copied().ok_or(Error::Io)
}

/// Bits of the second byte of an inode.
const HAS_XATTRS: u8 = 1;
const IN_FILE: u8 = 2;
const HAS_ACLS: u8 = 4;
const HAS_MORE_NAMES: u8 = 8;
const HAS_FLAGS: u8 = 16;

/// Reads a value from its beginning to its end. Where it is too short, the store is damaged: EIO.
struct Reader<'v>(&'v [u8]);

impl<'v> Reader<'v> {
    fn bytes(&mut self, len: usize) -> Result<&'v [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Error::Io)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes after their length.
    fn sized(&mut self) -> Result<&'v [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    /// An ACL, or its absence.
    fn acl(&mut self) -> Result<Option<Acl>> {
        let value = self.sized()?;
        if value.is_empty() { Ok(None) } else { Acl::from_xattr(value).map_err(|_| Error::Io) }
    }

    fn time(&mut self) -> Result<Timestamp> {
        self.array().map(i64::from_le_bytes).map(Timestamp)
    }
}

impl Inode {
    pub(crate) fn new(attr: NodeAttr) -> Self {
        let named_in = SmallVec::new();
        Self { attr, contents: Contents::Record, has_xattrs: false, named_in, has_more_names: false }
    }

    /// Notes a name that it gets.
    pub(crate) fn note_name(&mut self, key: Key) {
        if self.named_in.len() < NOTED_MAX {
            self.named_in.push(key);
        } else {
            self.has_more_names = true;
        }
    }

    /// It loses a name.
    pub(crate) fn forget_name(&mut self, key: &Key) {
        if let Some(place) = self.named_in.iter().position(|noted| noted == key) {
            self.named_in.remove(place);
        }
    }

    /// The inode of a record.
    ///
    /// # Errors
    /// EIO: the record is damaged.
    pub(crate) fn decode(ino: u64, value: &[u8]) -> Result<Self> {
        let mut value = Reader(value);
        let kind = kind_of_byte(value.u8()?)?;
        let flags = value.u8()?;
        if flags & !(HAS_XATTRS | IN_FILE | HAS_ACLS | HAS_MORE_NAMES | HAS_FLAGS) != 0 {
            return Err(Error::Io);
        }
        let mode = u32::from(value.u16()?);
        let mut attr = NodeAttr::new(ino, kind, mode, Timestamp(0));
        (attr.uid, attr.gid) = (value.u32()?, value.u32()?);
        (attr.nlink, attr.rdev) = (value.u32()?, value.u32()?);
        (attr.size, attr.blocks) = (value.u64()?, value.u64()?);
        (attr.atime, attr.mtime, attr.ctime, attr.btime) = (value.time()?, value.time()?, value.time()?, value.time()?);
        let contents = if flags & IN_FILE != 0 { Contents::File(value.u64()?) } else { Contents::Record };
        if flags & HAS_FLAGS != 0 {
            attr.flags = InodeFlags::from_bits(value.u32()?).ok_or(Error::Io)?;
        }
        if flags & HAS_ACLS != 0 {
            attr.acls = Some(Arc::new(Acls { access: value.acl()?, default: value.acl()? }));
        }
        let mut named_in = smallvec![];
        for _ in 0..value.u8()? {
            named_in.push(Key::names(value.u64()?, value.u64()?));
        }
        attr.target = value.0.into();
        let (has_xattrs, has_more_names) = (flags & HAS_XATTRS != 0, flags & HAS_MORE_NAMES != 0);
        Ok(Self { attr, contents, has_xattrs, named_in, has_more_names })
    }

    /// The number of the file of the host with its contents.
    pub(crate) fn file(&self) -> Option<u64> {
        match self.contents {
            Contents::File(number) => Some(number),
            Contents::Record => None,
        }
    }

    /// The value of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let attr = &self.attr;
        let mut flags = if self.has_xattrs { HAS_XATTRS } else { 0 };
        if let Contents::File(_) = self.contents {
            flags |= IN_FILE;
        }
        if !attr.flags.is_empty() {
            flags |= HAS_FLAGS;
        }
        if attr.acls.is_some() {
            flags |= HAS_ACLS;
        }
        if self.has_more_names {
            flags |= HAS_MORE_NAMES;
        }
        // All that there is without flags and ACLs: a longer buffer would be copied to a fitting
        // one.
        let number = if self.file().is_some() { 8 } else { 0 };
        let mut value = Vec::with_capacity(69 + number + 16 * self.named_in.len() + attr.target.len());
        value.extend([kind_to_byte(attr.kind), flags]);
        value.extend((attr.mode as u16).to_le_bytes());
        [attr.uid, attr.gid, attr.nlink, attr.rdev].iter().for_each(|number| value.extend(number.to_le_bytes()));
        [attr.size, attr.blocks].iter().for_each(|number| value.extend(number.to_le_bytes()));
        let times = [attr.atime, attr.mtime, attr.ctime, attr.btime];
        times.iter().for_each(|time| value.extend(time.0.to_le_bytes()));
        if let Contents::File(number) = self.contents {
            value.extend(number.to_le_bytes());
        }
        if !attr.flags.is_empty() {
            value.extend(attr.flags.bits().to_le_bytes());
        }
        if let Some(acls) = &attr.acls {
            for acl in [&acls.access, &acls.default] {
                let bytes = acl.as_ref().map_or(&[][..], Acl::as_xattr);
                value.extend((bytes.len() as u32).to_le_bytes());
                value.extend(bytes);
            }
        }
        value.push(self.named_in.len() as u8);
        for key in &self.named_in {
            value.extend(key.number().to_le_bytes());
            value.extend(key.hash().to_le_bytes());
        }
        value.extend(&attr.target);
        value
    }
}

/// A name of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// Distinguishes names with the same hash. It stays as long as the name.
    pub slot: u8,
    pub kind: FileKind,
    pub ino: u64,
    pub name: Box<[u8]>,
}

/// The names of a directory with one hash: as a rule one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names(pub Vec<Name>);

/// The most names with one hash.
pub(crate) const SLOTS: u8 = 8;

impl Names {
    /// The names in a record. None: no record.
    ///
    /// # Errors
    /// EIO: the record is damaged.
    pub(crate) fn decode(value: Option<&[u8]>) -> Result<Self> {
        let mut value = Reader(value.unwrap_or_default());
        let mut names = Vec::new();
        while !value.0.is_empty() {
            let (slot, kind) = (value.u8()?, kind_of_byte(value.u8()?)?);
            let (ino, len) = (value.u64()?, value.u8()?);
            names.push(Name { slot, kind, ino, name: value.bytes(usize::from(len))?.into() });
        }
        Ok(Self(names))
    }

    /// The value of the record. None: without names there is no record.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut value = Vec::with_capacity(self.0.iter().map(|name| 11 + name.name.len()).sum());
        for name in &self.0 {
            value.extend([name.slot, kind_to_byte(name.kind)]);
            value.extend(name.ino.to_le_bytes());
            value.push(name.name.len() as u8);
            value.extend(&name.name);
        }
        (!value.is_empty()).then_some(value)
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Name> {
        self.0.iter().find(|known| *known.name == *name)
    }

    /// Binds a name to an inode, whether the name is there or not. False if there are too many
    /// names.
    pub(crate) fn bind(&mut self, name: &[u8], kind: FileKind, ino: u64) -> bool {
        if let Some(known) = self.0.iter_mut().find(|known| *known.name == *name) {
            (known.kind, known.ino) = (kind, ino);
            return true;
        }
        let Some(slot) = (0..SLOTS).find(|slot| self.0.iter().all(|known| known.slot != *slot)) else { return false };
        self.0.push(Name { slot, kind, ino, name: name.into() });
        self.0.sort_by_key(|name| name.slot);
        true
    }

    pub(crate) fn unbind(&mut self, name: &[u8]) {
        self.0.retain(|known| *known.name != *name);
    }
}

/// The extended attributes in a record. None: no record.
///
/// # Errors
/// EIO: the record is damaged.
pub(crate) fn decode_xattrs(value: Option<&[u8]>) -> Result<Vec<Xattr>> {
    let mut value = Reader(value.unwrap_or_default());
    let mut xattrs = Vec::new();
    while !value.0.is_empty() {
        let (name, bytes) = (value.u8()?, value.u32()?);
        let name = value.bytes(usize::from(name))?.into();
        xattrs.push((name, value.bytes(bytes as usize)?.into()));
    }
    Ok(xattrs)
}

/// The value of a record of extended attributes. None: without them there is no record.
pub(crate) fn encode_xattrs(xattrs: &[Xattr]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for (name, bytes) in xattrs {
        value.push(name.len() as u8);
        value.extend((bytes.len() as u32).to_le_bytes());
        value.extend(name);
        value.extend(bytes);
    }
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode() -> Inode {
        let mut attr = NodeAttr::new(7, FileKind::Symlink, 0o4751, Timestamp(-1));
        (attr.uid, attr.gid, attr.nlink, attr.rdev) = (1, 2, 3, 4);
        (attr.size, attr.blocks) = (5, 6);
        (attr.mtime, attr.ctime, attr.btime) = (Timestamp(i64::MAX), Timestamp(8), Timestamp(9));
        attr.target = (*b"target").into();
        attr.flags = InodeFlags::APPEND | InodeFlags::NOATIME;
        let acl = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        let default = Acl::from_xattr(&acl).expect("valid");
        assert!(default.is_some());
        attr.acls = Some(Arc::new(Acls { access: None, default }));
        let named_in = smallvec![Key::names(1, 2), Key::names(3, u64::MAX)];
        Inode { attr, contents: Contents::File(u64::MAX), has_xattrs: true, named_in, has_more_names: true }
    }

    fn names() -> Names {
        let mut names = Names::default();
        let long = [b'x'; 255];
        let all: [&[u8]; 8] = [b"a", &long, b"b", b"c", b"d", b"e", b"f", b"g"];
        for (ino, name) in all.iter().enumerate() {
            assert!(names.bind(name, KINDS[ino % 7], ino as u64));
        }
        names
    }

    #[test]
    fn records_are_decoded_as_they_were() {
        assert_eq!(Inode::decode(7, &inode().encode()), Ok(inode()));
        assert_eq!(Names::decode(names().encode().as_deref()), Ok(names()));
        assert!(names().encode().is_some_and(|value| value.capacity() == value.len()));
        assert_eq!((Names::decode(None), Names::default().encode()), (Ok(Names::default()), None));
        let xattrs: Vec<Xattr> = vec![((*b"user.x").into(), (*b"value").into()), ((*b"user.y").into(), Box::default())];
        assert_eq!(decode_xattrs(encode_xattrs(&xattrs).as_deref()), Ok(xattrs));
        assert_eq!((decode_xattrs(None), encode_xattrs(&[])), (Ok(Vec::new()), None));
    }

    #[test]
    fn an_inode_notes_some_of_its_names() {
        let mut inode = Inode::new(NodeAttr::new(7, FileKind::File, 0o644, Timestamp(0)));
        let key = |at: usize| Key::names(1, at as u64);
        (0..NOTED_MAX).for_each(|at| inode.note_name(key(at)));
        assert!(!inode.has_more_names);
        inode.note_name(key(NOTED_MAX));
        inode.forget_name(&key(NOTED_MAX));
        inode.forget_name(&key(3));
        assert_eq!((inode.named_in.len(), inode.has_more_names), (NOTED_MAX - 1, true));
        inode.note_name(key(99));
        assert!(inode.named_in.contains(&key(99)) && !inode.named_in.contains(&key(3)));
        assert_eq!(Inode::decode(7, &inode.encode()), Ok(inode.clone()));
        assert_eq!(inode.encode().capacity(), inode.encode().len());
        inode.contents = Contents::File(1);
        assert_eq!(inode.encode().capacity(), inode.encode().len());
    }

    #[test]
    fn names_keep_their_slots() {
        let mut names = names();
        assert!(!names.bind(b"one more", FileKind::File, 9), "eight have this hash");
        names.unbind(b"b");
        assert!(names.bind(b"c", FileKind::Fifo, 10));
        assert_eq!(names.get(b"c").map(|name| (name.slot, name.kind, name.ino)), Some((3, FileKind::Fifo, 10)));
        assert!(names.bind(b"one more", FileKind::File, 9));
        assert_eq!(names.get(b"one more").map(|name| name.slot), Some(2));
        assert!(names.0.is_sorted_by_key(|name| name.slot));
    }

    /// Cut short, or with other bytes, a record is refused or decoded, without a panic.
    #[test]
    fn damaged_records_cause_no_panic() {
        let xattrs = encode_xattrs(&[((*b"user.x").into(), (*b"value").into())]);
        for value in [inode().encode(), names().encode().expect("names"), xattrs.expect("one")] {
            for len in 0..value.len() {
                let (mut cut, mut changed) = (value[..len].to_vec(), value.clone());
                changed[len] ^= 0x55;
                for value in [&mut cut, &mut changed] {
                    let _ = Inode::decode(1, value);
                    let _ = Names::decode(Some(value)).map(|names| names.encode());
                    let _ = decode_xattrs(Some(value));
                }
            }
        }
        assert_eq!(Inode::decode(1, &inode().encode()[..70]), Err(Error::Io));
    }
}
