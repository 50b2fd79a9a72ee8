//! Extended attributes. Analogous to fs/xattr.c.

use pando_sync::{Guard, pin};

use crate::{
    AclSupport, At, AttrMask, Context, DentryRef, Error, InodeFlags, Result, Timestamp, Vfs, XATTR_NAME_MAX,
    XATTR_SIZE_MAX,
    caches::ask::ask_for_xattrs,
    objects::{inode::Inode, notify},
    operations::{
        acl::set_acl,
        attempt::{retry_after_reclaim, run_lockless},
        namei::walk,
        step::Stop,
    },
    trace::TraceOp,
    types::{
        Access, FileKind, Walk, XattrFlags,
        acl::{Acl, AclKind, is_acl},
        stat::S_ISVTX,
        xattr_class::Class,
        xattr_map::XattrMap,
    },
};

/// The maximal size of a list of names, each followed by a NUL.
const XATTR_LIST_MAX: usize = 65536;

impl Class {
    /// Whether an inode may have this attribute, and the caller may use it (analogous to
    /// `xattr_permission()` in fs/xattr.c). As in Linux, the permission is checked before the name.
    pub(crate) fn check(self, name: &[u8], context: &Context, inode: &Inode, want: Access) -> Result<()> {
        if self == Self::System && is_acl(name) && inode.shard.sb.acls != AclSupport::None {
            return may_use_acl(context, inode, want);
        }
        self.permitted(context, inode, want)?;
        if matches!(self, Self::System | Self::Unknown) {
            return Err(Error::NotSupported);
        }
        if Self::PREFIXES.iter().any(|(prefix, _)| name == *prefix) { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Whether lists of names show an attribute to this caller. A kernel that checks permissions
    /// checks them for reads of a value, and not for lists of names.
    pub(crate) fn is_shown_to(self, context: &Context) -> bool {
        context.cred.capable || self != Self::Trusted
    }

    fn permitted(self, context: &Context, inode: &Inode, want: Access) -> Result<()> {
        let write = want.contains(Access::WRITE);
        if write {
            context.writable()?;
            inode.permissions(&pin()).expect_without(InodeFlags::PROTECTING)?;
        }
        let denied = if write { Error::NotPermitted } else { Error::NoData };
        match self {
            Self::Trusted if !context.capable() => Err(denied),
            Self::Trusted => Ok(()),
            Self::Security if write && !context.capable() => Err(Error::NotPermitted),
            Self::Security | Self::System => Ok(()),
            Self::Unknown => context.check(inode, want, &pin()),
            Self::User if !matches!(inode.kind, FileKind::File | FileKind::Directory) => Err(denied),
            Self::User => {
                let guard = pin();
                if write && inode.is_dir() {
                    let perm = inode.perm(&guard);
                    if perm.mode & S_ISVTX != 0 && !context.owns(&perm) {
                        return Err(Error::NotPermitted);
                    }
                }
                context.check(inode, want, &guard)
            }
        }
    }
}

/// Sets or removes an ACL that the namespace checks.
fn change_acl(context: &Context, dentry: &DentryRef, kind: AclKind, value: Option<&[u8]>) -> Result<()> {
    retry_after_reclaim(|| set_acl(context, dentry.0.inode(), kind, value))?;
    notify::attr_changed(dentry.0.as_shared());
    Ok(())
}

/// Whether the caller may read or write the ACLs of an inode (analogous to `vfs_set_acl()` in
/// fs/posix_acl.c).
#[inline(never)]
fn may_use_acl(context: &Context, inode: &Inode, want: Access) -> Result<()> {
    if inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported);
    }
    if !want.contains(Access::WRITE) {
        return Ok(());
    }
    context.writable()?;
    inode.permissions(&pin()).expect_without(InodeFlags::PROTECTING)?;
    if context.owns(&inode.perm(&pin())) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// The length of a name is checked before anything else.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX { Err(Error::Range) } else { Ok(()) }
}

