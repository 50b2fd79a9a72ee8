//! The core of a rename: it takes effect at one instant, whatever it moves (P3). Analogous to
//! `vfs_rename()` in fs/namei.c.
//!
//! Difficulties, and what answers each:
//! 1. *Several words change.* These are the two directory entries, the places of the dentries, and
//!    the life of a directory that is replaced. All are enlisted in one [`Operation`]. Its commit
//!    is the linearization point.
//! 2. *Path rendering must not mix two trees.* A directory that changes its place writes the rename
//!    sequence around the commit ([`Locks::moving`]).
//! 3. *A directory must not become its own descendant* (P4). A directory that changes its parent
//!    needs the topology lock, under which ancestors do not change (Linux: `s_vfs_rename_mutex`).
//! 4. *Which locks are needed depends on the names' bindings, which are stable only under the
//!    locks.* [`Move::lock`] takes the locks of the names, looks both names up, and starts over if
//!    [`Needs`] says that this needs more locks.
//! 5. *A replaced directory must be empty and stay so.* Its life is part of the operation, as in
//!    rmdir. A thread that creates an entry in it aborts the operation.
//! 6. *A thread may remove the new parent meanwhile.* A rename to a free name is a create there,
//!    with protocol 2.

use std::sync::Arc;

use pando_sync::{Counted, Detached, Enlisted, Guard, Object, OpCell, Operation, Shared};

