//! A rename: one instant, whatever it moves (P3).
//!
//! All words that change — the two slots, the places of what moves, the life of a directory that is replaced — are
//! enlisted in one [`Operation`]; its commit is the instant. A directory that changes place also writes the rename sequence
//! around it, so that path rendering never mixes two trees; one that changes parents holds the topology lock, under which
//! ancestors stand still (P4).

use std::sync::Arc;

use pando_sync::{Counted, Detached, Enlisted, Guard, Object, OpCell, Operation, Shared};

use crate::{
    Context, Error, Result, Timestamp,
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
        inode::Inode,
        lockable::Lockable,
    },
    operations::{
        bound::{Bound, forget_name},
        locks::Locks,
        parent::Parent,
        permit::{may_change, may_write},
        step::{Step, Stop},
    },
    types::{Access, RenameFlags},
};

/// What the old name is bound to, and the new one, if it is.
pub(crate) type Found<'g> = (Bound<'g>, Option<Bound<'g>>);

/// Says whether a directory holds an entry.
pub(crate) type HoldsAnEntry = fn(&Inode, &Guard) -> bool;

/// A rename whose locks are held and whose checks have passed.
pub(crate) struct Move<'g> {
    pub old: Bound<'g>,
    pub new_dir: Shared<'g, Dentry>,
    pub new_parent: &'g Inode,
    pub new_name: &'g [u8],
    pub new_hash: u64,
    /// What the new name is bound to.
    pub target: Option<Bound<'g>>,
    pub exchange: bool,
}

impl<'g> Move<'g> {
    /// Takes the locks, and looks the names up under them. `find` looks them up, and `loses` says which inode besides loses a
    /// name, so that it is to be locked. `taken`: the locks that are known to be needed.
    #[inline]
    pub(crate) fn lock(
        (old, new): (&Parent<'g>, &Parent<'g>),
        exchange: bool,
        mut taken: Needs,
        find: impl Fn() -> Step<Found<'g>>,
        loses: impl Fn(&Found<'g>) -> Option<u64>,
        locks: &mut Locks<'_>,
    ) -> Step<Found<'g>> {
        let (old_parent, new_parent) = (old.dir.to_ref().expect_dir()?, new.dir.to_ref().expect_dir()?);
        let from = Lockable::name(old_parent, old.hash_of(old.any_name(Error::Busy)?))?;
        let to = Lockable::name(new_parent, new.hash_of(new.any_name(Error::Busy)?))?;
        loop {
            let wanted = [from, to, taken.loses.map_or(to, |ino| Lockable::number(&new_parent.shard.sb, ino))];
            let count = match taken.loses {
                Some(_) => 3,
                // All names of a directory may have one lock.
                None if from.key == to.key => 1,
                None => 2,
            };
            locks.all(taken.topology, &wanted[..count], taken.rename_seq)?;
            let found = find()?;
            // What is found under the locks may need more of them.
            let needed = Needs::of(&found, exchange, old.dir.ptr_eq(new.dir), loses(&found));
            if needed.within(&taken) {
                return Ok(found);
            }
            taken = needed;
        }
    }

    /// That its tree is the other name's, and that names are to be moved at all.
    pub(crate) fn expect_movable(
        context: &Context,
        (old, new): (&Parent<'g>, &Parent<'g>),
        flags: RenameFlags,
    ) -> Result<()> {
        let (old_parent, new_parent) = (old.dir.to_ref().expect_dir()?, new.dir.to_ref().expect_dir()?);
        if !Arc::ptr_eq(&old_parent.shard.sb, &new_parent.shard.sb) {
            return Err(Error::CrossDevice);
        }
        let noreplace = flags.contains(RenameFlags::NOREPLACE);
        old.any_name(Error::Busy)?;
        new.any_name(if noreplace { Error::Exists } else { Error::Busy })?;
        context.writable()
    }

