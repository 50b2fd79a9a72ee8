//! xgetdents: names, attributes and extended attributes of many entries in one call.
//!
//! 1. *A record is one snapshot of its inode.* The extended attributes are an immutable map. The
//!    attributes are read while the inode has this map, and are read again if it has another one
//!    afterwards. So the record shows a state in which the inode was.
//! 2. *No entry is lost.* One that cannot be read has its own errno. A value that does not fit into
//!    the buffer has its size and its own errno.
//! 3. *Records are written to the buffer of the caller, in place.* A tree in memory allocates
//!    nothing, takes no lock and counts no reference.
//!
//! After the system call of Abhijith Das, "readdirplus-type system call" (linux-fsdevel, 2012 to
//! 2014).

use std::sync::Arc;

use pando_records::{Attr, BulkXattr, Entry, Mask, Packer, Pushed, XattrValue};
use pando_sync::{Guard, Shared, pin};

use crate::{
    Context, Error, File, Result,
    objects::{
        dentry::Dentry,
        inode::{Body, Inode},
        notify,
        stat::stat_of,
    },
    operations::{
        ahead::Ahead,
        batch::{AFTER_DOT, AFTER_DOTDOT, BATCH},
        namei::{cross, dotdot},
        remote,
    },
    trace::TraceOp,
    types::{Access, FileKind, Next, Packed, acl::Acls, xattr_class::Class, xattr_map::XattrMap},
};

/// The parts that a tree has. Where a link leads is for a walk to find out.
pub(crate) const PARTS: Mask = Mask::STAT.union(Mask::XATTR_NAMES).union(Mask::XATTR_VALUES).union(Mask::LINK_TARGETS);

/// The parts of each entry that the caller wants.
pub(crate) struct Wanted<'a> {
    pub context: &'a Context,
    pub mask: Mask,
    /// Whether the caller may search the directory. If not, it gets names only.
    pub may_search: bool,
}

/// An entry as readdir returns it. Name, inode number and kind are those of the directory that is
/// mounted on, as getdents returns them.
pub(crate) struct Listed<'a> {
    pub name: &'a [u8],
    pub ino: u64,
    pub kind: FileKind,
    pub cookie: u64,
    /// Why the extended attributes could not be loaded.
    pub xattr_error: Option<Error>,
}

/// The buffer, and the cookie after its last record.
pub(crate) struct Listing<'b> {
    pub packer: Packer<'b>,
    pub cookie: u64,
}

impl File {
    /// Returns the entries after `cookie` with all that `mask` names, as records in `buffer`
    /// ([`records::Unpacked`](crate::records::Unpacked) reads them). It stops when the buffer is
    /// full. With cookie 0 it starts with `.` and `..`. [`Mask::level`] has the levels of the
    /// original call.
    ///
    /// The order and the cookies are those of [`File::readdir`]. A record shows one state in which
    /// its inode was, to the extent that [`Stat`](crate::Stat) documents. Links are not followed,
    /// and reading a link's target is no access.
    ///
    /// The records carry the errors of single entries: EACCES if the caller may not search the
    /// directory, ENOENT for an entry that disappeared meanwhile, and those of the driver. A value
    /// of an extended attribute carries its own: EACCES, and ERANGE if it does not fit into the
    /// whole buffer. It then has its size. A caller that may not see an attribute's name does not
    /// get it.
    ///
    /// ```
    /// # use pando_memfs::{MemFs, MemOptions};
    /// use pando_vfs::{At, Context, Credentials, FileKind, Next, OpenFlags, Vfs};
    /// use pando_vfs::records::{Mask, Unpacked};
    ///
    /// # let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
    /// # let context = Context::new(&vfs, Credentials::root());
    /// # let new = OpenFlags::CREAT | OpenFlags::RDWR;
    /// # vfs.open(&context, At::Cwd, "/aspen", new, 0o644)?.write(b"bark")?;
    /// let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0)?;
    /// let (mut buffer, mut cookie, mut total) = (vec![0; 65536], 0, 0);
    /// loop {
    ///     let packed = dir.xgetdents(&context, cookie, Mask::STAT, &mut buffer)?;
    ///     for record in Unpacked::new(&buffer[..packed.bytes]) {
    ///         if record.kind() == Some(FileKind::File) {
    ///             total += record.attr().map_or(0, |attr| attr.size);
    ///         }
    ///     }
    ///     match packed.next {
    ///         Next::End => break,
    ///         Next::More => cookie = packed.cookie,
    ///         Next::Needs(bytes) => buffer.resize(bytes, 0),
    ///     }
    /// }
    /// assert_eq!(total, 4);
    /// # Ok::<(), pando_vfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL for a cookie beyond 2^63 - 1 and for parts that a tree does not have
    /// ([`Mask::LINK_ENDS`], [`Mask::CAPABILITIES`]); EBADF if not open for reading; ENOTDIR;
    /// ENOENT if the directory was removed; those of the driver.
    pub fn xgetdents(&self, context: &Context, cookie: u64, mask: Mask, buffer: &mut [u8]) -> Result<Packed> {
        self.traced(TraceOp::Readdir, || {
            self.expect_listable(cookie)?;
            if !PARTS.contains(mask) {
                return Err(Error::Invalid);
            }
            let mut to = Listing { packer: Packer::new(buffer), cookie };
            let next = loop {
                match self.pack(context, mask, &mut to) {
                    Ok(None) => {}
                    Ok(Some(next)) => break next,
                    Err(error) if to.packer.entries() == 0 => return Err(error),
                    // The next call returns the error.
                    Err(_) => break Next::More,
                }
            };
            notify::accessed(self.dentry().0.as_shared());
            Ok(Packed { bytes: to.packer.used(), entries: to.packer.entries(), cookie: to.cookie, next })
        })
    }

