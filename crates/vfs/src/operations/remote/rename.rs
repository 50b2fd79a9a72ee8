//! Renaming in a backing.

use std::sync::Arc;

use pando_sync::Guard;

use crate::{
    AttrMask, Backing, Change, Context, Error, NodeAttr, Result, Timestamp,
    caches::commit::commit,
    objects::superblock::SuperBlock,
    operations::{
        bound::Bound,
        locks::Locks,
        make::{WHITEOUT, new_permissions},
        moving::{Found, Move, Needs},
        parent::Parent,
        remote::change::{ChangingName, PreparedChange},
        remote::create::attr_of_new,
        remote::remove::forget_cached,
        step::{Commit, Step},
    },
    types::RenameFlags,
};

/// A rename that is to be made.
pub(crate) struct Rename {
    old: ChangingName,
    new: ChangingName,
    ino: u64,
    target: Option<u64>,
    flags: RenameFlags,
    /// The whiteout that takes the old name.
    whiteout: Option<NodeAttr>,
}

/// Checks whether the name may be moved. Locks both names, and the inode that loses one, whose link
/// count changes under its lock. Yields [`Commit::Local`] if both names are the same file: then
/// nothing is to be done.
pub(crate) fn prepare<'g>(
    context: &'g Context,
    (old, new): (&Parent<'g>, &Parent<'g>),
    flags: RenameFlags,
    guard: &'g Guard,
    locks: &mut Locks<'_>,
) -> Step<Commit<(), Box<Rename>>> {
    let find = || -> Step<Found<'g>> {
        let old_name = old.name(Error::Busy)?;
        let source = Bound::ask(old.dir, old.hash_of(old_name), old_name, guard)?.ok_or(Error::NoEntry)?;
        let new_name = new.name(Error::Busy)?;
        Ok((source, Bound::ask(new.dir, new.hash_of(new_name), new_name, guard)?))
    };
    let loses = |(_, target): &Found<'g>| target.as_ref().map(|target| target.inode().ino);
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    // The backing may have to be asked, which must be done without locks.
    let found = find()?;
    let needed = Needs::of(&found, exchange, old.dir.ptr_eq(new.dir), loses(&found));
    let found = Move::lock((old, new), exchange, needed, find, loses, locks)?;
    let Some(prepared) = Move::permitted(context, (old, new), found, flags, guard)? else {
        return Ok(Commit::Local(()));
    };
    let whiteout = flags.contains(RenameFlags::WHITEOUT).then(|| {
        let permissions = new_permissions(context, prepared.old.parent, WHITEOUT.kind(), 0, guard);
        attr_of_new(WHITEOUT, &permissions, 1, Timestamp::now().0)
    });
    let (ino, target) = (prepared.old.inode().ino, prepared.target.as_ref().map(|target| target.inode().ino));
    let (old, new) =
        (ChangingName::new(old, prepared.old.name, guard)?, ChangingName::new(new, prepared.new_name, guard)?);
    Ok(Commit::Remote(Box::new(Rename { old, new, ino, target, flags, whiteout })))
}

impl PreparedChange for Rename {
    type Ack = ();
    type Done = ();

    fn sb(&self) -> &Arc<SuperBlock> {
        &self.old.parent().shard.sb
    }

    fn commit(&self, backing: &dyn Backing) -> Result<()> {
        let (from, to) = ((self.old.parent().ino, &*self.old.name), (self.new.parent().ino, &*self.new.name));
        let (ino, target, flags, whiteout) = (self.ino, self.target, self.flags, self.whiteout.as_ref());
        commit(self.sb(), backing, &Change::Rename { from, to, flags, ino, target, whiteout }).map(drop)
    }

    fn refused(&self, error: Error, guard: &Guard) {
        self.new.note_refusal(error, guard);
    }

    fn publish(&self, (): &(), guard: &Guard, locks: &mut Locks<'_>) -> Step<()> {
        self.old.entries_changed();
        self.new.entries_changed();
        let source = Bound::find(self.old.dir(guard), self.old.hash, &self.old.name, guard)?.ok_or(Error::NoEntry)?;
        let target = Bound::find(self.new.dir(guard), self.new.hash, &self.new.name, guard)?;
        if target.is_none() {
            self.new.unbind_stale(guard)?;
        }
        [Some(&source), target.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|bound| bound.inode().set_dirty(AttrMask::CTIME));
        let moving = Move {
            old: source,
            new_dir: self.new.dir(guard),
            new_parent: self.new.parent(),
            new_name: &self.new.name,
            new_hash: self.new.hash,
            target,
            exchange: self.flags.contains(RenameFlags::EXCHANGE),
            // The next look-up loads it.
            whiteout: None,
        };
        // The backing has replaced the directory. If the cache still shows entries in it, others
        // have removed them.
        moving.carry_out(|_, _| false, locks, guard)?;
        if let Some(target) = moving.target.as_ref().filter(|_| !moving.exchange) {
            forget_cached(target.dentry, guard);
        }
        if moving.target.is_none() && moving.same_dir() {
            // The number of names has not changed, but the directory has. The two counts make a
            // load that began before out of date.
            let directory = self.new.directory()?;
            directory.count_up(false, guard);
            directory.count_down(false, guard);
        }
        if !moving.exchange && self.whiteout.is_none() {
            self.old.insert_negative(guard);
        }
        self.new.remove_negative(guard);
        self.old.entries_changed();
        self.new.entries_changed();
        if self.old.was_reported() {
            // The inode has moved, and what others have changed of it was reported for the old
            // directory.
            self.new.report();
        }
        Ok(())
    }
}