    /// What was found, as a rename that its locks and checks permit; none if both names are the same file, and nothing is to
    /// be done.
    #[inline]
    pub(crate) fn permitted(
        context: &'g Context,
        (old, new): (&Parent<'g>, &Parent<'g>),
        (source, target): Found<'g>,
        flags: RenameFlags,
        guard: &'g Guard,
    ) -> Step<Option<Self>> {
        let new_parent = new.dir.to_ref().expect_dir()?;
        if !Self::expect_possible((old, new), new_parent, (&source, target.as_ref()), flags, guard)? {
            return Ok(None);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        check_permissions(context, &source, new.dir, target.as_ref(), exchange, guard)?;
        new_parent.shard.sb.expect_open()?;
        let new_name = new.any_name(Error::Busy)?;
        let new_hash = new.hash_of(new_name);
        Ok(Some(Self { old: source, new_dir: new.dir, new_parent, new_name, new_hash, target, exchange }))
    }

    /// Moves. `holds` is asked of a directory that is replaced, once nothing more is made in there.
    pub(crate) fn carry_out(&self, holds: HoldsAnEntry, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        match &self.target {
            Some(target) if self.exchange => self.exchange_with(target, locks)?,
            Some(target) => self.replace(target, holds, locks, guard)?,
            None => self.to_free_name(locks, guard)?,
        }
        let now = Timestamp::now().0;
        let (old_dir, new_dir) = (self.old.parent.directory()?, self.new_parent.directory()?);
        let count_over = |from: &Directory, to: &Directory| {
            from.subdirs_changed(false);
            to.subdirs_changed(true);
        };
        // A directory that goes over to the other directory counts there from now on.
        if !self.same_dir() && self.old.inode().is_dir() {
            count_over(old_dir, new_dir);
        }
        if let Some(target) = &self.target {
            if self.exchange && !self.same_dir() && target.inode().is_dir() {
                count_over(new_dir, old_dir);
            }
            target.inode().touch(now);
        }
        self.old.parent.entries_changed(now);
        if !self.same_dir() {
            self.new_parent.entries_changed(now);
        }
        self.old.inode().touch(now);
        Ok(())
    }

    /// What is under these names may go where it is to go; false if both are the same file.
    #[inline]
    fn expect_possible(
        (old, new): (&Parent<'g>, &Parent<'g>),
        new_parent: &Inode,
        (source, target): (&Bound<'g>, Option<&Bound<'g>>),
        flags: RenameFlags,
        guard: &'g Guard,
    ) -> Step<bool> {
        let (noreplace, exchange) = (flags.contains(RenameFlags::NOREPLACE), flags.contains(RenameFlags::EXCHANGE));
        let same_dir = old.dir.ptr_eq(new.dir);
        // No name can be in there, so nothing else about it is asked.
        if new_parent.directory()?.is_removed(guard) {
            return Err(Error::NoEntry.into());
        }
        match target {
            Some(_) if noreplace => return Err(Error::Exists.into()),
            None if exchange => return Err(Error::NoEntry.into()),
            Some(target) if exchange && new.slash && !target.inode().is_dir() => {
                return Err(Error::NotDirectory.into());
            }
            _ => {}
        }
        if !source.inode().is_dir() && (old.slash || (!exchange && new.slash)) {
            return Err(Error::NotDirectory.into());
        }
        // What lies in a directory is never above it; and across directories the topology lock holds ancestors in place.
        if !same_dir && source.inode().is_dir() && is_self_or_ancestor(source.dentry, new.dir, guard) {
            return Err(Error::Invalid.into());
        }
        if let Some(target) = target
            && !same_dir
            && target.inode().is_dir()
            && is_self_or_ancestor(target.dentry, old.dir, guard)
        {
            return Err(if exchange { Error::Invalid } else { Error::NotEmpty }.into());
        }
        if let Some(target) = target
            && std::ptr::eq(source.inode(), target.inode())
        {
            return Ok(false);
        }
        Ok(true)
    }

    pub(crate) fn same_dir(&self) -> bool {
        self.old.dir.ptr_eq(self.new_dir)
    }

    /// Both names change what they show, and both dentries their place.
    fn exchange_with(&self, target: &Bound<'g>, locks: &mut Locks<'_>) -> Step<()> {
        let op = Operation::new();
        let (a, b) = (&self.old, target);
        let one = enlist(&a.slot.to_ref().value, &op, Some(a.dentry), Some(held(b.dentry)?))?;
        let two = enlist(&b.slot.to_ref().value, &op, Some(b.dentry), Some(held(a.dentry)?))?;
        let a_place = enlist(&a.dentry.to_ref().place, &op, Some(a.slot), Some(held(b.slot)?))?;
        let b_place = enlist(&b.dentry.to_ref().place, &op, Some(b.slot), Some(held(a.slot)?))?;
        let committed = locks.moving(|| op.commit());
        debug_assert!(committed, "nobody aborts an exchange");
        for word in [one, two] {
            drop(word.finish());
        }
        for word in [a_place, b_place] {
            drop(word.finish());
        }
        Ok(())
    }

    /// Over what the new name shows; an empty directory dies at the same instant.
    fn replace(&self, target: &Bound<'g>, holds: HoldsAnEntry, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        let op = Operation::new();
        let (source, victim) = (&self.old, target.inode());
        let removal = match victim.directory() {
            Ok(directory) => Some(directory.life.begin_removal(&op).map_err(|_| Stop::Again)?),
            Err(_) => None,
        };
        let from = enlist(&source.slot.to_ref().value, &op, Some(source.dentry), None)?;
        let to = enlist(&target.slot.to_ref().value, &op, Some(target.dentry), Some(held(source.dentry)?))?;
        let place = enlist(&source.dentry.to_ref().place, &op, Some(source.slot), Some(held(target.slot)?))?;
        // The victim keeps a place of its own, which nothing is bound to: an open file renders it as deleted.
        let ghost = self.new_slot(OpCell::new(None), guard)?.into_reference();
        let victim_place = enlist(&target.dentry.to_ref().place, &op, Some(target.slot), Some(ghost))?;
        if removal.is_some() && holds(victim, guard) {
            return Err(Error::NotEmpty.into());
        }
        // The instant. If a creator in the victim has aborted it, the next attempt finds its entry.
        if !locks.moving(|| op.commit()) {
            return Err(Stop::Again);
        }
        drop(from.finish());
        let replaced = to.finish();
        drop(place.finish());
        drop(victim_place.finish());
        self.leave_old_slot(guard)?;
        if let Some(removal) = removal {
            removal.finish();
            victim.directory()?.detach();
            self.new_parent.directory()?.subdirs_changed(false);
        } else {
            victim.link_gone();
        }
        locks.collect = forget_name(target.dentry, guard) || victim.links.are_gone();
        drop(replaced);
        Ok(())
    }

    /// To a name that is free: a create in its directory (protocol 2).
    fn to_free_name(&self, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        let op = Operation::new();
        let source = &self.old;
        let new_directory = self.new_parent.directory()?;
        let cell = OpCell::new_enlisted(&op, held(source.dentry)?);
        let slot = self.new_slot(cell, guard)?;
        let from = enlist(&source.slot.to_ref().value, &op, Some(source.dentry), None)?;
        let place = enlist(&source.dentry.to_ref().place, &op, Some(source.slot), Some(slot.reference()))?;
        // From the insertion, for from then on a remover of the new directory may carry the rename out on its own, to the
        // instant, unless that remover was quicker.
        let to = locks.moving(|| {
            let node = new_directory.insert(self.new_hash, self.new_name, slot, guard)?;
            let to = node.to_ref().value.adopt(&op);
            if !new_directory.life.keep_alive(guard) && op.abort() {
                drop(to.finish());
                new_directory.remove(node, guard);
                new_directory.detach();
                return Err(Error::NoEntry);
            }
            let committed = op.commit();
            debug_assert!(committed, "nobody else aborts this");
            Ok(to)
        })?;
        drop(to.finish());
        drop(from.finish());
        drop(place.finish());
        if self.same_dir() {
            // There are as many names as before.
            new_directory.remove(self.old.slot, guard);
            return Ok(());
        }
        new_directory.count_up(false, guard);
        self.leave_old_slot(guard)
    }

    /// A slot for the new name, in no table yet.
    fn new_slot(&self, value: OpCell<Dentry>, guard: &Guard) -> Result<Detached<Slot>> {
        let anchor = self.new_parent.directory()?.anchor(self.new_dir, guard)?;
        Ok(Detached::new(Slot::new(anchor, self.new_name, value)))
    }

    /// The old name is gone: its slot leaves the table.
    fn leave_old_slot(&self, guard: &Guard) -> Step<()> {
        let directory = self.old.parent.directory()?;
        directory.remove(self.old.slot, guard);
        directory.count_down(false, guard);
        Ok(())
    }
}

/// Which locks a rename needs besides those of its names.
#[derive(Default)]
pub(crate) struct Needs {
    /// Ancestors matter: a directory is moved to, or over, another parent's.
    topology: bool,
    /// A directory changes its place.
    rename_seq: bool,
    /// The inode that loses a name, where a backing counts names.
    loses: Option<u64>,
}

impl Needs {
    pub(crate) fn of((source, target): &Found<'_>, exchange: bool, same_dir: bool, loses: Option<u64>) -> Self {
        let (source, target) = (source.inode().is_dir(), target.as_ref().is_some_and(|target| target.inode().is_dir()));
        Self { topology: !same_dir && (source || target), rename_seq: source || (exchange && target), loses }
    }

