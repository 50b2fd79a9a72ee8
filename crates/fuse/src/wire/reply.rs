//! The body of a reply, built in the memory that it is sent from.

use std::{ops::Range, time::Duration};

use pando_vfs::{DirEntry, Error, FileKind, Result, Stat, StatFs, Timestamp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{AttrBytes, AttrOut, Dirent, EntryOut, SizeOut, StatfsOut, StatxOut, StatxTime};
use crate::nodes::Attr;

/// All fields of statx(2) that an inode here has (`STATX_BASIC_STATS` and `STATX_BTIME`).
const STATX_ALL: u32 = 0x7ff | 0x800;

/// Directory entries begin at multiples of this many bytes.
const DIRENT_ALIGN: usize = 8;

/// Writes the body of a reply: the bytes after its header.
#[derive(Debug)]
pub(crate) struct ReplyWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> ReplyWriter<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// How many bytes have been written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends `part`.
    ///
    /// # Errors
    /// EIO if it does not fit: the kernel has asked for more than INIT allows.
    pub(crate) fn put(&mut self, part: &(impl IntoBytes + Immutable + ?Sized)) -> Result<()> {
        let part = part.as_bytes();
        let free = self.free().get_mut(..part.len()).ok_or(Error::Io)?;
        free.copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }

    /// Lets `fill` append up to `size` bytes. It returns how many.
    ///
    /// # Errors
    /// Those of `fill`; EIO if `size` bytes do not fit.
    pub(crate) fn fill(&mut self, size: u32, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let count = fill(self.free().get_mut(..size as usize).ok_or(Error::Io)?)?;
        self.len += count;
        Ok(())
    }

    /// Appends a value that fits into the `size` bytes that the caller has. With a `size` of 0 the
    /// caller asks for the value's length.
    ///
    /// # Errors
    /// ERANGE if the value is longer than `size`.
    pub(crate) fn sized(&mut self, value: &[u8], size: u32) -> Result<()> {
        match size {
            0 => self.put(&SizeOut { size: value.len() as u32, padding: 0 }),
            size if value.len() <= size as usize => self.put(value),
            _ => Err(Error::Range),
        }
    }

    fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// Limits the body to `size` bytes.
    pub(crate) fn at_most(&mut self, size: u32) {
        let buffer = std::mem::take(&mut self.buffer);
        let len = buffer.len().min(size as usize);
        self.buffer = &mut buffer[..len];
    }

    /// Appends a directory entry. Returns false if it does not fit.
    pub(crate) fn dirent(&mut self, entry: &DirEntry<'_>) -> bool {
        self.record(None, entry)
    }

    /// Appends a directory entry with its node. Returns false if it does not fit.
    pub(crate) fn dirent_plus(&mut self, node: &EntryOut, entry: &DirEntry<'_>) -> bool {
        self.record(Some(node), entry)
    }

    fn record(&mut self, node: Option<&EntryOut>, entry: &DirEntry<'_>) -> bool {
        let dirent = Dirent {
            ino: entry.ino,
            cookie: entry.cookie,
            name_len: entry.name.len() as u32,
            kind: entry.kind.to_mode() >> 12,
        };
        let parts = [node.map_or(&[][..], IntoBytes::as_bytes), dirent.as_bytes(), entry.name];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Some(mut free) = self.free().get_mut(..len.next_multiple_of(DIRENT_ALIGN)) else { return false };
        for part in parts {
            let (here, behind) = free.split_at_mut(part.len());
            here.copy_from_slice(part);
            free = behind;
        }
        free.fill(0);
        self.len += len.next_multiple_of(DIRENT_ALIGN);
        true
    }
}

/// The entries in the body of a READDIR reply, or of a READDIRPLUS reply (`plus`): where each one
/// begins, and where its name is. Ends where the body is malformed.
pub(crate) fn directory_entries(body: &[u8], plus: bool) -> impl Iterator<Item = (usize, Range<usize>)> {
    let before = if plus { size_of::<EntryOut>() } else { 0 };
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        let (dirent, _) = Dirent::read_from_prefix(body.get(start + before..)?).ok()?;
        let name = start + before + size_of::<Dirent>();
        let end = name + dirent.name_len as usize;
        if end > body.len() {
            return None;
        }
        next = start + (end - start).next_multiple_of(DIRENT_ALIGN);
        Some((start, name..end))
    })
}

/// The structures that a reply with attributes begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttrFormat {
    Entry,
    Attr,
    Statx,
}

