//! Extended attributes.

use std::sync::Arc;

use pando_sync::pin;

use crate::{
    At, Context, DentryRef, Error, Result, Timestamp, Vfs, XATTR_NAME_MAX, XATTR_SIZE_MAX,
    objects::{inode::Inode, xattr_map::XattrMap},
    operations::{
        attempt::{in_need_of_space, look},
        namei::walk,
        step::Stop,
    },
    trace::TraceOp,
    types::{Access, FileKind, Walk, XattrFlags, stat::S_ISVTX},
};

/// The longest list of names, with a NUL behind each.
const XATTR_LIST_MAX: usize = 65536;

/// The name spaces of attributes, and who may do what there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `user.`: by the permission bits, on regular files and directories.
    User,
    /// `trusted.`: the capable only, and the others do not see it.
    Trusted,
    /// `security.`: read by all, written by the capable.
    Security,
    /// `system.`: Linux's own (ACLs). Nobody has any, whatever the permission bits say.
    System,
    /// No name space that is known.
    Unknown,
}

impl Class {
    const PREFIXES: [(&[u8], Self); 4] = [
        (b"user.", Self::User),
        (b"trusted.", Self::Trusted),
        (b"security.", Self::Security),
        (b"system.", Self::System),
    ];

    fn of(name: &[u8]) -> Self {
        let found = Self::PREFIXES.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(Self::Unknown, |(_, class)| class)
    }

    /// Whether an inode may have such an attribute and the caller may use it so. In Linux's order: the right to it comes
    /// before the question whether the name makes sense.
    fn check(self, name: &[u8], context: &Context, inode: &Inode, want: Access) -> Result<()> {
        self.permitted(context, inode, want)?;
        if matches!(self, Self::System | Self::Unknown) {
            return Err(Error::NotSupported);
        }
        if Self::PREFIXES.iter().any(|(prefix, _)| name == *prefix) { Err(Error::Invalid) } else { Ok(()) }
    }

    fn permitted(self, context: &Context, inode: &Inode, want: Access) -> Result<()> {
        let write = want.contains(Access::WRITE);
        if write {
            context.writable()?;
        }
        let denied = if write { Error::NotPermitted } else { Error::NoData };
        match self {
            Self::Trusted if !context.capable() => Err(denied),
            Self::Trusted => Ok(()),
            Self::Security if write && !context.capable() => Err(Error::NotPermitted),
            Self::Security | Self::System => Ok(()),
            Self::Unknown => context.check(inode, &inode.perm(&pin()), want),
            Self::User if !matches!(inode.kind, FileKind::File | FileKind::Directory) => Err(denied),
            Self::User => {
                let perm = inode.perm(&pin());
                if write && inode.is_dir() && perm.mode & S_ISVTX != 0 && !context.owns(&perm) {
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
        let check = |inode: &Inode| Class::of(name).check(name, context, inode, Access::READ);
        let value = |map: &XattrMap| map.get(name).map(|value| value.to_vec());
        self.with_xattrs(context, (at, path), flags, check, value)?.flatten().ok_or(Error::NoData)
    }

    /// Looks at the extended attributes of a file without a lock or a count; none if it has none. A backing is asked first if
    /// they are not cached, once `check` allows it.
    fn with_xattrs<T>(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        flags: Walk,
        check: impl Fn(&Inode) -> Result<()>,
        look_at: impl Fn(&XattrMap) -> T,
    ) -> Result<Option<T>> {
        loop {
            let seen = look(self.name_space(), |guard| {
                let dentry = walk(self.name_space(), context, &at, path, flags, guard)?;
                let inode = dentry.to_ref().inode();
                check(inode)?;
                match inode.cached_xattrs(guard) {
                    Some(map) => Ok(Ok(map.map(&look_at))),
                    None => Ok(Err(dentry.get().map(DentryRef).ok_or(Stop::Again)?)),
                }
            })?;
            match seen {
                Ok(found) => return Ok(found),
                Err(unknown) => {
                    let inode = unknown.0.inode();
                    let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
                    drop(inode.load_xattrs(backing)?);
                }
            }
        }
    }

    /// Sets an attribute (setxattr).
    ///
    /// # Errors
    /// EEXIST (CREATE), ENODATA (REPLACE), E2BIG for a value above 64 KiB, ERANGE for a name too long, EOPNOTSUPP,
    /// EPERM, EACCES, ENOSPC (also for names of more than 64 KiB in all), and those of the walk.
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
        // None is there, so that the others need not look for it.
        if name.contains(&0) {
            return Err(Error::Invalid);
        }
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::ArgListTooLong);
        }
        let edit = |map: &mut XattrMap| {
            // Both together never succeed, and say what is in the way.
            match map.contains_key(name) {
                true if how.contains(XattrFlags::CREATE) => return Err(Error::Exists),
                false if how.contains(XattrFlags::REPLACE) => return Err(Error::NoData),
                true => {}
                // More could not be listed.
                false if map.keys().map(|name| name.len() + 1).sum::<usize>() + name.len() >= XATTR_LIST_MAX => {
                    return Err(Error::NoSpace);
                }
                false => {}
            }
            Ok(map.insert(Arc::from(name), Arc::from(value)))
        };
        in_need_of_space(|| self.change_xattrs(context, (at, path), flags, (name, Some(value)), edit))
    }

    /// Changes the extended attributes of a file by `edit`, which may run more than once, and tells the backing, if there is
    /// one, that the attribute now has this value or is not there.
    fn change_xattrs(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        flags: Walk,
        (name, value): (&[u8], Option<&[u8]>),
        edit: impl Fn(&mut XattrMap) -> Result<Option<Arc<[u8]>>>,
    ) -> Result<()> {
        let told = look(self.name_space(), |guard| {
            let dentry = walk(self.name_space(), context, &at, path, flags, guard)?;
            let inode = dentry.to_ref().inode();
            Class::of(name).check(name, context, inode, Access::WRITE)?;
            if inode.shard.sb.driver.backing().is_some() {
                return Ok(Some(dentry.get().map(DentryRef).ok_or(Stop::Again)?));
            }
            inode.change_xattrs((name, value), &edit, guard)?;
            inode.touch(Timestamp::now().0);
            Ok(None)
        })?;
        let Some(dentry) = told else { return Ok(()) };
        let inode = dentry.0.inode();
        let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
        inode.load_xattrs(backing)?.change(|map| {
            edit(map)?;
            backing.set_xattr(inode.ino, name, value)
        })?;
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
        // A kernel that checks permissions checks who reads one, and not who sees its name.
        let seen = |name: &[u8]| context.cred.capable || Class::of(name) != Class::Trusted;
        let names = |map: &XattrMap| map.keys().filter(|name| seen(name)).map(|name| name.to_vec()).collect();
        Ok(self.with_xattrs(context, (at, path), flags, |_| Ok(()), names)?.unwrap_or_default())
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
        let edit = |map: &mut XattrMap| map.remove(name).map(Some).ok_or(Error::NoData);
        self.change_xattrs(context, (at, path), flags, (name, None), edit)
    }
}
