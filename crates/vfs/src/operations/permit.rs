//! The permission to change a directory, and how it is taken away.
//!
//! A change of a name is permitted under that name's lock, and what was permitted stands until the lock is given back: who
//! changes the permissions of a directory waits for it ([`Revocable`](pando_sync::Revocable)). So no name comes or goes
//! once a chmod or chown has returned that forbids it, as if the two had excluded each other; but a lock per directory
//! there is not. (What others change in a backing is another matter: it holds from when it is noticed.)

use std::cell::Cell;

use pando_sync::Guard;

use crate::{
    Context, Error, Result,
    objects::inode::{Body, Inode},
    operations::step::{Step, Stop},
    types::{Access, cred::PermView},
};

/// Whether entries may be made in `dir`, or taken out of it. The lock of the entry's name is held.
pub(crate) fn may_change(context: &Context, dir: &Inode, guard: &Guard) -> Step<()> {
    let directory = dir.directory()?;
    may_write(context, dir, Access::WRITE | Access::EXEC, guard).map_err(|stop| match stop {
        Stop::Error(error) => directory.refusal(error, guard).into(),
        stop => stop,
    })
}

/// Whether `dir` may be written to in ways that need `want`. The lock of a name is held, for which that is asked.
pub(crate) fn may_write(context: &Context, dir: &Inode, want: Access, guard: &Guard) -> Step<()> {
    if !dir.directory()?.permission.is_valid() {
        return Err(Stop::Revoked(dir.ino));
    }
    Ok(context.check(dir, &dir.perm(guard), want)?)
}

/// Changes permissions with `apply`, which is given what `change` makes of them. It is called again, with permissions
/// revoked, as it is told, if `change` takes something away in a directory; until then `apply` must not have done anything. No
/// guard and no lock is held.
pub(crate) fn revoking(
    inode: &Inode,
    change: impl Fn(PermView) -> Result<PermView>,
    apply: impl Fn(&dyn Fn(PermView) -> Result<PermView>, bool) -> Result<()>,
) -> Result<()> {
    let Body::Directory(directory) = &inode.body else { return apply(&change, false) };
    let takes_away = Cell::new(false);
    let unrevoked = |old| {
        let new = change(old)?;
        if only_adds(old, new) {
            return Ok(new);
        }
        takes_away.set(true);
        Err(Error::Access)
    };
    let outcome = apply(&unrevoked, false);
    if !takes_away.get() {
        return outcome;
    }
    let name_space = &inode.shard.sb.name_space;
    // One such change at a time; the revocation ends before somebody else's may begin.
    let _order = name_space.permissions(inode.ino).lock();
    let _revocation = directory.permission.revoke(&name_space.names);
    apply(&change, true)
}

/// Whether nobody may do less than before, and what is made in there looks the same.
fn only_adds(old: PermView, new: PermView) -> bool {
    const ADDED: u32 = 0o777;
    let same = |perm: PermView| PermView { mode: perm.mode & !ADDED, ..perm };
    same(old) == same(new) && old.mode & ADDED & !new.mode == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mode_with_more_of_the_nine_bits_adds() {
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
