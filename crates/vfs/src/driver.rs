//! Where trees come from: the interface between the name space and a driver.
//!
//! Two kinds of driver stand behind one trait. Of a *memory driver* the name space's cache is the
//! tree itself: it only grants inodes and space, and holds the bytes of files; its calls never
//! wait. A driver with a [`Backing`] has the tree elsewhere (a disk, a database, a host): the cache
//! holds what was asked for lately, every change goes through to the backing first, and what is not
//! in use can be evicted at any time. Its calls may wait, but for [`Backing::change_count`] and
//! [`Backing::forget`]: they are made without a reclamation guard, and with whatever the operation
//! has locked, which others wait for. A look-up has mostly nothing locked, sometimes its name, an
//! inode or the ancestors; attributes that others have changed are asked for with the inode locked,
//! and the data of a file; a change has the locks of its operation (topology, names, rename
//! sequence; of a directory's permissions; of extended attributes). So a call must not wait for
//! another operation of the name space.

use std::{
    io::{IoSlice, IoSliceMut},
    sync::Arc,
};

use bitflags::bitflags;

use crate::{
    Result,
    types::{FileKind, RenameFlags, StatFs, Timestamp, layout::Layout},
};

/// A driver: what stands behind a superblock.
///
/// A driver knows nothing of paths, open files or other drivers. The name space calls it with
/// numbers and names; changes of one name come one after the other.
///
/// An [`Arc`] of a driver is one, too: for who looks at its statistics, or has several trees in
/// memory that share its limits.
///
/// It is dropped when its tree was taken down and the last file that was open there is gone: by
/// whichever thread reclaims that one, under whatever that thread holds. So its drop does not wait
/// for anybody's locks, nor does the [`Backing::forget`] that may come before it.
pub trait Driver: Send + Sync + 'static {
    /// Space and inodes, all and free.
    fn statfs(&self) -> StatFs;

    /// Pays for something, before it is there. Never waits.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if the limit is reached at an instant of the call.
    fn charge(&self, what: Charge) -> Result<()>;

    /// Gives back what [`Driver::charge`] took: it is gone, or never came to be. Never waits.
    fn release(&self, what: Charge);

    /// The contents of a regular file, asked for when they are first needed. Never waits.
    fn data(&self, ino: u64) -> Box<dyn FileData>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the store answers.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Where the tree is, if it is not the cache itself.
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
}

/// A driver that others look at, too: its statistics, say.
impl<D: Driver + ?Sized> Driver for Arc<D> {
    fn statfs(&self) -> StatFs {
        (**self).statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        (**self).charge(what)
    }
    fn release(&self, what: Charge) {
        (**self).release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        (**self).data(ino)
    }
    fn sync(&self) -> Result<()> {
        (**self).sync()
    }
    fn backing(&self) -> Option<&dyn Backing> {
        (**self).backing()
    }
}

/// What a driver is charged for, besides the pages of files, which it sees itself.
///
/// All that lives as long as somebody wants it to, so that no caller can fill memory with what no
/// limit counts. (Names are at most 255 bytes of an inode or a link.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// An inode, with its first name if it has one. Of a tree with a [`Backing`]: one that is in
    /// the cache; nothing else is charged there, since the store has limits of its own.
    Inode,
    /// A further name of an inode: a hard link.
    Link,
    /// An extended attribute, whose name and value have so many bytes.
    Xattr(usize),
    /// The target of a symbolic link, of so many bytes.
    Target(usize),
}

/// What a backing knows of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAttr {
    /// Its number in the backing: one identity, never another's as long as anybody here remembers
    /// it.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Of a device node.
    pub rdev: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// Where a symbolic link leads; empty for anything else.
    pub target: Box<[u8]>,
}

impl NodeAttr {
    /// The attributes of an empty inode with one name (a directory: two), owned by root, whose
    /// times are all `now`. The fields are public.
    #[must_use]
    pub fn new(ino: u64, kind: FileKind, mode: u32, now: Timestamp) -> Self {
        Self {
            ino,
            kind,
            mode,
            uid: 0,
            gid: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            size: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            target: Box::default(),
        }
    }
}

