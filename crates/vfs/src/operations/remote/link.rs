//! Making a hard link in a backing.

use std::sync::Arc;

use pando_sync::{Counted, Guard, pin};

use crate::{
    AttrMask, Backing, Change, Context, DentryRef, Error, Result,
    caches::{binding::adopt, commit::commit},
    objects::{dentry::Dentry, lockable::Lockable, notify, superblock::SuperBlock},
    operations::{
        locks::Locks,
        make::{bind_link, may_link, may_link_there},
        parent::Parent,
        remote::change::{ChangingName, PreparedChange},
        remote::lookup::expect_free,
        step::Step,
    },
};

/// A hard link that is to be made.
pub(crate) struct Link {
    place: ChangingName,
    old: Counted<Dentry>,
}

/// Checks whether the link may be made. Locks its name, and the inode, whose link count changes
/// under its lock.
pub(crate) fn prepare(
    context: &Context,
    old: &DentryRef,
    place: Parent<'_>,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Box<Link>> {
    let (inode, parent) = (old.0.inode(), place.dir.to_ref().expect_dir()?);
    let name = place.name(Error::Exists)?;
    let hash = expect_free(place, name, guard)?;
    may_link_there(context, inode, place)?;
    locks.names(&[Lockable::name(parent, hash)?, Lockable::inode(inode)])?;
    may_link(context, inode, parent, guard)?;
    if !inode.links.has_or_may_get_name() {
        return Err(Error::NoEntry.into());
    }
    Ok(Box::new(Link { place: ChangingName::new(&place, name, guard)?, old: old.0.clone() }))
}

impl PreparedChange for Link {
    type Ack = ();
    type Done = Counted<Dentry>;

    fn sb(&self) -> &Arc<SuperBlock> {
        &self.place.parent().shard.sb
    }

    fn commit(&self, backing: &dyn Backing) -> Result<()> {
        let (dir, name, inode) = (self.place.parent().ino, &*self.place.name, self.old.inode());
        // Before the name exists: a look-up must find this inode, and not load another one.
        let is_new = inode.links.count() == 0 && adopt(self.sb(), &Dentry::first(&self.old), &pin());
        let done = commit(self.sb(), backing, &Change::Link { ino: inode.ino, dir, name }).map(drop);
        // After EIO the name may exist.
        if is_new && done.is_err_and(|error| error != Error::Io) {
            drop(self.sb().inodes.remove_unlinked(&self.old, &pin()));
        }
        done
    }

    fn refused(&self, error: Error, guard: &Guard) {
        self.place.note_refusal(error, guard);
    }

    fn publish(&self, (): &(), guard: &Guard, _locks: &mut Locks<'_>) -> Step<Counted<Dentry>> {
        let sb = self.sb();
        self.place.entries_changed();
        self.old.inode().set_dirty(AttrMask::CTIME);
        self.place.unbind_stale(guard)?;
        let name = (self.place.hash, &*self.place.name);
        let dentry = bind_link(&self.old, self.place.dir(guard), name, sb.links.next_id(), guard)?;
        self.place.remove_negative(guard);
        self.place.entries_changed();
        sb.links.add(&dentry);
        notify::linked(self.place.dir(guard), &self.place.name, self.old.inode(), guard);
        Ok(dentry)
    }
}
