//! Changes of attributes, which are committed to the backing before they are published in the
//! cache.

use pando_sync::pin;

use crate::{
    AclSupport, AttrMask, Error, InodeFlags, NodeAttr, Result, Timestamp,
    caches::{refresh::refresh_inode, write_back::store_first},
    objects::{inode::Inode, permissions::permissions_of},
    operations::permit::revoking,
    types::{
        acl::is_acl,
        cred::Permissions,
        stat::{S_ISGID, S_ISUID},
    },
};

/// Changes mode, owner, group, flags and ACLs as one record. The backing stores those that are
/// `meant`. It also stores the mode if privileges are dropped, and the ACL if it follows the mode.
/// The caller holds no guard and no lock.
pub(crate) fn change_permissions(
    inode: &Inode,
    meant: AttrMask,
    change: impl Fn(Permissions) -> Result<Permissions>,
) -> Result<()> {
    let privileged = inode.perm(&pin()).mode & (S_ISUID | S_ISGID) != 0;
    if !meant.contains(AttrMask::MODE) && privileged {
        // The rest of the mode is stored as well, so it must be the mode that others have stored
        // meanwhile.
        refresh_inode(inode)?;
    }
    revoking(inode, change, |change, _| {
        let mut now = Timestamp::now().0;
        let _order = store_first(inode, meant | AttrMask::MODE | AttrMask::CTIME, |attr| {
            let Permissions { perm, flags, acls } = change(permissions_of(attr))?;
            let mut changed = meant | AttrMask::CTIME;
            for (what, differs) in [(AttrMask::MODE, perm.mode != attr.mode), (AttrMask::ACLS, acls != attr.acls)] {
                changed |= if differs { what } else { AttrMask::empty() };
            }
            (attr.mode, attr.uid, attr.gid) = (perm.mode, perm.uid, perm.gid);
            (attr.flags, attr.acls) = (flags, acls);
            now = store_ctime(attr, now);
            Ok(changed)
        })?;
        // The record is still the one that was stored: a thread that changes it holds the same
        // lock.
        inode.change_permissions(&pin(), change)?;
        inode.touch_as_stored(now);
        if has_acl(inode) {
            // The store has changed the ACL, too.
            inode.set_reported();
        }
        Ok(())
    })
}

/// Whether the store has ACLs of its own, and one of this inode is cached.
fn has_acl(inode: &Inode) -> bool {
    let guard = pin();
    inode.shard.sb.acls == AclSupport::Store
        && inode.cached_xattrs(&guard).flatten().is_some_and(|map| map.names().any(is_acl))
}

/// Sets atime and mtime, at the time `now`. EPERM if the inode has one of the flags `refusing`.
pub(crate) fn set_times(
    inode: &Inode,
    refusing: InodeFlags,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    now: i64,
) -> Result<()> {
    let mut changed = AttrMask::CTIME;
    changed.set(AttrMask::ATIME, atime.is_some());
    changed.set(AttrMask::MTIME, mtime.is_some());
    let mut ctime = now;
    let _order = store_first(inode, changed, |attr| {
        if attr.flags.intersects(refusing) {
            return Err(Error::NotPermitted);
        }
        attr.atime = atime.unwrap_or(attr.atime);
        attr.mtime = mtime.unwrap_or(attr.mtime);
        ctime = store_ctime(attr, ctime);
        Ok(changed)
    })?;
    inode.times.set(&pin(), atime, mtime, inode.striped_stamp(), now);
    inode.touch_as_stored(ctime);
    Ok(())
}

/// Stamps a change of attributes with a ctime later than the last known one. Returns the ctime.
fn store_ctime(attr: &mut NodeAttr, now: i64) -> i64 {
    attr.ctime = Timestamp(now.max(attr.ctime.0.saturating_add(1)));
    attr.ctime.0
}