impl AttrFormat {
    /// Whether the attributes in `body` are those in `attr`.
    pub(crate) fn shows(self, body: &[u8], attr: &Attr) -> bool {
        match self {
            Self::Entry => EntryOut::read_from_prefix(body)
                .is_ok_and(|(out, _)| out.attr.as_bytes() == attr_bytes(attr).as_bytes()),
            Self::Attr => {
                AttrOut::read_from_prefix(body).is_ok_and(|(out, _)| out.attr.as_bytes() == attr_bytes(attr).as_bytes())
            }
            Self::Statx => StatxOut::read_from_prefix(body).is_ok_and(|(mut out, _)| {
                (out.attr_valid, out.attr_valid_nsec) = (0, 0);
                out.as_bytes() == statx_out(attr, Duration::ZERO).as_bytes()
            }),
        }
    }

    /// Sets the validity time of the attributes in `body`, and of a name, to zero.
    pub(crate) fn expire(self, body: &mut [u8]) {
        match self {
            Self::Entry => EntryOut::expire(body),
            Self::Attr => AttrOut::expire(body),
            Self::Statx => StatxOut::expire(body),
        }
    }
}

macro_rules! expires {
    ($($out:ident: $($field:ident)*;)*) => {
        $(impl $out {
            fn expire(body: &mut [u8]) {
                if let Ok((mut out, _)) = Self::read_from_prefix(body) {
                    $(out.$field = 0;)*
                    // It was just read from there, so it fits.
                    let _ = out.write_to_prefix(body);
                }
            }
        })*
    };
}

expires! {
    EntryOut: entry_valid entry_valid_nsec attr_valid attr_valid_nsec;
    AttrOut: attr_valid attr_valid_nsec;
    StatxOut: attr_valid attr_valid_nsec;
}

/// A node that is given to the kernel. The name stays valid for the time `valid`, the attributes
/// for `attr_valid`.
pub(crate) fn entry_out(attr: &Attr, valid: Duration, attr_valid: Duration) -> EntryOut {
    EntryOut {
        node: attr.node,
        generation: attr.generation.into(),
        entry_valid: valid.as_secs(),
        attr_valid: attr_valid.as_secs(),
        entry_valid_nsec: valid.subsec_nanos(),
        attr_valid_nsec: attr_valid.subsec_nanos(),
        attr: attr_bytes(attr),
    }
}

/// A negative dentry. The kernel may keep it for the time `valid`.
pub(crate) fn negative_out(valid: Duration) -> EntryOut {
    EntryOut { entry_valid: valid.as_secs(), entry_valid_nsec: valid.subsec_nanos(), ..EntryOut::default() }
}

/// The entries `.` and `..` of a READDIRPLUS reply, which give the kernel no node.
pub(crate) fn dots_out(entry: &DirEntry<'_>) -> EntryOut {
    let attr = AttrBytes { ino: entry.ino, mode: entry.kind.to_mode(), ..AttrBytes::default() };
    EntryOut { attr, ..EntryOut::default() }
}

pub(crate) fn attr_out(attr: &Attr, valid: Duration) -> AttrOut {
    AttrOut { attr_valid: valid.as_secs(), attr_valid_nsec: valid.subsec_nanos(), dummy: 0, attr: attr_bytes(attr) }
}

fn mode(kind: FileKind, mode: u32) -> u32 {
    kind.to_mode() | mode & 0o7777
}

fn attr_bytes(attr: &Attr) -> AttrBytes {
    let stat: &Stat = &attr.stat;
    AttrBytes {
        ino: attr.node,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime.secs(),
        mtime: stat.mtime.secs(),
        ctime: stat.ctime.secs(),
        atime_nsec: stat.atime.nanos(),
        mtime_nsec: stat.mtime.nanos(),
        ctime_nsec: stat.ctime.nanos(),
        mode: mode(stat.kind, stat.mode),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        // Linux's encoding of device numbers fits into the protocol's 32 bits.
        rdev: stat.rdev as u32,
        blksize: stat.blksize,
        flags: 0,
    }
}

pub(crate) fn statx_out(attr: &Attr, valid: Duration) -> StatxOut {
    let time = |time: Timestamp| StatxTime { secs: time.secs(), nanos: time.nanos(), reserved: 0 };
    let stat: &Stat = &attr.stat;
    StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        mask: STATX_ALL,
        blksize: stat.blksize,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        mode: mode(stat.kind, stat.mode) as u16,
        ino: attr.node,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        btime: time(stat.btime),
        ctime: time(stat.ctime),
        mtime: time(stat.mtime),
        rdev_major: rustix::fs::major(stat.rdev),
        rdev_minor: rustix::fs::minor(stat.rdev),
        ..StatxOut::default()
    }
}

pub(crate) fn statfs_out(stat: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: stat.blocks,
        bfree: stat.bfree,
        bavail: stat.bavail,
        files: stat.files,
        ffree: stat.ffree,
        bsize: stat.bsize,
        namelen: stat.namelen,
        frsize: stat.bsize,
        ..StatfsOut::default()
    }
}

#[cfg(test)]
mod tests;
