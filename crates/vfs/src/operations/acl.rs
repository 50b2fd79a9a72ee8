//! The POSIX ACLs that the namespace checks. Analogous to `vfs_set_acl()` in
//! fs/posix_acl.c.

use std::cell::Cell;

use pando_sync::{Guard, pin};

use crate::{
    AttrMask, Context, Error, FileKind, InodeFlags, Result,
    objects::{inode::Inode, permissions::cost_of_acl},
    operations::{
        attr::{change_permissions, keeps_setgid},
        make::ChargeGuard,
    },
    types::{
        acl::{Acl, AclKind},
        cred::Permissions,
        stat::S_ISGID,
    },
};

impl Inode {
    /// An ACL, as the value of the extended attribute.
    pub(crate) fn acl(&self, kind: AclKind, guard: &Guard) -> Option<Vec<u8>> {
        Some(self.permissions(guard).acls?.get(kind)?.as_xattr().to_vec())
    }
}

/// Sets an ACL to the value of the extended attribute, or removes it. The access ACL also sets the
/// mode; one that says no more than the mode is not kept. The caller holds no guard and no lock.
///
/// # Errors
/// EROFS, EINVAL, EOPNOTSUPP for a symbolic link or another version, EACCES for a default ACL of an
/// inode that is no directory, EPERM, ENOSPC (also for more than 511 entries), and those of a
/// backing.
pub(crate) fn set_acl(context: &Context, inode: &Inode, kind: AclKind, value: Option<&[u8]>) -> Result<()> {
    context.writable()?;
    let acl = value.map(Acl::parse).transpose()?.flatten();
    if inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported);
    }
    inode.permissions(&pin()).expect_without(InodeFlags::PROTECTING)?;
    if kind == AclKind::Default && !inode.is_dir() {
        return if acl.is_some() { Err(Error::Access) } else { Ok(()) };
    }
    let kept = acl.as_ref().filter(|acl| kind == AclKind::Default || acl.is_extended());
    let change = |mut new: Permissions| {
        if new.is_protected() || !context.owns(&new.perm) {
            return Err(Error::NotPermitted);
        }
        if acl.as_ref().is_some_and(|acl| !acl.is_valid()) {
            return Err(Error::Invalid);
        }
        if acl.as_ref().is_some_and(Acl::is_too_long) {
            return Err(Error::NoSpace);
        }
        if kind == AclKind::Access {
            let cut = if keeps_setgid(context, &new.perm) { 0 } else { S_ISGID };
            new.perm.mode = acl.as_ref().map_or(new.perm.mode, |acl| acl.to_mode(new.perm.mode)) & !cut;
        }
        new.set_acl(kind, kept.cloned());
        Ok(new)
    };
    let meant = if kind == AclKind::Access { AttrMask::MODE | AttrMask::ACLS } else { AttrMask::ACLS };
    if inode.is_backed() {
        return change_permissions(inode, meant, change);
    }
    // A refusal comes before a lack of space.
    change(inode.permissions(&pin()).into())?;
    let driver = &*inode.shard.sb.driver;
    let charge = kept.map(|acl| ChargeGuard::take(driver, cost_of_acl(kind, acl))).transpose()?;
    let replaced = Cell::new(None);
    change_permissions(inode, meant, |old| {
        replaced.set(old.acl(kind).map(|acl| cost_of_acl(kind, acl)));
        change(old)
    })?;
    charge.into_iter().for_each(ChargeGuard::keep);
    replaced.take().into_iter().for_each(|what| driver.release(what));
    Ok(())
}
