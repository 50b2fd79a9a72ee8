//! A tree that is stored elsewhere, and its calls.

use bitflags::bitflags;

use crate::{
    Error, Result,
    driver::{
        attr::NodeAttr,
        change::{Ack, Change, CommitError},
        feed::Feed,
    },
    types::FileKind,
};

/// A tree that is stored elsewhere. All calls may wait, except for [`Backing::forget`].
///
/// The namespace checks a change against its cache first: it checks the caller's permission, it
/// creates a name only where it knows none, and only one thread at a time removes a name. The
/// backing still decides, since others may change the tree, too. The caller gets the backing's
/// result.
///
/// An answer includes every change that was acknowledged before the call began. ENOENT or ESTALE
/// says that an inode is gone. The functions called `each` call nothing of the driver.
pub trait Backing: Send + Sync {
    /// Whether calls that name one directory may run at the same time: lookup, scan, and changes.
    /// If not, the namespace has a lock for each directory, and makes these calls under it. The
    /// lock of a directory also excludes its own removal.
    fn parallel_directory_operations(&self) -> bool {
        true
    }

    /// Whether the store stamps the times of inodes itself, as the file systems of a kernel do.
    /// Then the namespace stores no times except those that a caller sets, and shows no attributes
    /// of an inode that it has changed before it has read them again. Otherwise the namespace
    /// stamps the times, and stores them.
    fn stamps_times(&self) -> bool {
        false
    }

    /// Whether the tree has POSIX ACLs, and who checks them.
    fn acls(&self) -> AclSupport {
        AclSupport::None
    }

    /// Whether the store keeps the flags of inodes ([`NodeAttr::flags`]). If so, the namespace
    /// enforces them, and otherwise there are none: EOPNOTSUPP.
    fn keeps_flags(&self) -> bool {
        false
    }

    /// The contents of an inode were read, its entries listed, or its target read, and the access
    /// is to be stamped. Called only if the store stamps times, and seldom: by the rules of
    /// relatime, and when the attributes are asked for or the inode leaves the cache. The other
    /// calls that read stamp no access.
    ///
    /// # Errors
    /// Those of the store.
    fn accessed(&self, ino: u64) -> Result<()> {
        let _ = ino;
        Ok(())
    }

    /// Called once, when a tree is made on this store. Returns the attributes of the root
    /// directory. From the start of this call on, the backing reports changes by others to `feed`.
    /// A store without other users may drop it.
    ///
    /// # Errors
    /// Those of the store.
    fn connect(&self, feed: Feed) -> Result<NodeAttr>;

    /// A number that no other store has, except a copy of it, if the numbers of inodes last: later
    /// processes find the inodes by the same numbers ([`Backing::names_of`]). If a crash has undone
    /// the creation of an inode, another one may get its number; their birth times differ. A
    /// server's file handles (`open_by_handle_at`, NFS) then outlive the server.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Calls `each` with names of an inode, each with the number of its directory. A tree uses them
    /// to find an inode by its number if it is not in the cache. One name is enough.
    ///
    /// # Errors
    /// ESTALE if there is no such inode, if it has no name, or if the store knows no way from
    /// inodes to their names. Those of the store.
    fn names_of(&self, ino: u64, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let _ = (ino, each);
        Err(Error::Stale)
    }

    /// Looks up names of a directory, in the order that is best for the store. `each` gets an index
    /// into `names` and the answer for that name. None if it does not exist; the cache then keeps a
    /// negative dentry. The cache keeps nothing of a name whose answer is an error, or that gets no
    /// answer.
    ///
    /// # Errors
    /// Only those of the call as a whole, such as ENOENT if the directory is gone.
    fn lookup(&self, dir: u64, names: &[&[u8]], each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()>;

    /// Looks up names again that the cache has. Each comes with the inode that the cache has for
    /// it. A store may need less to recognize an inode than to find one. Analogous to
    /// `d_revalidate()`.
    ///
    /// # Errors
    /// As [`Backing::lookup`].
    fn revalidate(
        &self,
        dir: u64,
        names: &[(&[u8], u64)],
        each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>),
    ) -> Result<()> {
        let names: Vec<&[u8]> = names.iter().map(|(name, _)| *name).collect();
        self.lookup(dir, &names, each)
    }

