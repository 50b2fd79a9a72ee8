//! rename: one instant, whatever it moves (P3).
//!
//! All words that change — the two slots, the places of what moves, the life of a directory that is replaced — are
//! enlisted in one [`Operation`]; its commit is the instant. A directory that changes place also writes the rename sequence
//! around it, so that path rendering never mixes two trees; one that changes parents holds the topology lock, under which
//! ancestors stand still (P4).

use std::sync::Arc;

use pando_sync::{Counted, Enlisted, Guard, Object, OpCell, Operation, Shared, Unlinked};

use crate::{
    At, AttrMask, Context, Error, Result, Timestamp, Vfs,
    caches::binding::unbind_stale,
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
        inode::Inode,
        lockable::Lockable,
    },
    operations::{
        backed::note_refusal,
        locks::{Locks, run},
        namei::walk_parent,
        parent::Parent,
        permit::{may_change, may_write},
        remove::{Bound, forget_name, holds_an_entry, note_gone},
        step::{Call, Step, Stop},
    },
    trace::{Place, TraceOp},
    types::{Access, RenameFlags},
};

impl Vfs {
    /// Moves a name (renameat2): over an existing file or empty directory, exchanging two names, or only if the new
    /// one is free.
    ///
    /// # Errors
    /// ENOENT, EEXIST (NOREPLACE), ENOTEMPTY, ENOTDIR, EISDIR, EINVAL (into itself; bad flags), EXDEV, EBUSY, EACCES,
    /// EPERM, ELOOP, ENAMETOOLONG, ENOSPC.
    #[doc(alias = "renameat2")]
    pub fn rename(
        &self,
        context: &Context,
        old_at: At<'_>,
        old_path: impl AsRef<[u8]>,
        new_at: At<'_>,
        new_path: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (old_path, new_path) = (old_path.as_ref(), new_path.as_ref());
        let (old, new) = (Place::Walk(context, old_at, old_path), Place::Walk(context, new_at, new_path));
        self.traced_two(TraceOp::Rename, old, new, || {
            self.rename_at(context, (old_at, old_path), (new_at, new_path), flags)
        })
    }

    fn rename_at(
        &self,
        context: &Context,
        (old_at, old_path): (At<'_>, &[u8]),
        (new_at, new_path): (At<'_>, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.contains(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) || !RenameFlags::all().contains(flags) {
            return Err(Error::Invalid);
        }
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
            let old = attempt.parent(0, || walk_parent(self.name_space(), context, &old_at, old_path, false, guard))?;
            let new = attempt.parent(1, || walk_parent(self.name_space(), context, &new_at, new_path, false, guard))?;
            match Move::prepare(context, old, new, flags, guard, locks)? {
                Some(prepared) => prepared.carry_out(locks, guard),
                None => Ok(()),
            }
        })
    }
}

/// A rename whose locks are held and whose checks have passed.
struct Move<'g> {
    old: Bound<'g>,
    new_dir: Shared<'g, Dentry>,
    new_parent: &'g Inode,
    new_name: &'g [u8],
    new_hash: u64,
    /// What the new name is bound to.
    target: Option<Bound<'g>>,
    exchange: bool,
}

