//! Small entries of one directory, collected to be made in one call.

use std::{
    cell::RefCell,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
};

use pando_records::{
    Attr, BulkXattr, Entry, Fields, PackedRecord, Packer, Pushed, Time, XATTR_NAME_MAX, XCREATE_BYTES, XattrValue,
};
use pando_vfs::{FileKind, Timestamp};

use crate::{
    Options,
    contents::WriteAt,
    entry::{Body, Meta},
};

/// An entry with more bytes of contents and extended attributes is made by itself. Any smaller one
/// fits into an empty batch.
const SMALL_BYTES: usize = 48 << 10;
/// The longest name of a file on Linux.
const NAME_MAX: usize = 255;
/// The longest target of a symbolic link on Linux, without its NUL.
const TARGET_MAX: usize = 4095;

/// The most bytes of a record besides names, values and contents.
const RECORD_BYTES: usize = 192;

/// The most bytes that extended attributes take in a record.
fn xattr_bytes(meta: &Meta) -> usize {
    meta.xattrs.iter().map(|(name, value)| name.len() + value.len() + 24).sum()
}

/// Entries of one directory.
pub(crate) struct Batch {
    names: Vec<OsString>,
    /// Longer than its part in use.
    records: Vec<u8>,
    used: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { names: Vec::new(), records: Vec::new(), used: 0 }
    }

    /// Whether an entry may be in a batch.
    pub(crate) fn takes(name: &OsStr, meta: &Meta, body: &Body<'_>, options: &Options) -> bool {
        let bytes = match body {
            Body::File { size, .. } => usize::try_from(*size).unwrap_or(usize::MAX),
            Body::Symlink(target) if target.len() <= TARGET_MAX => target.len(),
            Body::Special(kind, _) if options.makes(*kind) => 0,
            Body::Symlink(_) | Body::Special(..) | Body::Directory | Body::HardLink(_) => return false,
        };
        (1..=NAME_MAX).contains(&name.len())
            && meta.xattrs.iter().all(|(name, _)| name.len() <= XATTR_NAME_MAX)
            && bytes.saturating_add(xattr_bytes(meta)) <= SMALL_BYTES
    }

    /// The records of all entries.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records[..self.used]
    }

    pub(crate) fn contains(&self, name: &OsStr) -> bool {
        self.names.iter().any(|other| other == name)
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.used = 0;
    }

    /// Adds an entry; `body` is the contents of a file or the target of a link. Returns false if
    /// the batch is full.
    pub(crate) fn push(
        &mut self,
        name: &OsStr,
        (kind, rdev): (FileKind, u64),
        meta: &Meta,
        body: &[u8],
        options: &Options,
    ) -> bool {
        let mut have = Fields::MODE | Fields::MTIME;
        have.set(Fields::UID | Fields::GID, options.privileged);
        let attr = Attr {
            have,
            mode: kind.to_mode() | meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            rdev_major: rustix::fs::major(rdev),
            rdev_minor: rustix::fs::minor(rdev),
            mtime: Time { secs: meta.mtime.secs(), nanos: meta.mtime.nanos() },
            ..Attr::default()
        };
        let entry = Entry { attr: Some(&attr), target: Some(body), ..Entry::new(name.as_bytes(), Some(kind), 0, 0) };
        let xattrs = meta.xattrs.iter().map(|(name, value)| BulkXattr { name, value: XattrValue::Bytes(value) });
        let bytes = RECORD_BYTES + name.len() + body.len() + xattr_bytes(meta);
        let room = XCREATE_BYTES.min(self.used + bytes);
        self.records.resize(room.max(self.records.len()), 0);
        let mut packer = Packer::resume(&mut self.records, self.used, self.names.len());
        if packer.push(&entry, xattrs) != Pushed::Packed {
            return false;
        }
        self.used = packer.used();
        self.names.push(name.to_owned());
        true
    }
}

/// The metadata, the kind, and the contents or target of an entry in a batch.
pub(crate) fn unpacked<'a>(record: &PackedRecord<'a>) -> Option<(Meta, FileKind, u64, &'a [u8])> {
    let attr = record.attr()?;
    let xattrs = record.xattrs().filter_map(|xattr| match xattr.value {
        XattrValue::Bytes(value) => Some((xattr.name.to_vec(), value.to_vec())),
        XattrValue::NotRead | XattrValue::Errno(_) => None,
    });
    let mtime = Timestamp::from_parts(attr.mtime.secs, attr.mtime.nanos);
    let meta = Meta { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid, mtime, xattrs: xattrs.collect() };
    let device = rustix::fs::makedev(attr.rdev_major, attr.rdev_minor);
    Some((meta, record.kind()?, device, record.target()?))
}

/// The contents of a small file, in memory.
#[derive(Default)]
pub(crate) struct SmallFile(RefCell<Vec<u8>>);

impl SmallFile {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner()
    }
}

impl WriteAt for SmallFile {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (mut bytes, begin) = (self.0.borrow_mut(), offset as usize);
        let end = begin + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[begin..end].copy_from_slice(data);
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.borrow_mut().resize(size as usize, 0);
        Ok(())
    }
}
