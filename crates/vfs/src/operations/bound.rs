//! A name found bound in a directory, and how it is taken away.

use std::sync::atomic::{Ordering, fence};

use pando_sync::{Counted, Guard, Node, Operation, Shared};

use crate::{
    Context, Error, Result, Timestamp,
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
        inode::Inode,
    },
    operations::{
        permit::may_change,
        remote::lookup::cached_or_ask,
        step::{Step, Stop},
    },
    types::{cred::PermView, stat::S_ISVTX},
};

/// A name found bound in a directory.
pub(crate) struct Bound<'g> {
    pub dir: Shared<'g, Dentry>,
    pub parent: &'g Inode,
    pub name: &'g [u8],
    pub slot: Shared<'g, Node<Slot>>,
    pub dentry: Shared<'g, Dentry>,
}

impl<'g> Bound<'g> {
    /// The binding now, if there is one: as far as the directory's table knows.
    #[inline]
    pub(crate) fn find(dir: Shared<'g, Dentry>, hash: u64, name: &'g [u8], guard: &'g Guard) -> Result<Option<Self>> {
        let parent = dir.to_ref().expect_dir()?;
        let found = parent.directory()?.slot_to_change(hash, name, guard);
        Ok(found.and_then(|slot| {
            let dentry = slot.to_ref().value.load(guard)?;
            Some(Self { dir, parent, name, slot, dentry })
        }))
    }

    /// The same in a tree with a backing, which is to be asked if the cache does not know.
    pub(crate) fn ask(dir: Shared<'g, Dentry>, hash: u64, name: &'g [u8], guard: &'g Guard) -> Step<Option<Self>> {
        let parent = dir.to_ref().expect_dir()?;
        let found = cached_or_ask(dir, (name, hash), guard, Directory::slot_to_change)?;
        Ok(found.map(|(slot, dentry)| Self { dir, parent, name, slot, dentry }))
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

    /// Takes the name of a file away. The caller has checked all, and drops the dentry that the name showed.
    #[inline]
    pub(crate) fn take_file(&self, guard: &Guard) -> Step<Counted<Dentry>> {
        // The instant at which the name is gone. A thread that takes a tree in memory down locks no names: what it was quicker
        // with goes without being counted.
        let Some(gone) = self.slot.to_ref().value.replace(None) else { return Err(Error::NoEntry.into()) };
        let now = Timestamp::now().0;
        let directory = self.parent.directory()?;
        directory.remove(self.slot, guard);
        directory.count_down(false, guard);
        self.parent.entries_changed(now);
        // Counted down after the name is gone, so the count is never too low (protocol 6).
        self.inode().link_gone();
        self.inode().touch(now);
        Ok(gone)
    }

    /// Takes an empty directory away: one operation over the directory's life and its slot. `holds_an_entry` is asked once
    /// nothing more is made in there.
    pub(crate) fn take_dir(
        &self,
        holds_an_entry: impl FnOnce(&Inode, &Guard) -> bool,
        guard: &Guard,
    ) -> Step<Counted<Dentry>> {
        let victim = self.inode().directory()?;
        let op = Operation::new();
        let removal = victim.life.begin_removal(&op).map_err(|_| Error::NoEntry)?;
        let slot = self.slot.to_ref();
        let name = slot.value.enlist(&op, Some(self.dentry), None).map_err(|_| Stop::Again)?;
        if holds_an_entry(self.inode(), guard) {
            return Err(Error::NotEmpty.into());
        }
        // The instant. A creator that came in between has aborted it; its entry may not be seen yet, so look again.
        if !op.commit() {
            return Err(Stop::Again);
        }
        removal.finish();
        let gone = name.finish().ok_or(Error::NoEntry)?;
        let now = Timestamp::now().0;
        let directory = self.parent.directory()?;
        directory.remove(self.slot, guard);
        directory.count_down(true, guard);
        self.parent.entries_changed(now);
        victim.detach();
        self.inode().times.changed(now);
        Ok(gone)
    }
}

/// A dentry has lost its name for good, and the caller holds the name's lock. Its proxies are released,
/// and so is its entry by number, if the inode has no other name. True if proxies may have to be
/// reclaimed before it can be freed.
pub(crate) fn forget_name(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    let dentry = dentry.to_ref();
    let inode = dentry.inode();
    if inode.is_dir() {
        // For a file, the count of its names does it: see `Inode::set_numbered`.
        fence(Ordering::SeqCst);
    }
    if inode.was_numbered() && inode.is_nameless(guard) {
        drop(dentry.sb().nodes.name_gone(inode.ino, guard));
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
