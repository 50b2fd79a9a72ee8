//! Taking names away: unlink and rmdir.

use std::sync::atomic::{Ordering, fence};

use pando_sync::{Guard, Node, Operation, Shared};

use crate::{
    At, AttrMask, Context, Error, Result, Timestamp, Vfs,
    backed::{Call, check_fresh, miss},
    create::S_ISVTX,
    dentry::{Dentry, Slot},
    inode::{Inode, PermView},
    locks::{Lockable, Locks, Step, Stop, run},
    namei::{Last, Parent, walk_parent},
    permit::may_change,
    trace::TraceOp,
};

impl Vfs {
    /// Takes the name of a file away (unlinkat). The file lives until its last name and its last user are gone.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES, EPERM (sticky directory), EBUSY, ENOTDIR, ELOOP, ENAMETOOLONG.
    #[doc(alias = "unlinkat")]
    pub fn unlink(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Unlink, (context, at, path), || self.unlink_at(context, at, path))
    }

    fn unlink_at(&self, context: &Context, at: At<'_>, path: &[u8]) -> Result<()> {
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
            let parent = attempt.parent(0, || walk_parent(self.name_space(), context, &at, path, false, guard))?;
            // Asked before the name is looked for, however long it is.
            parent.any_name(Error::IsDirectory)?;
            context.writable()?;
            let name = parent.name(Error::IsDirectory)?;
            if parent.slash {
                let bound = Bound::lookup(parent, name, locks, guard)?;
                let is_dir = bound.dentry.to_ref().is_dir();
                return Err(Stop::Error(if is_dir { Error::IsDirectory } else { Error::NotDirectory }));
            }
            let bound = Bound::locked(parent, name, locks, guard)?;
            if !locks.answered() {
                bound.may_delete(context, Some(false), guard)?;
            }
            bound.remove_in_backing(parent, locks)?;
            // The instant at which the name is gone. Who takes a tree in memory down locks no names: what he was quicker with goes
            // without being counted.
            let Some(gone) = bound.slot.to_ref().value.replace(None) else { return Err(Error::NoEntry.into()) };
            let now = Timestamp::now().0;
            let directory = bound.parent.directory()?;
            directory.remove(bound.slot, guard);
            directory.count_down(false, guard);
            bound.parent.entries_changed(now);
            // Counted down after the name is gone, so the count is never too low (protocol 6).
            bound.inode().link_gone();
            bound.inode().touch(now);
            note_gone(bound.parent, bound.hash, bound.name, guard);
            locks.collect = forget_name(bound.dentry, guard) || bound.inode().links.are_gone();
            drop(gone);
            Ok(())
        })
    }

    /// Removes an empty directory (unlinkat with AT_REMOVEDIR).
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EBUSY (mount point, root), EINVAL (`.`), EACCES, EPERM, ELOOP, ENAMETOOLONG.
    pub fn rmdir(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Rmdir, (context, at, path), || self.rmdir_at(context, at, path))
    }

    fn rmdir_at(&self, context: &Context, at: At<'_>, path: &[u8]) -> Result<()> {
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
            let parent = attempt.parent(0, || walk_parent(self.name_space(), context, &at, path, false, guard))?;
            let otherwise = match parent.last {
                Last::Name(_) | Last::Dot => Error::Invalid,
                Last::DotDot => Error::NotEmpty,
                Last::Root => Error::Busy,
            };
            parent.any_name(otherwise)?;
            context.writable()?;
            let name = parent.name(otherwise)?;
            let bound = Bound::locked(parent, name, locks, guard)?;
            if !locks.answered() {
                bound.may_delete(context, Some(true), guard)?;
                bound.expect_no_mount()?;
            }
            bound.remove_in_backing(parent, locks)?;
            bound.remove_dir(locks, guard)
        })
    }
}

/// A name found bound in a directory.
pub(crate) struct Bound<'g> {
    pub dir: Shared<'g, Dentry>,
    pub parent: &'g Inode,
    pub hash: u64,
    pub name: &'g [u8],
    pub slot: Shared<'g, Node<Slot>>,
    pub dentry: Shared<'g, Dentry>,
}

impl<'g> Bound<'g> {
    /// Looks the name up, without a lock.
    fn lookup(place: Parent<'g>, name: &'g [u8], locks: &Locks<'_>, guard: &'g Guard) -> Step<Self> {
        Ok(Self::find(place.dir, place.hash_of(name), name, locks, guard)?.ok_or(Error::NoEntry)?)
    }

    /// The binding now, if there is one; a backing is asked if the cache does not know, unless it has already made the
    /// change that this is about.
    #[inline]
    pub(crate) fn find(
        dir: Shared<'g, Dentry>,
        hash: u64,
        name: &'g [u8],
        locks: &Locks<'_>,
        guard: &'g Guard,
    ) -> Step<Option<Self>> {
        let parent = dir.to_ref().expect_dir()?;
        let directory = parent.directory()?;
        if !locks.answered() {
            check_fresh(dir, parent, directory)?;
        }
        let bound = directory.slot_to_change(hash, name, guard).and_then(|slot| {
            let dentry = slot.to_ref().value.load(guard)?;
            Some(Self { dir, parent, hash, name, slot, dentry })
        });
        if bound.is_none() && directory.backed.is_some() && !locks.answered() {
            miss(dir, parent, directory, hash, name, guard)?;
        }
        Ok(bound)
    }

