//! The permission to change a directory, and its revocation.
//!
//! A change of a name is permitted under that name's lock, and the permission holds until the lock
//! is released. A thread that takes permissions of a directory away waits for those locks
//! ([`Revocable`](pando_sync::Revocable)). So once a chmod or chown that forbids it has returned,
//! no entry is made or removed. The effect is the same as if chmod excluded the changes, but there
//! is no lock per directory. Changes that others make to permissions in a backing are different:
//! they hold from the time at which they are noticed.
//!
//! ```text
//! create in d                           chmod that takes write permission away
//! lock the name
//! check: the permission stands
//!                                       revoke: mark d, then pass once through all name locks
//! insert, publish                       (waits for this name's lock)
//! unlock
//!                                       store the new mode (the linearization point)
//! check: revoked -> unlock, wait        end the revocation
//! ```

use std::cell::Cell;

use pando_sync::Guard;

use crate::{
    Context, Error, Result,
    objects::inode::{Body, Inode},
    operations::step::{Step, Stop},
    types::{
        Access,
        cred::{PermView, Permissions},
    },
};

/// Whether entries may be made in `dir` or removed from it (analogous to `inode_permission(dir,
/// MAY_WRITE | MAY_EXEC)`). The caller holds the lock of the entry's name.
#[inline]
pub(crate) fn may_change(context: &Context, dir: &Inode, guard: &Guard) -> Step<()> {
    let directory = dir.directory()?;
    may_write(context, dir, Access::WRITE | Access::EXEC, guard).map_err(|stop| match stop {
        Stop::Error(error) => directory.refusal(error, guard).into(),
        stop => stop,
    })
}

/// Whether the caller may write to `dir` with the access `want`. The caller holds the lock of the
/// name that it changes.
pub(crate) fn may_write(context: &Context, dir: &Inode, want: Access, guard: &Guard) -> Step<()> {
    if !dir.directory()?.permission.is_valid() {
        return Err(Stop::Revoked(dir.ino));
    }
    Ok(context.check(dir, want, guard)?)
}

/// Changes permissions. `apply` is called with a function that computes the new permissions from
/// the old ones, by `change`. If `change` takes something away in a directory, that function fails,
/// and `apply` must then have done nothing. `apply` is called again with the permissions revoked,
/// and its second argument says so. The caller holds no guard and no lock.
pub(crate) fn revoking(
    inode: &Inode,
    change: impl Fn(Permissions) -> Result<Permissions>,
    apply: impl Fn(&dyn Fn(Permissions) -> Result<Permissions>, bool) -> Result<()>,
) -> Result<()> {
    let Body::Directory(directory) = &inode.body else { return apply(&change, false) };
    let takes_away = Cell::new(false);
    let unrevoked = |old: Permissions| {
        let new = change(old.clone())?;
        if only_adds(&old, &new) {
            return Ok(new);
        }
        takes_away.set(true);
        Err(Error::Access)
    };
    let outcome = apply(&unrevoked, false);
    if !takes_away.get() {
        return outcome;
    }
    let namespace = &inode.shard.sb.namespace;
    // Only one such change at a time. This revocation ends before that of another thread may begin.
    let _order = namespace.permissions(inode.ino).lock();
    let _revocation = directory.permission.revoke(&namespace.names);
    apply(&change, true)
}

/// Whether every caller keeps its permissions, and new entries get the same owner, mode and ACLs as
/// before. Any change of a flag or an ACL may take something away.
fn only_adds(old: &Permissions, new: &Permissions) -> bool {
    const ADDED: u32 = 0o777;
    let same = |perm: PermView| PermView { mode: perm.mode & !ADDED, ..perm };
    (&old.acls, old.flags) == (&new.acls, new.flags)
        && same(old.perm) == same(new.perm)
        && old.perm.mode & ADDED & !new.perm.mode == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_mode_bits_need_no_revocation() {
        let only_adds = |old: PermView, new: PermView| only_adds(&old.into(), &new.into());
        let perm = PermView { mode: 0o755, uid: 1, gid: 2 };
        for mode in [0o755, 0o775, 0o777] {
            assert!(only_adds(perm, PermView { mode, ..perm }), "{mode:o}");
        }
        for mode in [0o1755, 0o2755, 0o4777, 0o577, 0o776, 0] {
            assert!(!only_adds(perm, PermView { mode, ..perm }), "{mode:o}");
        }
        assert!(!only_adds(perm, PermView { uid: 2, ..perm }));
        assert!(!only_adds(perm, PermView { gid: 1, ..perm }));
    }
}