    /// Whether locks that were taken for `taken` will do.
    fn within(&self, taken: &Self) -> bool {
        self.topology <= taken.topology && self.rename_seq <= taken.rename_seq && self.loses == taken.loses
    }
}

/// Whether `dentry` is `below` or one of its ancestors (in the same tree).
fn is_self_or_ancestor(dentry: Shared<'_, Dentry>, below: Shared<'_, Dentry>, guard: &Guard) -> bool {
    let mut up = Some(below);
    while let Some(dir) = up {
        if dir.ptr_eq(dentry) {
            return true;
        }
        up = dir.to_ref().parent(guard);
    }
    false
}

fn check_permissions<'g>(
    context: &'g Context,
    source: &Bound<'g>,
    new_dir: Shared<'g, Dentry>,
    target: Option<&Bound<'g>>,
    exchange: bool,
    guard: &'g Guard,
) -> Step<()> {
    let new_parent = new_dir.to_ref().expect_dir()?;
    let source_is_dir = source.inode().is_dir();
    source.may_delete(context, None, guard)?;
    may_change(context, new_parent, guard)?;
    if let Some(target) = target {
        target.may_delete(context, (!exchange).then_some(source_is_dir), guard)?;
    }
    if !source.dir.ptr_eq(new_dir) {
        // A directory's `..` changes: that is a write to it.
        let exchanged = target.filter(|_| exchange);
        for moved in std::iter::once(source).chain(exchanged).map(Bound::inode).filter(|inode| inode.is_dir()) {
            may_write(context, moved, Access::WRITE, guard)?;
        }
    }
    source.expect_no_mount()?;
    Ok(target.map_or(Ok(()), Bound::expect_no_mount)?)
}

/// A reference to what a lock holds in place; it can only be dead if the attempt's picture is old.
fn held<T: Object>(shared: Shared<'_, T>) -> Step<Counted<T>> {
    shared.get().ok_or(Stop::Again)
}

/// Enlists a word in an operation; if it does not hold `before`, the attempt's picture is old.
fn enlist<'a, T: Object>(
    cell: &'a OpCell<T>,
    op: &'a Operation,
    before: Option<Shared<'_, T>>,
    after: Option<Counted<T>>,
) -> Step<Enlisted<'a, T>> {
    cell.enlist(op, before, after).map_err(|_| Stop::Again)
}