bitflags! {
    /// Which attributes of a [`NodeAttr`] are meant.
    # [derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttrMask: u8 {
        /// [`NodeAttr::mode`].
        const MODE = 1;
        /// [`NodeAttr::uid`].
        const UID = 2;
        /// [`NodeAttr::gid`].
        const GID = 4;
        /// [`NodeAttr::atime`].
        const ATIME = 8;
        /// [`NodeAttr::mtime`].
        const MTIME = 16;
        /// [`NodeAttr::ctime`].
        const CTIME = 32;
    }
}

/// A tree that is kept elsewhere. All calls may wait, but for [`Backing::change_count`] and
/// [`Backing::forget`].
///
/// Changes arrive in an order that the name space has checked: a name is created only where none is
/// known, removed only by one caller at a time. The backing has the last word all the same, since
/// others may change it too: what it answers is what the caller gets, and what it refuses has not
/// happened. Nor has what it panics over.
pub trait Backing: Send + Sync {
    /// The root directory.
    ///
    /// # Errors
    /// What the store answers.
    fn root(&self) -> Result<NodeAttr>;

    /// What a name is bound to; none: nothing, and that is remembered too.
    ///
    /// # Errors
    /// What the store answers; nothing is remembered then.
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<NodeAttr>>;

    /// A number that changes when somebody else changes something that this directory's names lead
    /// to. What is cached of the directory is asked for again then. Called on every walk through
    /// the directory, under a reclamation guard, and with names locked: a load, no more.
    fn change_count(&self, dir: u64) -> u64 {
        let _ = dir;
        0
    }

