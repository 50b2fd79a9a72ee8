//! The interface between the namespace and a driver.
//!
//! There are two kinds of driver behind one trait:
//!
//! - **A memory driver.** The namespace's cache is the tree. The driver only accounts for inodes
//!   and space, and holds the bytes of files. Its calls never wait.
//! - **A driver with a [`Backing`].** The tree is elsewhere: on a disk, in a database, on a host.
//!   The cache holds what was looked up lately. Every change is committed to the backing first, and
//!   an unused inode can be evicted at any time.
//!
//! A call of a backing may wait, except for [`Backing::change_count`] and [`Backing::forget`]. The
//! namespace makes it without a reclamation guard, and with these locks held, for which other
//! threads wait:
//!
//! | call | locks |
//! | --- | --- |
//! | lookup | mostly none; sometimes the name, the inode, or the topology lock |
//! | lookup, scan without parallel operations | the directory as well |
//! | attributes that others have changed | the lock of the inode |
//! | contents | the data lock of the file |
//! | change | the locks of the operation, as the crate page lists them |
//!
//! So a call must not wait for another operation of the namespace.

use std::{
    io::{IoSlice, IoSliceMut},
    sync::Arc,
};

use bitflags::bitflags;

use crate::{
    Result,
    types::{FileKind, RenameFlags, StatFs, Timestamp, layout::Layout},
};

/// A driver: the storage of one superblock.
///
/// A driver knows nothing of paths, open files or other drivers. The namespace calls it with inode
/// numbers and names. It makes the changes of one name one after the other.
///
/// An [`Arc`] of a driver is a driver, too. A caller keeps a clone to read its statistics, or to
/// share its limits between several trees.
///
/// A driver is dropped after its tree was unmounted and the last open file of it was closed. The
/// thread that reclaims that file drops it, and may hold any lock then. So the drop must not wait
/// for a lock, nor must the [`Backing::forget`] that may come before it.
pub trait Driver: Send + Sync + 'static {
    /// The total and the free space and inodes.
    fn statfs(&self) -> StatFs;

    /// Accounts for an object before it is made. Never waits.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if the limit is reached at some instant of the call.
    fn charge(&self, what: Charge) -> Result<()>;

    /// Takes back a [`Driver::charge`]: the object was freed, or not made after all. Never waits.
    fn release(&self, what: Charge);

    /// The contents of a regular file. Called when they are first needed. Never waits.
    fn data(&self, ino: u64) -> Box<dyn FileData>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of the store.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// The backing, if the tree is not the cache itself.
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
}

/// Shared with other owners, who read its statistics, for instance.
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

/// An object that a driver accounts for, besides the pages of files, which it allocates itself.
///
/// These are all objects that live as long as a caller wants, so no caller can fill the memory with
/// objects that no limit counts. A name needs no charge: it has at most 255 bytes, and belongs to
/// an inode or a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// An inode, with its first name if it has one. In a tree with a [`Backing`]: an inode in the
    /// cache. Nothing else is charged there, since the store has limits of its own.
    Inode,
    /// A hard link to an inode that has a name.
    Link,
    /// An extended attribute; the size of its name and value in bytes.
    Xattr(usize),
    /// The target of a symbolic link; its size in bytes.
    Target(usize),
}

/// The attributes of an inode in a backing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAttr {
    /// The inode number in the backing. The backing does not reuse it before [`Backing::forget`].
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The permission bits (07777).
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of hard links.
    pub nlink: u32,
    /// The size in bytes.
    pub size: u64,
    /// The device of a device node; otherwise 0.
    pub rdev: u32,
    /// The last access.
    pub atime: Timestamp,
    /// The last change of the contents.
    pub mtime: Timestamp,
    /// The last change of the contents or the attributes.
    pub ctime: Timestamp,
    /// The creation.
    pub btime: Timestamp,
    /// The target of a symbolic link; empty for other files.
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
    /// A set of attributes of a [`NodeAttr`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A tree that is stored elsewhere. All calls may wait, except for [`Backing::change_count`] and
/// [`Backing::forget`].
///
/// The namespace checks a change against its cache first: it creates a name only where it knows
/// none, and only one thread at a time removes a name. The backing still decides, since others may
/// change the tree, too. The caller gets the backing's result. A change that the backing refuses
/// has not happened, nor has one during which it panics.
pub trait Backing: Send + Sync {
    /// Whether calls that name one directory may run at the same time: lookup, scan, create, link,
    /// remove and rename. If not, the namespace has a lock for each directory, and makes these
    /// calls under it. The lock of a directory also excludes its own removal.
    fn parallel_directory_operations(&self) -> bool {
        true
    }

    /// The attributes of the root directory.
    ///
    /// # Errors
    /// Those of the store.
    fn root(&self) -> Result<NodeAttr>;

    /// Looks up a name. None if it does not exist; the cache then keeps a negative dentry.
    ///
    /// # Errors
    /// Those of the store. The cache keeps nothing then.
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<NodeAttr>>;

    /// A number that changes when another user of the store changes an inode that a name of this
    /// directory leads to. The cache then reads the directory again. Called on every walk through
    /// the directory, under a reclamation guard and with names locked: it should be one load.
    fn change_count(&self, dir: u64) -> u64 {
        let _ = dir;
        0
    }

