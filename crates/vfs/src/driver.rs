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
//! A call of a backing may wait, except for [`Backing::forget`]. The calling thread holds no
//! reclamation guard. It may hold these locks, and other threads wait for them until the call
//! returns:
//!
//! | call | locks |
//! | --- | --- |
//! | lookup | mostly none; sometimes the name, the inode, or the topology lock |
//! | lookup, scan without parallel operations | the directory as well |
//! | attributes that others have changed | the lock of the inode, and the data lock of a file |
//! | extended attributes | the lock of the extended attributes |
//! | contents | the data lock of the file |
//! | change, and questions about its unknown outcome | those of the operation: see the crate page |
//!
//! So a call must not wait for another operation of the namespace.

mod attr;
mod backing;
mod change;
mod data;
mod feed;

use std::sync::Arc;

pub use self::{
    attr::{AttrMask, NodeAttr},
    backing::{AclSupport, Backing, Record, RecordMask, Xattr},
    change::{Ack, Change, CommitError},
    data::{FileData, write_zeros},
    feed::{ChangeByOthers, Feed, Subscriber},
};
use crate::{Result, types::StatFs};
pub(crate) use feed::ReportedTo;

/// A driver: the storage of one superblock.
///
/// A driver knows nothing of paths, open files or other drivers. The namespace calls it with inode
/// numbers and names. It makes the changes of one name one after the other.
///
/// An [`Arc`] of a driver is a driver, too. A caller keeps a clone to read its statistics, or to
/// share its limits between several trees.
///
/// A driver is dropped after its tree was unmounted and the last open file of it was closed. The
/// thread that frees that file also drops the driver. It may hold any lock of the namespace. So the
/// drop must not wait, nor must the [`Backing::forget`] that may come before it.
pub trait Driver: Send + Sync + 'static {
    /// The total and the free space and inodes.
    ///
    /// # Errors
    /// Those of the store.
    fn statfs(&self) -> Result<StatFs>;

    /// Accounts for an object before it is made. Never waits.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if the limit was reached at some instant of the call. In a tree
    /// with a [`Backing`], a look-up that needs the inode fails then.
    fn charge(&self, what: Charge) -> Result<()>;

    /// Takes back a [`Driver::charge`]: the object was freed, or not made after all. Never waits.
    fn release(&self, what: Charge);

    /// The contents of a regular file. Called when they are first needed. Never waits.
    fn data(&self, ino: u64) -> Box<dyn FileData>;

    /// Makes all changes and writes durable that were acknowledged before.
    ///
    /// # Errors
    /// Those of the store.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Stores nothing any more: what is not durable is lost, as if the machine had crashed. A tree
    /// in memory has nothing to do.
    fn shut_down(&self) {}

    /// The backing, if the tree is not the cache itself.
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
}

/// Shared with other owners, who read its statistics, for instance.
impl<D: Driver + ?Sized> Driver for Arc<D> {
    fn statfs(&self) -> Result<StatFs> {
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
    fn shut_down(&self) {
        (**self).shut_down();
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
    /// An extended attribute or an ACL; the size of its name and value in bytes.
    Xattr(usize),
    /// The target of a symbolic link; its size in bytes.
    Target(usize),
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    /// A driver without storage, for tests that make no files.
    pub(crate) struct Nothing;

    impl Driver for Nothing {
        fn statfs(&self) -> Result<StatFs> {
            Ok(StatFs::new(4096))
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
        fn statfs(&self) -> Result<StatFs> {
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
