//! Removing a name in a backing.

use std::sync::Arc;

use pando_sync::{Guard, Shared};

use crate::{
    AttrMask, Backing, Change, Context, Error, Result,
    caches::commit::commit,
    objects::{dentry::Dentry, lockable::Lockable, notify, superblock::SuperBlock},
    operations::{
        bound::{Bound, forget_name},
        locks::Locks,
        parent::Parent,
        remote::change::{ChangingName, PreparedChange},
        step::{Step, Stop},
    },
};

/// A name that is to be removed.
pub(crate) struct Remove {
    place: ChangingName,
    ino: u64,
    is_dir: bool,
}

/// Checks whether the name may be removed. Locks it, and the inode, whose link count changes under
/// its lock.
pub(crate) fn prepare<'g>(
    context: &Context,
    place: Parent<'g>,
    name: &'g [u8],
    is_dir: bool,
    guard: &'g Guard,
    locks: &mut Locks<'_>,
) -> Step<Box<Remove>> {
    let (parent, hash) = (place.dir.to_ref().expect_dir()?, place.hash_of(name));
    let found = Bound::ask(place.dir, hash, name, guard)?.ok_or(Error::NoEntry)?;
    locks.names(&[Lockable::name(parent, hash)?, Lockable::inode(found.inode())])?;
    let bound = Bound::ask(place.dir, hash, name, guard)?.ok_or(Error::NoEntry)?;
    if bound.inode().ino != found.inode().ino {
        return Err(Stop::Again);
    }
    bound.may_delete(context, Some(is_dir), guard)?;
    if is_dir {
        bound.expect_no_mount()?;
    }
    // A thread that shuts the tree down would remove the entry that is to be published.
    parent.shard.sb.expect_mounted()?;
    Ok(Box::new(Remove { place: ChangingName::new(&place, name, guard)?, ino: bound.inode().ino, is_dir }))
}

impl PreparedChange for Remove {
    type Ack = ();
    type Done = ();

    fn sb(&self) -> &Arc<SuperBlock> {
        &self.place.parent().shard.sb
    }

    fn commit(&self, backing: &dyn Backing) -> Result<()> {
        let (dir, name) = (self.place.parent().ino, &*self.place.name);
        commit(self.sb(), backing, &Change::Remove { dir, name, ino: self.ino }).map(drop)
    }

    fn publish(&self, (): &(), guard: &Guard, locks: &mut Locks<'_>) -> Step<()> {
        self.place.entries_changed();
        let found = Bound::find(self.place.dir(guard), self.place.hash, &self.place.name, guard)?;
        let bound = found.ok_or(Error::NoEntry)?;
        bound.inode().set_dirty(AttrMask::CTIME);
        // The backing has removed the directory. If the cache still shows entries in it, others
        // have removed them.
        let gone = if self.is_dir { bound.remove_empty_dir(|_, _| false, guard)? } else { bound.unlink_file(guard)? };
        self.place.insert_negative(guard);
        self.place.entries_changed();
        locks.collect = forget_cached(bound.dentry, guard) || bound.inode().links.all_removed();
        notify::removed(bound.dir, bound.name, bound.inode(), guard);
        drop(gone);
        Ok(())
    }
}

/// Drops a dentry that has lost its name for good from the caches. The caller holds the lock of the
/// name. Returns the result of [`forget_name`].
pub(crate) fn forget_cached(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    let sb = dentry.to_ref().sb();
    sb.links.remove(dentry.to_ref());
    if dentry.to_ref().inode().is_unlinked(guard) {
        drop(sb.inodes.remove_unlinked(dentry.to_ref(), guard));
    }
    forget_name(dentry, guard)
}