    /// Attributes of many inodes, in whatever order suits the store: `each` is told the place in
    /// `inos`.
    ///
    /// # Errors
    /// Only what concerns the call as a whole; what concerns one inode is told to `each`.
    fn getattr_many(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()>;

    /// Makes an inode and its first name. `attr` is complete but for the number, which is the
    /// backing's to give.
    ///
    /// # Errors
    /// EEXIST when somebody else was quicker, and what the store answers.
    fn create(&self, dir: u64, name: &[u8], attr: &NodeAttr) -> Result<u64>;

    /// Makes a further name for an inode.
    ///
    /// # Errors
    /// EEXIST, ENOENT, and what the store answers.
    fn link(&self, ino: u64, dir: u64, name: &[u8]) -> Result<()>;

    /// Takes a name away; a directory must be empty. An inode without names stays until
    /// [`Backing::forget`].
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, and what the store answers.
    fn remove(&self, dir: u64, name: &[u8]) -> Result<()>;

    /// Moves a name, over an existing one if there is one; with EXCHANGE the two change places, and
    /// with NOREPLACE nothing is replaced, whatever the name space knew of the target.
    ///
    /// # Errors
    /// EEXIST (NOREPLACE), ENOTEMPTY, ENOENT, and what the store answers.
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<()>;

    /// Stores those attributes of an inode that are `meant`. The others stay: somebody else may
    /// have changed them since.
    ///
    /// # Errors
    /// What the store answers.
    fn setattr(&self, ino: u64, attr: &NodeAttr, meant: AttrMask) -> Result<()>;

    /// Nobody here uses this inode any more. If it has no names, its contents may go. Mostly called
    /// with nothing but the inode locked, and at last by who drops the [`Driver`], under whatever
    /// that thread holds: so it waits for nobody's locks.
    fn forget(&self, ino: u64);

    /// Calls `each` for the entries of a directory after `cookie` (0: the first) until it returns
    /// false. Cookies are the backing's own, 3 or more, and lead on for ever.
    ///
    /// # Errors
    /// What the store answers.
    fn scan(&self, dir: u64, cookie: u64, each: &mut dyn FnMut(Scanned<'_>) -> bool) -> Result<()>;

    /// An inode's extended attributes, all of them.
    ///
    /// # Errors
    /// What the store answers.
    fn xattrs(&self, ino: u64) -> Result<Vec<Xattr>>;

    /// Sets an extended attribute, or removes it.
    ///
    /// # Errors
    /// What the store answers.
    fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()>;
}

/// An extended attribute: its name and its value.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// An entry that a backing's scan has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scanned<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode's number in the backing.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Where to go on after this entry.
    pub cookie: u64,
}

impl<'a> Scanned<'a> {
    /// An entry. Nothing but these four is known of it.
    #[must_use]
    pub const fn new(name: &'a [u8], ino: u64, kind: FileKind, cookie: u64) -> Self {
        Self { name, ino, kind, cookie }
    }
}

/// One file's bytes.
///
/// Called with the inode's data lock held: shared for `&self`, exclusive for `&mut self`. Offsets
/// and sizes were checked before: nothing here goes beyond `i64::MAX`. Dropping it gives the space
/// of a memory driver back. It is dropped by who puts the last reference to the inode, perhaps
/// under a reclamation guard and with names locked: its drop does not wait.
pub trait FileData: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset` of a file of `size` bytes: zeros in holes, fewer
    /// bytes only at the end.
    ///
    /// # Errors
    /// What the store answers.
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize>;

    /// Writes at `offset`; returns how many bytes were written.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when not one byte could be written.
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize>;

    /// As [`FileData::read_at`], into one buffer after the other. A driver for which each call is a
    /// way there and back does it in one.
    ///
    /// # Errors
    /// What the store answers, if it has not given one byte.
    fn readv_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64, size: u64) -> Result<usize> {
        let mut count = 0;
        for buffer in buffers {
            let offset = offset + count as u64;
            if offset >= size {
                break;
            }
            match self.read_at(buffer, offset, size) {
                Ok(part) => count += part,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// As [`FileData::write_at`], one buffer after the other. A driver for which each call is a way
    /// there and back does it in one.
    ///
    /// # Errors
    /// As write_at.
    fn writev_at(&mut self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let mut count = 0;
        for buffer in buffers.iter().filter(|buffer| !buffer.is_empty()) {
            match self.write_at(buffer, offset + count as u64) {
                Ok(part) => {
                    count += part;
                    if part < buffer.len() {
                        break;
                    }
                }
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Changes the size: frees what lies beyond, and what is grown into later reads as zeros.
    ///
    /// # Errors
    /// What the store answers.
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()>;

    /// Makes sure that writing to the range will not run out of space.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]; what was allocated before stays allocated.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Makes a hole: the range reads as zeros and whole pages of it are freed.
    ///
    /// # Errors
    /// What the store answers.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// The first offset at or after `offset` with data, in a file of `size` bytes; none if only a
    /// hole follows.
    fn seek_data(&self, offset: u64, size: u64) -> Option<u64>;

    /// The first offset at or after `offset` in a hole; the end of the file counts as one.
    fn seek_hole(&self, offset: u64, size: u64) -> u64;

    /// Where the data is, as of the last change, if the driver keeps account of it.
    ///
    /// If so, SEEK_DATA and SEEK_HOLE are answered from what this said after the last change, at no
    /// cost to the driver, and never wait (P6). Otherwise they ask [`FileData::seek_data`] and
    /// [`FileData::seek_hole`]; while the file is being changed they do not wait for that either,
    /// but take it for a file without holes, as POSIX allows for any.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// Occupied space in units of 512 bytes.
    fn blocks(&self) -> u64;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the store answers.
    fn sync(&mut self) -> Result<()>;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    /// A driver with nothing behind it, for tests of what does not ask it.
    pub(crate) struct Nothing;

    impl Driver for Nothing {
        fn statfs(&self) -> StatFs {
            StatFs::new(4096)
        }
        fn charge(&self, _what: Charge) -> Result<()> {
            Ok(())
        }
        fn release(&self, _what: Charge) {}
        fn data(&self, _ino: u64) -> Box<dyn FileData> {
            unreachable!("no test here opens a file")
        }
    }

    /// As [`Nothing`]; counts what is paid for.
    #[derive(Default)]
    pub(crate) struct Counting(pub AtomicU64);

    impl Driver for Counting {
        fn statfs(&self) -> StatFs {
            Nothing.statfs()
        }
        fn charge(&self, _what: Charge) -> Result<()> {
            self.0.fetch_add(1, SeqCst);
            Ok(())
        }
        fn release(&self, _what: Charge) {
            self.0.fetch_sub(1, SeqCst);
        }
        fn data(&self, ino: u64) -> Box<dyn FileData> {
            Nothing.data(ino)
        }
    }
}