    /// Looks the name up under its lock. A name that is not there costs a lock that is mostly free; one that is there is
    /// looked up once. In a tree with a backing, the inode is locked as well, whose names are counted.
    fn locked(place: Parent<'g>, name: &'g [u8], locks: &mut Locks<'_>, guard: &'g Guard) -> Step<Self> {
        let dir = place.dir;
        let parent = dir.to_ref().expect_dir()?;
        let sb = &parent.shard.sb;
        let hash = place.hash_of(name);
        let wanted = Lockable::name(parent, hash)?;
        if sb.driver.backing().is_none() {
            locks.names(&[wanted])?;
            return Ok(Self::find(dir, hash, name, locks, guard)?.ok_or(Error::NoEntry)?);
        }
        let found = Self::find(dir, hash, name, locks, guard)?.ok_or(Error::NoEntry)?;
        locks.names(&[wanted, Lockable::inode(found.inode())])?;
        let now = Self::find(dir, hash, name, locks, guard)?.ok_or(Error::NoEntry)?;
        if now.inode().ino == found.inode().ino { Ok(now) } else { Err(Stop::Again) }
    }

    pub(crate) fn inode(&self) -> &'g Inode {
        self.dentry.to_ref().inode()
    }

    /// Whether the caller may take this name away; with `want_dir`, whether it is (or is not) a directory. The name is
    /// locked.
    pub(crate) fn may_delete(&self, context: &Context, want_dir: Option<bool>, guard: &Guard) -> Step<()> {
        may_change(context, self.parent, guard)?;
        let dir_perm = self.parent.perm(guard);
        if is_sticky(context, &dir_perm, &self.inode().perm(guard)) {
            return Err(Error::NotPermitted.into());
        }
        match want_dir {
            Some(true) if !self.inode().is_dir() => return Err(Error::NotDirectory.into()),
            Some(false) if self.inode().is_dir() => return Err(Error::IsDirectory.into()),
            _ => {}
        }
        Ok(())
    }

    /// That nothing is mounted on it: asked last, of whoever may move or remove it otherwise.
    pub(crate) fn expect_no_mount(&self) -> Result<()> {
        let is_mount_point = self.inode().directory().is_ok_and(|directory| !directory.mounted.is_none());
        if is_mount_point { Err(Error::Busy) } else { Ok(()) }
    }

    /// Tells a backing, if there is one, that the name goes.
    fn remove_in_backing(&self, parent: Parent<'_>, locks: &mut Locks<'_>) -> Step<()> {
        let sb = &self.parent.shard.sb;
        if sb.driver.backing().is_some() {
            if !locks.answered() {
                // Who takes the tree down would take away what the next attempt is about.
                sb.expect_open()?;
            }
            locks.call(&[parent], || {
                let (dir, name) = (self.parent.ino, Box::<[u8]>::from(self.name));
                Call::new(sb, move |backing| backing.remove(dir, &name).map(|()| 0))
            })?;
        }
        Ok(())
    }

    /// rmdir, with the name's lock held: one operation over the directory's life and its slot.
    fn remove_dir(&self, locks: &mut Locks<'_>, guard: &Guard) -> Step<()> {
        let victim = self.inode().directory()?;
        let op = Operation::new();
        let removal = victim.life.begin_removal(&op).map_err(|_| Error::NoEntry)?;
        let slot = self.slot.to_ref();
        let name = slot.value.enlist(&op, Some(self.dentry), None).map_err(|_| Stop::Again)?;
        // A backing has had the last word: what the cache still shows in there, others have removed.
        if !locks.answered() && holds_an_entry(self.inode(), guard) {
            return Err(Error::NotEmpty.into());
        }
        // The instant. A creator that came in between has aborted it; its entry may not be seen yet, so look again.
        if !op.commit() {
            return Err(Stop::Again);
        }
        removal.finish();
        let gone = name.finish();
        let now = Timestamp::now().0;
        let directory = self.parent.directory()?;
        directory.remove(self.slot, guard);
        directory.count_down(true, guard);
        self.parent.entries_changed(now);
        victim.detach();
        self.inode().times.changed(now);
        note_gone(self.parent, self.hash, self.name, guard);
        locks.collect = forget_name(self.dentry, guard);
        drop(gone);
        Ok(())
    }
}

/// A name of a directory is gone: a backed one remembers that. The caller holds the name's lock.
pub(crate) fn note_gone(parent: &Inode, hash: u64, name: &[u8], guard: &Guard) {
    if let Some(backed) = parent.backed_dir() {
        backed.note_absent(hash, name, guard);
        parent.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
    }
}

/// A dentry has lost its name for good, whose lock is held. Its proxies are released, and so is what the tables by number
/// hold of an inode without a name. True if proxies may have to be reclaimed before it can go.
pub(crate) fn forget_name(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    let dentry = dentry.to_ref();
    let (sb, inode) = (dentry.sb(), dentry.inode());
    if inode.is_dir() {
        // Of a file, the count of its names does it: see `Inode::set_numbered`.
        fence(Ordering::SeqCst);
    }
    if inode.was_numbered() && inode.is_nameless(guard) {
        drop(sb.nodes.name_gone(inode.ino, guard));
    }
    if sb.driver.backing().is_some() {
        sb.links.remove(dentry);
        if inode.is_nameless(guard) {
            drop(sb.inodes.leave(dentry, guard));
        }
    }
    dentry.proxies.collapse()
}

/// Whether a directory whose removal has begun holds an entry: pending ones are published, and count.
pub(crate) fn holds_an_entry(dir: &Inode, guard: &Guard) -> bool {
    dir.directory().is_ok_and(|d| d.slots_after(0, guard).any(|slot| slot.to_ref().value.occupied(guard)))
}

/// Whether the sticky bit of a directory protects an entry against the caller.
fn is_sticky(context: &Context, dir: &PermView, entry: &PermView) -> bool {
    dir.mode & S_ISVTX != 0 && !context.owns(entry) && !context.owns(dir)
}
