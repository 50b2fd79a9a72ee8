//! Extended attributes.

use std::sync::{Arc, PoisonError};

use pando_sync::pin;

use crate::{
    At, Context, DentryRef, Error, Result, Timestamp, Vfs,
    inode::Inode,
    trace::TraceOp,
    types::{Access, FileKind, Walk, XattrFlags},
};

/// The longest name of an attribute, with its prefix.
pub const XATTR_NAME_MAX: usize = 255;
/// The longest value.
pub const XATTR_SIZE_MAX: usize = 65536;

/// The name spaces of attributes, and who may do what there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `user.`: by the permission bits, on regular files and directories.
    User,
    /// `trusted.`: the capable only, and the others do not see it.
    Trusted,
    /// `security.`: read by all, written by the capable.
    Security,
    /// No name space that is known.
    Unknown,
}

impl Class {
    const PREFIXES: [(&[u8], Self); 3] =
        [(b"user.", Self::User), (b"trusted.", Self::Trusted), (b"security.", Self::Security)];

    fn of(name: &[u8]) -> Self {
        let found = Self::PREFIXES.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(Self::Unknown, |(_, class)| class)
    }

    /// Whether an inode may have such an attribute and the caller may use it so. In Linux's order: the right to it comes
    /// before the question whether the name makes sense.
    fn check(self, name: &[u8], context: &Context, inode: &Inode, want: Access) -> Result<()> {
        self.permitted(context, inode, want)?;
        if self == Self::Unknown {
            return Err(Error::NotSupported);
        }
        if Self::PREFIXES.iter().any(|(prefix, _)| name == *prefix) { Err(Error::Invalid) } else { Ok(()) }
    }

    fn permitted(self, context: &Context, inode: &Inode, want: Access) -> Result<()> {
        let write = want.contains(Access::WRITE);
        let denied = if write { Error::NotPermitted } else { Error::NoData };
        match self {
            Self::Trusted if !context.capable() => Err(denied),
            Self::Trusted => Ok(()),
            Self::Security if write && !context.capable() => Err(Error::NotPermitted),
            Self::Security => Ok(()),
            Self::Unknown => context.check(inode, &inode.perm(&pin()), want),
            Self::User if !matches!(inode.kind, FileKind::File | FileKind::Directory) => Err(denied),
            Self::User => {
                let perm = inode.perm(&pin());
                if write && inode.is_dir() && perm.mode & crate::create::S_ISVTX != 0 && !context.owns(&perm) {
                    return Err(Error::NotPermitted);
                }
                context.check(inode, &perm, want)
            }
        }
    }
}

/// A name is asked for before anything else.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX { Err(Error::Range) } else { Ok(()) }
}

impl Vfs {
    /// An attribute's value (getxattr).
    ///
    /// # Errors
    /// ENODATA, EOPNOTSUPP for an unknown name space, ERANGE for a name too long, EACCES, and those of the walk.
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
        let dentry = self.lookup_at(context, at, path, flags)?;
        let inode = dentry.0.inode();
        Class::of(name).check(name, context, inode, Access::READ)?;
        let xattrs = inode.xattrs()?.ok_or(Error::NoData)?;
        let map = xattrs.lock().unwrap_or_else(PoisonError::into_inner);
        let value = map.get(name).cloned();
        drop(map);
        value.map(|value| value.to_vec()).ok_or(Error::NoData)
    }

    /// Sets an attribute (setxattr).
    ///
    /// # Errors
    /// EEXIST (CREATE), ENODATA (REPLACE), E2BIG for a value above 64 KiB, ERANGE for a name too long, EOPNOTSUPP,
    /// EPERM, EACCES, and those of the walk.
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
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::ArgListTooLong);
        }
        let dentry = self.lookup_at(context, at, path, flags)?;
        let inode = dentry.0.inode();
        Class::of(name).check(name, context, inode, Access::WRITE)?;
        let mut map = inode.xattrs_or_new()?.lock().unwrap_or_else(PoisonError::into_inner);
        // Both together never succeed, and say what is in the way.
        match map.contains_key(name) {
            true if how.contains(XattrFlags::CREATE) => return Err(Error::Exists),
            false if how.contains(XattrFlags::REPLACE) => return Err(Error::NoData),
            _ => {}
        }
        if let Some(backing) = inode.shard.sb.driver.backing() {
            backing.set_xattr(inode.ino, name, Some(value))?;
        }
        map.insert(name.into(), Arc::from(value));
        drop(map);
        inode.touch(Timestamp::now().0);
        Ok(())
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
        let dentry = self.lookup_at(context, at, path, flags)?;
        let Some(xattrs) = dentry.0.inode().xattrs()? else { return Ok(Vec::new()) };
        let map = xattrs.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = |name: &[u8]| context.capable() || Class::of(name) != Class::Trusted;
        Ok(map.keys().filter(|name| seen(name)).map(|name| name.to_vec()).collect())
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
        let dentry: DentryRef = self.lookup_at(context, at, path, flags)?;
        let inode = dentry.0.inode();
        Class::of(name).check(name, context, inode, Access::WRITE)?;
        let xattrs = inode.xattrs()?.ok_or(Error::NoData)?;
        let mut map = xattrs.lock().unwrap_or_else(PoisonError::into_inner);
        if !map.contains_key(name) {
            return Err(Error::NoData);
        }
        if let Some(backing) = inode.shard.sb.driver.backing() {
            backing.set_xattr(inode.ino, name, None)?;
        }
        map.remove(name);
        drop(map);
        inode.touch(Timestamp::now().0);
        Ok(())
    }
}