    /// Reads the attributes of inodes, in the order that is best for the store. `each` gets an
    /// index into `inos` and the answer for that inode. An inode that gets no answer is not loaded.
    ///
    /// # Errors
    /// Only those of the call as a whole.
    fn getattr(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()>;

    /// Makes a change, as a whole or not at all.
    ///
    /// # Errors
    /// Those that [`Change`] names, and those of the store. A change during which the backing
    /// panics has not been made.
    fn commit(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError>;

    /// The namespace does not use this inode any more. If it has no names, the store may free it.
    /// There is one call for each inode, not one for each look-up. Until the store finds the inode
    /// again, its number is not used: an answer that was given before, or that is given while this
    /// call runs, is dropped and requested again. So the store need not keep anything of the inode.
    /// It may find it by the same number again, or by another.
    ///
    /// Mostly called with only the locks of the inode and of its name held. The thread that drops
    /// the [`Driver`](crate::Driver) calls it, too, and may hold any lock of the namespace. So the
    /// call must not wait, except for a short lock of the driver's own. That thread may be freeing
    /// memory, and must not take a guard of the reclaimer (`pando_sync::pin`). A driver that needs
    /// one asks [`Feed::is_connected`](crate::Feed::is_connected) first.
    fn forget(&self, ino: u64);

    /// Makes an inode durable: its attributes, and the names in a directory. The contents of a file
    /// that was used have their own call ([`FileData::sync`](crate::FileData::sync)), which makes
    /// the attributes durable as well.
    ///
    /// # Errors
    /// Those of the store.
    fn sync_inode(&self, ino: u64) -> Result<()> {
        let _ = ino;
        Ok(())
    }

    /// A file that was open for writing was closed. Others of the same inode may still be open.
    /// Must not wait, as [`Backing::forget`].
    fn writer_closed(&self, ino: u64) {
        let _ = ino;
    }

    /// Calls `each` for the entries of a directory after `cookie` (0 is the start) until it returns
    /// false. The backing chooses the cookies, from 3 on. A cookie never becomes invalid.
    /// An entry that exists during the whole listing is shown once, however many calls the listing
    /// takes. `.` and `..` are not shown: the namespace adds them.
    ///
    /// `wanted` names the optional parts of the records that the reader wants. The backing adds
    /// them where that costs it nothing: where attributes are stored next to the names, for
    /// example. The namespace requests the other parts by [`Backing::lookup`] and
    /// [`Backing::xattrs`], unless the cache has them.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&self, dir: u64, cookie: u64, wanted: RecordMask, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()>;

    /// Reads all extended attributes of inodes, in the order that is best for the store. `each`
    /// gets an index into `inos` and the answer for that inode. No answer is an error.
    ///
    /// # Errors
    /// Only those of the call as a whole.
    fn xattrs(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<Vec<Xattr>>)) -> Result<()>;
}

/// Whether a tree has POSIX ACLs: the extended attributes `system.posix_acl_access` and
/// `system.posix_acl_default`, as Linux encodes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AclSupport {
    /// It has none: EOPNOTSUPP.
    None,
    /// The namespace checks ACLs and permissions, keeps both in step with the mode, and gives new
    /// inodes the default ACL of their directory. The store keeps them beside the other attributes
    /// ([`NodeAttr::acls`]), and they are not among its extended attributes. A tree in memory works
    /// in this way, too.
    Namespace,
    /// The store does this, for example a file system of a kernel. The ACLs are extended
    /// attributes. The namespace lets only the owner change them. Its own checks of permission know
    /// the mode only: a kernel that checks permissions for its callers reads the ACLs.
    Store,
}

/// The name and the value of an extended attribute.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

bitflags! {
    /// The optional parts of a [`Record`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RecordMask: u8 {
        /// [`Record::attr`].
        const ATTR = 1;
        /// [`Record::xattrs`].
        const XATTRS = 2;
    }
}

/// A directory entry of [`Backing::scan`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number in the backing.
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The position after this entry, where a later scan continues.
    pub cookie: u64,
    /// The attributes, if the backing adds them. They are at least as new as the start of the scan.
    pub attr: Option<&'a NodeAttr>,
    /// All extended attributes, if the backing adds them. As old as `attr`, without which they are
    /// not used.
    pub xattrs: Option<&'a [Xattr]>,
}

impl<'a> Record<'a> {
    /// An entry with these values, and without the optional parts.
    #[must_use]
    pub const fn new(name: &'a [u8], ino: u64, kind: FileKind, cookie: u64) -> Self {
        Self { name, ino, kind, cookie, attr: None, xattrs: None }
    }

    /// Adds the attributes.
    #[must_use]
    pub const fn attr(mut self, attr: &'a NodeAttr) -> Self {
        self.attr = Some(attr);
        self
    }

    /// Adds the extended attributes.
    #[must_use]
    pub const fn xattrs(mut self, xattrs: &'a [Xattr]) -> Self {
        self.xattrs = Some(xattrs);
        self
    }
}

/// Calls for one name or inode: batches of one.
impl dyn Backing + '_ {
    /// Looks up one name ([`Backing::lookup`]).
    ///
    /// # Errors
    /// Those of the store.
    pub fn lookup_one(&self, dir: u64, name: &[u8]) -> Result<Option<NodeAttr>> {
        let mut answer = Err(Error::Io);
        self.lookup(dir, &[name], &mut |place, found| {
            if place == 0 {
                answer = found;
            }
        })?;
        answer
    }

    /// Reads the attributes of one inode ([`Backing::getattr`]).
    ///
    /// # Errors
    /// Those of the store.
    pub fn getattr_one(&self, ino: u64) -> Result<NodeAttr> {
        let mut answer = Err(Error::Io);
        self.getattr(&[ino], &mut |place, attr| {
            if place == 0 {
                answer = attr.and_then(|attr| if attr.ino == ino { Ok(attr) } else { Err(Error::Io) });
            }
        })?;
        answer
    }

    /// Reads all extended attributes of one inode ([`Backing::xattrs`]).
    ///
    /// # Errors
    /// Those of the store.
    pub fn xattrs_one(&self, ino: u64) -> Result<Vec<Xattr>> {
        let mut answer = Err(Error::Io);
        self.xattrs(&[ino], &mut |place, xattrs| {
            if place == 0 {
                answer = xattrs;
            }
        })?;
        answer
    }
}