    /// Packs the next entries, under one guard. None if there may be room for more.
    fn pack(&self, context: &Context, mask: Mask, to: &mut Listing<'_>) -> Result<Option<Next>> {
        let guard = pin();
        let (inode, directory) = self.listed(to.cookie, &guard)?;
        let may_search = context.check(inode, Access::EXEC, &guard).is_ok();
        let wanted = Wanted { context, mask, may_search };
        if directory.backed.is_some() {
            drop(guard);
            return remote::xgetdents::pack(self, &wanted, to);
        }
        let this = self.dentry().0.as_shared();
        for (name, cookie) in [(&b"."[..], AFTER_DOT), (b"..", AFTER_DOTDOT)] {
            if to.cookie < cookie {
                let [listed, found] = dots(context, this, cookie, &guard);
                let (ino, kind) = (listed.to_ref().inode().ino, listed.to_ref().inode().kind);
                let listed = Listed { name, ino, kind, cookie, xattr_error: None };
                if let Some(next) = to.push(&wanted, &listed, Ok(found.to_ref().inode()), &guard) {
                    return Ok(Some(next));
                }
            }
        }
        for (passed, dirent) in Ahead::new(directory.dirents_after(to.cookie, &guard), mask, &guard).enumerate() {
            if passed == BATCH {
                return Ok(None);
            }
            let dirent = dirent.to_ref();
            let Some(dentry) = dirent.value.load(&guard) else {
                // It is being removed. Passed, so that many of them do not stop the listing.
                to.cookie = dirent.position();
                continue;
            };
            let (child, found) = (dentry.to_ref().inode(), cross(dentry, &guard).to_ref().inode());
            let (name, ino, kind) = (dirent.name.as_bytes(), child.ino, child.kind);
            let listed = Listed { name, ino, kind, cookie: dirent.position(), xattr_error: None };
            if let Some(next) = to.push(&wanted, &listed, Ok(found), &guard) {
                return Ok(Some(next));
            }
        }
        Ok(Some(Next::End))
    }
}

/// The directory that `.` or `..` lists, and the one that has the attributes: `..` does not lead
/// out of the caller's root.
pub(crate) fn dots<'g>(
    context: &'g Context,
    this: Shared<'g, Dentry>,
    cookie: u64,
    guard: &'g Guard,
) -> [Shared<'g, Dentry>; 2] {
    let up = |root| if cookie == AFTER_DOT { this } else { dotdot(this, root, guard) };
    [up(None), up(Some(context.root_dentry()))]
}

impl Listing<'_> {
    /// Adds the record of an entry. Returns what to do if it does not fit.
    pub(crate) fn push(
        &mut self,
        wanted: &Wanted<'_>,
        listed: &Listed<'_>,
        found: Result<&Inode>,
        guard: &Guard,
    ) -> Option<Next> {
        let mut entry = Entry::new(listed.name, Some(listed.kind), listed.ino, listed.cookie);
        entry.xattr_errno = listed.xattr_error.map_or(0, Error::errno);
        let pushed = match found {
            _ if wanted.mask.is_empty() => self.packer.push(&entry, [].into_iter()),
            Ok(inode) if wanted.may_search => push_whole(&mut self.packer, wanted, &entry, inode, guard),
            found => {
                entry.errno = found.err().unwrap_or(Error::Access).errno();
                self.packer.push(&entry, [].into_iter())
            }
        };
        match pushed {
            Pushed::Packed => {
                self.cookie = listed.cookie;
                None
            }
            Pushed::Full => Some(Next::More),
            Pushed::Needs(bytes) => Some(Next::Needs(bytes)),
        }
    }
}