use crate::{
    Context, Error, Result, Timestamp,
    objects::{
        dentry::{Dentry, Dirent},
        directory::Directory,
        inode::Inode,
        lockable::Lockable,
        notify,
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

/// The bindings of the old name, and of the new name if it is bound.
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
    /// The binding of the new name, if there is one.
    pub target: Option<Bound<'g>>,
    pub exchange: bool,
    /// The whiteout that takes the old name, in memory.
    pub whiteout: Option<Counted<Dentry>>,
}

impl<'g> Move<'g> {
    /// Takes the locks, and looks both names up under them. `find` looks them up. `loses` returns
    /// the inode that loses a name and must be locked too. `taken` are the locks that are known to
    /// be needed.
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
                // All names of a directory may share one lock.
                None if from.key == to.key => 1,
                None => 2,
            };
            locks.all(taken.topology, &wanted[..count], taken.rename_seq)?;
            let found = find()?;
            // The bindings found under the locks may need more locks.
            let needed = Needs::of(&found, exchange, old.dir.ptr_eq(new.dir), loses(&found));
            if needed.within(&taken) {
                return Ok(found);
            }
            taken = needed;
        }
    }

    /// Checks that both parents are in the same tree, and that both last components are names.
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

    /// Makes all checks, and returns the permitted rename. Returns `None` if both names are the
    /// same file: then nothing is to be done. The caller holds the locks of [`Move::lock`].
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
        new_parent.shard.sb.expect_mounted()?;
        let new_name = new.any_name(Error::Busy)?;
        let new_hash = new.hash_of(new_name);
        Ok(Some(Self {
            old: source,
            new_dir: new.dir,
            new_parent,
            new_name,
            new_hash,
            target,
            exchange,
            whiteout: None,
        }))
    }

    /// Makes the move (analogous to `d_move()` and `d_exchange()` in fs/dcache.c). The caller still
    /// holds the locks of [`Move::lock`], and the checks of [`Move::permitted`] have passed under
    /// them. `holds` says whether a directory that is replaced has entries. It is called when no
    /// further entry can be made there.
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
        // A directory that moves to another parent counts as a subdirectory there from now on.
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
        self.tell(guard);
        Ok(())
    }

    /// Queues the events of the move.
    fn tell(&self, guard: &Guard) {
        let (old, new) = ((self.old.dir, self.old.name), (self.new_dir, self.new_name));
        let replaced = self.target.as_ref().filter(|_| !self.exchange).map(Bound::inode);
        notify::moved(self.old.dentry, old, new, replaced, guard);
        if let Some(exchanged) = self.target.as_ref().filter(|_| self.exchange) {
            notify::moved(exchanged.dentry, new, old, None, guard);
        }
    }

    /// Whether these bindings permit the move. Returns false if both names are the same file.
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
        // A removed directory can hold no name, so nothing else about it is checked.
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
        // A dentry in the directory is never its ancestor. Across directories, the topology lock
        // keeps ancestors in place.
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

    /// Both entries swap the dentries that they show, and both dentries swap their places.
    fn exchange_with(&self, target: &Bound<'g>, locks: &mut Locks<'_>) -> Step<()> {
        let op = Operation::new();
        let (a, b) = (&self.old, target);
        let one = enlist(&a.dirent.to_ref().value, &op, Some(a.dentry), Some(held(b.dentry)?))?;
        let two = enlist(&b.dirent.to_ref().value, &op, Some(b.dentry), Some(held(a.dentry)?))?;
        let a_place = enlist(&a.dentry.to_ref().place, &op, Some(a.dirent), Some(held(b.dirent)?))?;
        let b_place = enlist(&b.dentry.to_ref().place, &op, Some(b.dirent), Some(held(a.dirent)?))?;
        let committed = locks.moving(|| op.commit());
        debug_assert!(committed, "no thread aborts an exchange");
        for word in [one, two] {
            drop(word.finish());
        }
        for word in [a_place, b_place] {
            drop(word.finish());
        }
        Ok(())
    }

    /// Replaces the binding of the new name. An empty directory that is replaced is removed at the
    /// same instant.
    fn replace(&self, target: &Bound<'g>, holds: HoldsAnEntry, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        let op = Operation::new();
        let (source, victim) = (&self.old, target.inode());
        let removal = match victim.directory() {
            Ok(directory) => Some(directory.life.begin_removal(&op).map_err(|_| Stop::Again)?),
            Err(_) => None,
        };
        let from = enlist(&source.dirent.to_ref().value, &op, Some(source.dentry), self.whiteout.clone())?;
        let to = enlist(&target.dirent.to_ref().value, &op, Some(target.dentry), Some(held(source.dentry)?))?;
        let place = enlist(&source.dentry.to_ref().place, &op, Some(source.dirent), Some(held(target.dirent)?))?;
        // The victim gets a place of its own, which no table contains. Path rendering of an open
        // file shows it as deleted.
        let ghost = self.new_dirent(OpCell::new(None), guard)?.into_reference();
        let victim_place = enlist(&target.dentry.to_ref().place, &op, Some(target.dirent), Some(ghost))?;
        if removal.is_some() && holds(victim, guard) {
            return Err(Error::NotEmpty.into());
        }
        // The linearization point. If a thread that creates an entry in the victim has aborted the
        // operation, the next attempt finds that entry.
        if !locks.moving(|| op.commit()) {
            return Err(Stop::Again);
        }
        drop(from.finish());
        let replaced = to.finish();
        drop(place.finish());
        drop(victim_place.finish());
        self.remove_old_dirent(guard)?;
        if let Some(removal) = removal {
            removal.finish();
            victim.directory()?.drop_parent_refs();
            self.new_parent.directory()?.subdirs_changed(false);
        } else {
            victim.count_link_down();
        }
        locks.collect = forget_name(target.dentry, guard) || victim.links.all_removed();
        drop(replaced);
        Ok(())
    }

    /// Moves to a free name: a create in the new directory (protocol 2).
    ///
    /// ```text
    /// this thread                             rmdir of the new directory
    /// insert the entry, enlisted in `op`
    ///                                         life := removing
    /// fence                                   fence
    /// read life: removing -> abort it         read the entries: enlisted -> commit `op`
    /// commit `op`, unless that has happened   ENOTEMPTY
    /// ```
    ///
    /// Either commit is the linearization point. If `life` says removed, this thread aborts `op`
    /// and takes the entry out: ENOENT.
    fn to_free_name(&self, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        let op = Operation::new();
        let source = &self.old;
        let new_directory = self.new_parent.directory()?;
        let cell = OpCell::new_enlisted(&op, held(source.dentry)?);
        let dirent = self.new_dirent(cell, guard)?;
        let from = enlist(&source.dirent.to_ref().value, &op, Some(source.dentry), self.whiteout.clone())?;
        let place = enlist(&source.dentry.to_ref().place, &op, Some(source.dirent), Some(dirent.reference()))?;
        // The sequence is odd from the insertion on: from then on, a thread that removes the new
        // directory may commit this rename.
        let to = locks.moving(|| {
            let node = new_directory.insert(self.new_hash, self.new_name, dirent, guard)?;
            let to = node.to_ref().value.adopt(&op);
            if !new_directory.life.keep_alive(guard) && op.abort() {
                drop(to.finish());
                new_directory.remove(node, guard);
                new_directory.drop_parent_refs();
                return Err(Error::NoEntry);
            }
            let committed = op.commit();
            debug_assert!(committed, "no other thread aborts this");
            Ok(to)
        })?;
        drop(to.finish());
        drop(from.finish());
        drop(place.finish());
        if self.same_dir() && self.whiteout.is_none() {
            // The number of names has not changed.
            new_directory.remove(self.old.dirent, guard);
            return Ok(());
        }
        new_directory.count_up(false, guard);
        self.remove_old_dirent(guard)
    }

    /// A directory entry for the new name, not yet in a table.
    fn new_dirent(&self, value: OpCell<Dentry>, guard: &Guard) -> Result<Detached<Dirent>> {
        let parent_ref = self.new_parent.directory()?.parent_ref(self.new_dir, guard)?;
        Ok(Detached::new(Dirent::new(parent_ref, self.new_name, value)))
    }

    /// Removes the old name's entry from the table, unless a whiteout has taken it. The old name is
    /// already gone.
    fn remove_old_dirent(&self, guard: &Guard) -> Step<()> {
        if self.whiteout.is_some() {
            return Ok(());
        }
        let directory = self.old.parent.directory()?;
        directory.remove(self.old.dirent, guard);
        directory.count_down(false, guard);
        Ok(())
    }
}