impl<'g> Move<'g> {
    /// Takes the locks and checks everything; none if both names are the same file, and nothing is to be done.
    fn prepare(
        context: &'g Context,
        old: Parent<'g>,
        new: Parent<'g>,
        flags: RenameFlags,
        guard: &'g Guard,
        locks: &mut Locks<'_>,
    ) -> Step<Option<Self>> {
        let (old_parent, new_parent) = (old.dir.to_ref().expect_dir()?, new.dir.to_ref().expect_dir()?);
        let sb = &old_parent.shard.sb;
        if !Arc::ptr_eq(sb, &new_parent.shard.sb) {
            return Err(Error::CrossDevice.into());
        }
        let noreplace = flags.contains(RenameFlags::NOREPLACE);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let old_name = old.any_name(Error::Busy)?;
        let new_name = new.any_name(if noreplace { Error::Exists } else { Error::Busy })?;
        context.writable()?;
        let (old_hash, new_hash) = (old.hash_of(old_name), new.hash_of(new_name));
        let (from, to) = (Lockable::name(old_parent, old_hash)?, Lockable::name(new_parent, new_hash)?);
        let find = |locks: &Locks<'_>| -> Step<(Bound<'g>, Option<Bound<'g>>)> {
            old.name(Error::Busy)?;
            let source = Bound::find(old.dir, old_hash, old_name, locks, guard)?.ok_or(Error::NoEntry)?;
            new.name(Error::Busy)?;
            Ok((source, Bound::find(new.dir, new_hash, new_name, locks, guard)?))
        };
        let same_dir = old.dir.ptr_eq(new.dir);
        let backed = sb.driver.backing().is_some();
        let needed =
            |(source, target): &(Bound<'g>, Option<Bound<'g>>)| Needs::of(source, target.as_ref(), exchange, same_dir);
        // Mostly it is a file that moves: locked first, its names are looked up once. A backing may have to be asked,
        // which is done without locks.
        let mut taken = if backed { needed(&find(locks)?) } else { Needs::default() };
        let (source, target) = loop {
            let wanted = [from, to, taken.loses.map_or(to, |ino| Lockable::number(sb, ino))];
            let count = match taken.loses {
                Some(_) => 3,
                // All names of a directory may have one lock.
                None if from.key == to.key => 1,
                None => 2,
            };
            locks.all(taken.topology, &wanted[..count], taken.rename_seq)?;
            let found = find(locks)?;
            // What is found under the locks may need more of them.
            let now = needed(&found);
            if now.within(&taken) {
                break found;
            }
            taken = now;
        };
        if !Self::expect_possible((&old, &new), new_parent, (&source, target.as_ref()), flags, guard)? {
            return Ok(None);
        }
        if !locks.answered() {
            check_permissions(context, &source, new.dir, target.as_ref(), exchange, guard)?;
            sb.expect_open()?;
        }
        if backed {
            let new_directory = new_parent.directory()?;
            let call = || rename_call(old_parent, old_name, new_parent, new_name, flags);
            let told = locks.call(&[old, new], call);
            told.inspect_err(note_refusal(new_directory, new_hash, new_name, guard))?;
            if target.is_none() {
                unbind_stale(new_directory, new_hash, new_name, guard);
            }
        }
        let prepared = Self { old: source, new_dir: new.dir, new_parent, new_name, new_hash, target, exchange };
        Ok(Some(prepared))
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

    fn carry_out(self, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        match &self.target {
            Some(target) if self.exchange => self.exchange_with(target, locks)?,
            Some(target) => self.replace(target, locks, guard)?,
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
        self.old.parent.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
        self.new_parent.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
        if !self.exchange {
            note_gone(self.old.parent, self.old.hash, self.old.name, guard);
        }
        if let Some(backed) = &new_dir.backed {
            backed.note_present(self.new_hash, self.new_name, guard);
        }
        Ok(())
    }

    fn same_dir(&self) -> bool {
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
    fn replace(&self, target: &Bound<'g>, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
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
        // A backing has had the last word: what the cache still shows in there, others have removed.
        if removal.is_some() && !locks.answered() && holds_an_entry(victim, guard) {
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
        // Within one directory there are as many names as before. (A directory that is kept elsewhere counts changes, too.)
        let counts = !std::ptr::eq(self.old.parent, self.new_parent) || new_directory.backed.is_some();
        if counts {
            new_directory.count_up(false, guard);
            return self.leave_old_slot(guard);
        }
        new_directory.remove(self.old.slot, guard);
        Ok(())
    }

    /// A slot for the new name, in no table yet.
    fn new_slot(&self, value: OpCell<Dentry>, guard: &Guard) -> Result<Unlinked<Slot>> {
        let anchor = self.new_parent.directory()?.anchor(self.new_dir, guard)?;
        Ok(Unlinked::new(Slot::new(anchor, self.new_name, value)))
    }

    /// The old name is gone: its slot leaves the table.
    fn leave_old_slot(&self, guard: &Guard) -> Step<()> {
        let directory = self.old.parent.directory()?;
        directory.remove(self.old.slot, guard);
        directory.count_down(false, guard);
        Ok(())
    }
}

/// Tells a backing of a rename.
fn rename_call(old_parent: &Inode, old_name: &[u8], new_parent: &Inode, new_name: &[u8], flags: RenameFlags) -> Call {
    let (old_dir, new_dir) = (old_parent.ino, new_parent.ino);
    let (old_name, new_name) = (Box::<[u8]>::from(old_name), Box::<[u8]>::from(new_name));
    Call::new(&old_parent.shard.sb, move |backing| {
        backing.rename((old_dir, &old_name), (new_dir, &new_name), flags).map(|()| 0)
    })
}

/// Which locks a rename needs besides those of its names.
#[derive(Default)]
struct Needs {
    /// Ancestors matter: a directory is moved to, or over, another parent's.
    topology: bool,
    /// A directory changes its place.
    rename_seq: bool,
    /// The inode that loses a name, where a backing counts names.
    loses: Option<u64>,
}

impl Needs {
    fn of(source: &Bound<'_>, target: Option<&Bound<'_>>, exchange: bool, same_dir: bool) -> Self {
        let backed = source.parent.shard.sb.driver.backing().is_some();
        let loses = target.filter(|_| backed).map(|target| target.inode().ino);
        let (source, target) = (source.inode().is_dir(), target.is_some_and(|target| target.inode().is_dir()));
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