    /// Reads the attributes of many inodes, in the order that is best for the store. `each` gets an
    /// index into `inos` and the result for that inode.
    ///
    /// # Errors
    /// Only those of the call as a whole.
    fn getattr_many(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()>;

    /// Makes an inode and its first name. `attr` is complete except for the inode number, which the
    /// backing chooses and returns.
    ///
    /// # Errors
    /// EEXIST if another user of the store has made the name first, and those of the store.
    fn create(&self, dir: u64, name: &[u8], attr: &NodeAttr) -> Result<u64>;

    /// Makes a hard link to an inode.
    ///
    /// # Errors
    /// EEXIST, ENOENT, and those of the store.
    fn link(&self, ino: u64, dir: u64, name: &[u8]) -> Result<()>;

    /// Removes a name. A directory must be empty. An inode without names is kept until
    /// [`Backing::forget`].
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, and those of the store.
    fn remove(&self, dir: u64, name: &[u8]) -> Result<()>;

    /// Renames a name, and replaces the target if it exists. EXCHANGE exchanges the two names. With
    /// NOREPLACE an existing target is EEXIST, also if the namespace did not know of it.
    ///
    /// # Errors
    /// EEXIST, ENOTEMPTY, ENOENT, and those of the store.
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<()>;

    /// Stores the attributes of an inode that are in `meant`. The others must stay: another user of
    /// the store may have changed them.
    ///
    /// # Errors
    /// Those of the store.
    fn setattr(&self, ino: u64, attr: &NodeAttr, meant: AttrMask) -> Result<()>;

    /// The namespace does not use this inode any more. If it has no names, the store may free it.
    /// Mostly called with only the lock of the inode held. The thread that drops the [`Driver`]
    /// calls it, too, and may hold any lock. So the call must not wait for a lock.
    fn forget(&self, ino: u64);

    /// Calls `each` for the entries of a directory after `cookie` (0 is the start) until it returns
    /// false. The backing chooses the cookies, from 3 on. A cookie never becomes invalid.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&self, dir: u64, cookie: u64, each: &mut dyn FnMut(Scanned<'_>) -> bool) -> Result<()>;

    /// All extended attributes of an inode.
    ///
    /// # Errors
    /// Those of the store.
    fn xattrs(&self, ino: u64) -> Result<Vec<Xattr>>;

    /// Sets an extended attribute, or removes it if `value` is none.
    ///
    /// # Errors
    /// Those of the store.
    fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()>;
}

/// The name and the value of an extended attribute.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// A directory entry of [`Backing::scan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scanned<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number in the backing.
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The position after this entry, where a later scan continues.
    pub cookie: u64,
}

impl<'a> Scanned<'a> {
    /// An entry with these values.
    #[must_use]
    pub const fn new(name: &'a [u8], ino: u64, kind: FileKind, cookie: u64) -> Self {
        Self { name, ino, kind, cookie }
    }
}

/// The bytes of one file.
///
/// Calls are made with the inode's data lock held: shared for `&self`, exclusive for `&mut self`.
/// The namespace has checked offsets and sizes: none is beyond `i64::MAX`.
///
/// The drop frees the space of a memory driver. The thread that drops the last reference to the
/// inode drops the data, perhaps under a reclamation guard and with names locked, so the drop must
/// not wait.
pub trait FileData: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset` of a file of `size` bytes. Holes read as zeros.
    /// The result is shorter only at the end of the file.
    ///
    /// # Errors
    /// Those of the store.
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize>;

    /// Writes at `offset`, and returns the number of bytes that were written.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if no byte could be written.
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize>;

    /// As [`FileData::read_at`], into one buffer after the other. A driver whose calls are round
    /// trips implements it as one.
    ///
    /// # Errors
    /// Those of the store, if no byte was read.
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

    /// As [`FileData::write_at`], from one buffer after the other. A driver whose calls are round
    /// trips implements it as one.
    ///
    /// # Errors
    /// As [`FileData::write_at`].
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

    /// Changes the size. Data beyond the new size is freed, and reads as zeros if the file grows
    /// again.
    ///
    /// # Errors
    /// Those of the store.
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()>;

    /// Allocates space for the range, so that later writes to it do not fail with ENOSPC.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]. A part that was allocated before the error stays allocated.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Makes a hole. The range reads as zeros, and the pages that lie in it completely are freed.
    ///
    /// # Errors
    /// Those of the store.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// The first offset at or after `offset` that has data, in a file of `size` bytes. None if only
    /// a hole follows.
    fn seek_data(&self, offset: u64, size: u64) -> Option<u64>;

    /// The first offset at or after `offset` that is in a hole. The end of the file counts as a
    /// hole.
    fn seek_hole(&self, offset: u64, size: u64) -> u64;

    /// The ranges that have data, as of the last change, if the driver keeps a record of them.
    ///
    /// If it does, SEEK_DATA and SEEK_HOLE read that record, do not call the driver, and never
    /// wait. Otherwise they call [`FileData::seek_data`] and [`FileData::seek_hole`]. They do not
    /// wait for a thread that changes the file; meanwhile they treat it as a file without holes,
    /// which POSIX allows.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// The occupied space in units of 512 bytes.
    fn blocks(&self) -> u64;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of the store.
    fn sync(&mut self) -> Result<()>;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    /// A driver without storage, for tests that make no files.
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

    /// As [`Nothing`]. It counts the charges.
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