/// The locks that a rename needs besides those of its names.
#[derive(Default)]
pub(crate) struct Needs {
    /// Ancestors matter: a directory moves to another parent, or is replaced from one.
    topology: bool,
    /// A directory changes its place.
    rename_seq: bool,
    /// The inode that loses a name, in a backed tree, where link counts change under the inode's
    /// lock.
    loses: Option<u64>,
}

impl Needs {
    pub(crate) fn of((source, target): &Found<'_>, exchange: bool, same_dir: bool, loses: Option<u64>) -> Self {
        let (source, target) = (source.inode().is_dir(), target.as_ref().is_some_and(|target| target.inode().is_dir()));
        Self { topology: !same_dir && (source || target), rename_seq: source || (exchange && target), loses }
    }

    /// Whether the locks that were taken for `taken` suffice.
    fn within(&self, taken: &Self) -> bool {
        self.topology <= taken.topology && self.rename_seq <= taken.rename_seq && self.loses == taken.loses
    }
}

/// Whether `dentry` is `below` or one of its ancestors, in the same tree (analogous to
/// `is_subdir()` in fs/dcache.c). The caller holds the topology lock, so that no directory on the
/// way changes its parent.
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
        // The directory's `..` changes, which is a write to it.
        let exchanged = target.filter(|_| exchange);
        for moved in std::iter::once(source).chain(exchanged).map(Bound::inode).filter(|inode| inode.is_dir()) {
            may_write(context, moved, Access::WRITE, guard)?;
        }
    }
    source.expect_no_mount()?;
    Ok(target.map_or(Ok(()), Bound::expect_no_mount)?)
}

/// Counts a reference to a dentry or entry that a lock keeps in place. This fails only if the
/// attempt's look-up is out of date.
pub(crate) fn held<T: Object>(shared: Shared<'_, T>) -> Step<Counted<T>> {
    shared.get().ok_or(Stop::Again)
}

/// Enlists a word in an operation. If the word does not hold `before`, the attempt's look-up is out
/// of date.
fn enlist<'a, T: Object>(
    cell: &'a OpCell<T>,
    op: &'a Operation,
    before: Option<Shared<'_, T>>,
    after: Option<Counted<T>>,
) -> Step<Enlisted<'a, T>> {
    cell.enlist(op, before, after).map_err(|_| Stop::Again)
}