impl Vfs {
    /// The value of an attribute (getxattr).
    ///
    /// # Errors
    /// ENODATA, EOPNOTSUPP for an unknown namespace, ERANGE for a name that is too long, EACCES,
    /// and those of the walk.
    pub fn getxattr(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        flags: Walk,
    ) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        self.traced(TraceOp::Getxattr, (context, at, path), || self.getxattr_at(context, at, path, name, flags))
    }

    fn getxattr_at(&self, context: &Context, at: At<'_>, path: &[u8], name: &[u8], flags: Walk) -> Result<Vec<u8>> {
        check_name(name)?;
        if let Some(kind) = AclKind::of(name)
            && let Some(found) = self.acl_at(context, (at, path), (name, kind), flags)?
        {
            return found.ok_or(Error::NoData);
        }
        let check = |inode: &Inode| Class::of(name).check(name, context, inode, Access::READ);
        let value = |_: &Inode, map: Option<&XattrMap>, _: &Guard| map?.get(name).map(<[u8]>::to_vec);
        self.with_xattrs(context, (at, path), flags, check, value)?.ok_or(Error::NoData)
    }

    /// Reads the extended attributes of a file without a lock or a count. `read` gets none if the
    /// file has none. If they are not cached and `check` permits it, the backing is asked first.
    fn with_xattrs<T>(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        flags: Walk,
        check: impl Fn(&Inode) -> Result<()>,
        read: impl Fn(&Inode, Option<&XattrMap>, &Guard) -> T,
    ) -> Result<T> {
        loop {
            let seen = run_lockless(self.namespace(), |guard| {
                let dentry = walk(self.namespace(), context, &at, path, flags, guard)?;
                let inode = dentry.to_ref().inode();
                check(inode)?;
                match inode.cached_xattrs(guard) {
                    Some(map) => Ok(Ok(read(inode, map, guard))),
                    None => Ok(Err(dentry.get().map(DentryRef).ok_or(Stop::Again)?)),
                }
            })?;
            match seen {
                Ok(found) => return Ok(found),
                Err(unknown) => ask_for_xattrs(&unknown.0)?,
            }
        }
    }

    /// Sets an attribute (setxattr).
    ///
    /// # Errors
    /// EEXIST (CREATE), ENODATA (REPLACE), E2BIG for a value above 64 KiB, ERANGE for a name that
    /// is too long, EOPNOTSUPP, EPERM, EACCES, ENOSPC (also for names of more than 64 KiB in all),
    /// and those of the walk.
    #[expect(clippy::too_many_arguments, reason = "the arguments of setxattrat")]
    pub fn setxattr(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        how: XattrFlags,
        flags: Walk,
    ) -> Result<()> {
        let (path, name, value) = (path.as_ref(), name.as_ref(), value.as_ref());
        self.traced(TraceOp::Setxattr, (context, at, path), || {
            self.setxattr_at(context, (at, path), (name, value), how, flags)
        })
    }

    fn setxattr_at(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        (name, value): (&[u8], &[u8]),
        how: XattrFlags,
        flags: Walk,
    ) -> Result<()> {
        if !XattrFlags::all().contains(how) {
            return Err(Error::Invalid);
        }
        check_name(name)?;
        // No attribute has such a name, so only this operation needs to check.
        if name.contains(&0) {
            return Err(Error::Invalid);
        }
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::ArgListTooLong);
        }
        let kind = AclKind::of(name);
        // As Linux does since 6.2.
        if kind.is_some() && value.is_empty() {
            return self.removexattr_at(context, at, path, name, flags);
        }
        if let Some(kind) = kind
            && let Some(dentry) = self.lookup_acl_holder(context, (at, path), flags)?
        {
            return change_acl(context, &dentry, kind, Some(value));
        }
        // An ACL is set whether there is one or not.
        let how = if kind.is_some() { XattrFlags::empty() } else { how };
        let edit = |map: &mut XattrMap| {
            // CREATE and REPLACE together never succeed. The error says which one fails.
            match map.get(name).is_some() {
                true if how.contains(XattrFlags::CREATE) => return Err(Error::Exists),
                false if how.contains(XattrFlags::REPLACE) => return Err(Error::NoData),
                true => {}
                // Longer names could not be listed.
                false if map.names().map(|name| name.len() + 1).sum::<usize>() + name.len() >= XATTR_LIST_MAX => {
                    return Err(Error::NoSpace);
                }
                false => {}
            }
            Ok(map.insert(name, value))
        };
        retry_after_reclaim(|| self.change_xattrs(context, (at, path), flags, (name, Some(value)), edit))
    }

    /// Changes the extended attributes of a file by `edit`, which may run more than once. A backing
    /// is told that the attribute now has this value, or that it is removed.
    fn change_xattrs(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        flags: Walk,
        (name, value): (&[u8], Option<&[u8]>),
        edit: impl Fn(&mut XattrMap) -> Result<Option<usize>>,
    ) -> Result<()> {
        let backed = run_lockless(self.namespace(), |guard| {
            let dentry = walk(self.namespace(), context, &at, path, flags, guard)?;
            let inode = dentry.to_ref().inode();
            // A malformed ACL is refused before it matters what the inode is.
            value.filter(|_| is_acl(name)).map(Acl::parse).transpose()?;
            Class::of(name).check(name, context, inode, Access::WRITE)?;
            if inode.shard.sb.driver.backing().is_some() {
                return Ok(Some(dentry.get().map(DentryRef).ok_or(Stop::Again)?));
            }
            inode.change_xattrs((name, value), &edit, guard)?;
            inode.touch(Timestamp::now().0);
            notify::attr_changed(dentry);
            Ok(None)
        })?;
        let Some(dentry) = backed else { return Ok(()) };
        let inode = dentry.0.inode();
        inode.shard.sb.make_room(1);
        let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
        inode.change_stored_xattrs(&*inode.load_xattrs(backing)?, |map| {
            // The flags may have changed while the attributes were loaded.
            inode.permissions(&pin()).expect_without(InodeFlags::PROTECTING)?;
            edit(map)?;
            inode.store_xattr(backing, name, value)?;
            // Before another thread sees the attribute. The stamp follows.
            inode.set_dirty(AttrMask::CTIME);
            if is_acl(name) {
                // The store has changed the mode, too. If the mode says all that the ACL does, the
                // store has kept only the mode.
                inode.set_reported();
            }
            Ok(())
        })?;
        inode.touch(Timestamp::now().0);
        notify::attr_changed(dentry.0.as_shared());
        Ok(())
    }

    /// An ACL of the file at a path. The outer none: the namespace does not check its ACLs.
    #[cold]
    fn acl_at(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        (name, kind): (&[u8], AclKind),
        flags: Walk,
    ) -> Result<Option<Option<Vec<u8>>>> {
        run_lockless(self.namespace(), |guard| {
            let dentry = walk(self.namespace(), context, &at, path, flags, guard)?;
            let inode = dentry.to_ref().inode();
            if inode.shard.sb.acls != AclSupport::Namespace {
                return Ok(None);
            }
            Class::System.check(name, context, inode, Access::READ)?;
            Ok(Some(inode.acl(kind, guard)))
        })
    }

    /// The file at a path, if the namespace checks its ACLs.
    #[cold]
    fn lookup_acl_holder(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        flags: Walk,
    ) -> Result<Option<DentryRef>> {
        let dentry = self.lookup_at(context, at, path, flags)?;
        let is_here = dentry.0.inode().shard.sb.acls == AclSupport::Namespace;
        Ok(is_here.then_some(dentry))
    }

    /// Whether this tree has POSIX ACLs, and who checks them.
    #[must_use]
    pub fn acls(&self) -> AclSupport {
        self.root_sb().acls
    }

    /// The names of all attributes that the caller may see (listxattr).
    ///
    /// # Errors
    /// Those of the walk.
    pub fn listxattr(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        flags: Walk,
    ) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        self.traced(TraceOp::Listxattr, (context, at, path), || self.listxattr_at(context, at, path, flags))
    }

    fn listxattr_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: Walk) -> Result<Vec<Vec<u8>>> {
        let names = |inode: &Inode, map: Option<&XattrMap>, guard: &Guard| {
            let acls = inode.permissions(guard).acls.into_iter().flat_map(|acls| acls.iter());
            let names = map.into_iter().flat_map(XattrMap::names).filter(|name| Class::of(name).is_shown_to(context));
            acls.map(|(kind, _)| kind.name().as_bytes()).chain(names).map(<[u8]>::to_vec).collect()
        };
        self.with_xattrs(context, (at, path), flags, |_| Ok(()), names)
    }

    /// Removes an attribute (removexattr).
    ///
    /// # Errors
    /// ENODATA, EOPNOTSUPP, EPERM, EACCES, ERANGE, and those of the walk.
    pub fn removexattr(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        flags: Walk,
    ) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref());
        self.traced(TraceOp::Removexattr, (context, at, path), || self.removexattr_at(context, at, path, name, flags))
    }

    fn removexattr_at(&self, context: &Context, at: At<'_>, path: &[u8], name: &[u8], flags: Walk) -> Result<()> {
        check_name(name)?;
        if let Some(kind) = AclKind::of(name)
            && let Some(dentry) = self.lookup_acl_holder(context, (at, path), flags)?
        {
            return change_acl(context, &dentry, kind, None);
        }
        let edit = |map: &mut XattrMap| match map.remove(name) {
            // Not an error if there is no ACL. The backing decides.
            None if is_acl(name) => Ok(None),
            removed => removed.map(Some).ok_or(Error::NoData),
        };
        self.change_xattrs(context, (at, path), flags, (name, None), edit)
    }
}