/// Adds a record with everything that is wanted of its inode.
fn push_whole(packer: &mut Packer<'_>, wanted: &Wanted<'_>, entry: &Entry<'_>, inode: &Inode, guard: &Guard) -> Pushed {
    let target = match &inode.body {
        Body::Symlink(target, _) if wanted.mask.contains(Mask::LINK_TARGETS) => Some(&**target),
        _ => None,
    };
    let attr = || wanted.mask.contains(Mask::STAT).then(|| Attr::from(&stat_of(inode, guard)));
    if !wanted.mask.wants_xattrs() {
        let attr = attr();
        return packer.push(&Entry { attr: attr.as_ref(), target, ..*entry }, [].into_iter());
    }
    loop {
        let (xattrs, acls) = (inode.cached_xattrs(guard), inode.permissions(guard).acls);
        let attr = attr();
        // While the guard exists, no other map can have the address of this one, and no other ACLs
        // that of these.
        let address = |xattrs: Option<Option<&XattrMap>>| xattrs.map(|map| map.map(std::ptr::from_ref));
        let acls_now = inode.permissions(guard).acls;
        if address(xattrs) != address(inode.cached_xattrs(guard)) || acls.map(Arc::as_ptr) != acls_now.map(Arc::as_ptr)
        {
            continue;
        }
        let entry = Entry { attr: attr.as_ref(), target, ..*entry };
        return match (xattrs, acls) {
            // There are none, or they could not be loaded. Then the entry has the error.
            (None, _) | (Some(None), None) => packer.push(&entry, [].into_iter()),
            (Some(map), acls) => Shown::new(wanted, inode, map, acls.map(|acls| &**acls)).push(packer, &entry),
        };
    }
}

/// The extended attributes of an inode that a caller may see.
struct Shown<'a> {
    wanted: &'a Wanted<'a>,
    inode: &'a Inode,
    map: Option<&'a XattrMap>,
    acls: Option<&'a Acls>,
    /// Whether the caller may read those of the namespace `user.`, which depends on the inode only.
    user: Result<()>,
}

impl<'a> Shown<'a> {
    fn new(wanted: &'a Wanted<'a>, inode: &'a Inode, map: Option<&'a XattrMap>, acls: Option<&'a Acls>) -> Self {
        let user = if wanted.mask.contains(Mask::XATTR_VALUES) {
            Class::User.check(b"user.*", wanted.context, inode, Access::READ)
        } else {
            Ok(())
        };
        Self { wanted, inode, map, acls, user }
    }

    /// Adds a record with them.
    fn push(&self, packer: &mut Packer<'_>, entry: &Entry<'_>) -> Pushed {
        let wants_values = self.wanted.mask.contains(Mask::XATTR_VALUES);
        let is_readable = |class: Class| class.is_shown_to(self.wanted.context) && self.may_read(class, b"").is_ok();
        let whole = self.map.filter(|_| wants_values && self.acls.is_none());
        match whole.and_then(|map| map.as_list(is_readable)) {
            Some(all) => packer.push_list(entry, all),
            None => packer.push(entry, self.iter()),
        }
    }

    fn iter(&self) -> impl Iterator<Item = BulkXattr<'_>> + Clone {
        let acls = self.acls.into_iter().flat_map(Acls::iter);
        let acls = acls.map(|(kind, acl)| (kind.name().as_bytes(), acl.as_xattr()));
        acls.chain(self.map.into_iter().flat_map(XattrMap::iter)).filter_map(|(name, value)| {
            let class = Class::of(name);
            class.is_shown_to(self.wanted.context).then(|| BulkXattr { name, value: self.value(class, name, value) })
        })
    }

    fn value<'v>(&self, class: Class, name: &[u8], value: &'v [u8]) -> XattrValue<'v> {
        if !self.wanted.mask.contains(Mask::XATTR_VALUES) {
            return XattrValue::NotRead;
        }
        match self.may_read(class, name) {
            Ok(()) => XattrValue::Bytes(value),
            Err(error) => XattrValue::Errno(error.errno()),
        }
    }

    fn may_read(&self, class: Class, name: &[u8]) -> Result<()> {
        match class {
            Class::User => self.user,
            class => class.check(name, self.wanted.context, self.inode, Access::READ),
        }
    }
}
