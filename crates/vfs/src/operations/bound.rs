//! A name that was found bound in a directory, and its removal.

use std::sync::atomic::{Ordering, fence};

use pando_sync::{Counted, Guard, Node, Operation, Shared};

use crate::{
    Context, Error, InodeFlags, Result, Timestamp,
    objects::{
        dentry::{Dentry, Dirent},
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

/// A name that was found bound in a directory.
pub(crate) struct Bound<'g> {
    pub dir: Shared<'g, Dentry>,
    pub parent: &'g Inode,
    pub name: &'g [u8],
    pub dirent: Shared<'g, Node<Dirent>>,
    pub dentry: Shared<'g, Dentry>,
}

impl<'g> Bound<'g> {
    /// Looks up what the name is bound to, as far as the directory's table knows.
    #[inline]
    pub(crate) fn find(dir: Shared<'g, Dentry>, hash: u64, name: &'g [u8], guard: &'g Guard) -> Result<Option<Self>> {
        let parent = dir.to_ref().expect_dir()?;
        let found = parent.directory()?.dirent_to_remove(hash, name, guard);
        Ok(found.and_then(|dirent| {
            let dentry = dirent.to_ref().value.load(guard)?;
            Some(Self { dir, parent, name, dirent, dentry })
        }))
    }

    /// Like [`Bound::find`] in a tree with a backing. If the cache does not know the name, the
    /// attempt ends with a question to the backing.
    pub(crate) fn ask(dir: Shared<'g, Dentry>, hash: u64, name: &'g [u8], guard: &'g Guard) -> Step<Option<Self>> {
        let parent = dir.to_ref().expect_dir()?;
        let found = cached_or_ask(dir, (name, hash), guard, Directory::dirent_to_remove)?;
        Ok(found.map(|(dirent, dentry)| Self { dir, parent, name, dirent, dentry }))
    }

    pub(crate) fn inode(&self) -> &'g Inode {
        self.dentry.to_ref().inode()
    }

    /// Whether the caller may remove this name (analogous to `may_delete()` in fs/namei.c).
    /// `want_dir` says whether it must be a directory, or must not be one. The caller holds the
    /// lock of the name.
    pub(crate) fn may_delete(&self, context: &Context, want_dir: Option<bool>, guard: &Guard) -> Step<()> {
        may_change(context, self.parent, guard)?;
        let dir_perm = self.parent.perm(guard);
        let is_kept = self.parent.permissions(guard).flags.contains(InodeFlags::APPEND)
            || self.inode().permissions(guard).flags.intersects(InodeFlags::PROTECTING);
        if is_kept || is_sticky(context, &dir_perm, &self.inode().perm(guard)) {
            return Err(Error::NotPermitted.into());
        }
        match want_dir {
            Some(true) if !self.inode().is_dir() => return Err(Error::NotDirectory.into()),
            Some(false) if self.inode().is_dir() => return Err(Error::IsDirectory.into()),
            _ => {}
        }
        Ok(())
    }

    /// Checks that nothing is mounted on it. This is the last check, for a caller that may
    /// otherwise move or remove the name.
    pub(crate) fn expect_no_mount(&self) -> Result<()> {
        let is_mount_point = self.inode().directory().is_ok_and(|directory| !directory.mounted.is_none());
        if is_mount_point { Err(Error::Busy) } else { Ok(()) }
    }

    /// Removes the name of a file (analogous to `vfs_unlink()` in fs/namei.c). The caller has made
    /// all checks, holds the lock of the name, and drops the returned dentry.
    #[inline]
    pub(crate) fn unlink_file(&self, guard: &Guard) -> Step<Counted<Dentry>> {
        // The linearization point of the unlink. A thread that shuts a tree in memory down takes no
        // name locks. If it removed this name first, this thread must not count the removal.
        let Some(gone) = self.dirent.to_ref().value.replace(None) else { return Err(Error::NoEntry.into()) };
        let now = Timestamp::now().0;
        let directory = self.parent.directory()?;
        directory.remove(self.dirent, guard);
        directory.count_down(false, guard);
        self.parent.entries_changed(now);
        // The link count decreases after the name is gone, so the count is never too low (protocol
        // 6).
        self.inode().count_link_down();
        self.inode().touch(now);
        Ok(gone)
    }

    /// Removes an empty directory (analogous to `vfs_rmdir()` in fs/namei.c). One operation covers
    /// the directory's life and its entry. `holds_an_entry` is called when no further entry can be
    /// made in the directory. The caller has made all other checks and holds the lock of the name.
    ///
    /// ```text
    /// creator in the directory            this thread
    /// insert the entry, pending
    ///                                     life := removing
    /// fence                               fence
    /// read life: removing -> abort        read the entries: pending -> publish it
    /// publish                             ENOTEMPTY
    /// ```
    pub(crate) fn remove_empty_dir(
        &self,
        holds_an_entry: impl FnOnce(&Inode, &Guard) -> bool,
        guard: &Guard,
    ) -> Step<Counted<Dentry>> {
        let victim = self.inode().directory()?;
        let op = Operation::new();
        let removal = victim.life.begin_removal(&op).map_err(|_| Error::NoEntry)?;
        let dirent = self.dirent.to_ref();
        let name = dirent.value.enlist(&op, Some(self.dentry), None).map_err(|_| Stop::Again)?;
        if holds_an_entry(self.inode(), guard) {
            return Err(Error::NotEmpty.into());
        }
        // The linearization point. If a creator has aborted the operation meanwhile, its entry may
        // not be visible yet, so the next attempt looks again.
        if !op.commit() {
            return Err(Stop::Again);
        }
        removal.finish();
        let gone = name.finish().ok_or(Error::NoEntry)?;
        let now = Timestamp::now().0;
        let directory = self.parent.directory()?;
        directory.remove(self.dirent, guard);
        directory.count_down(true, guard);
        self.parent.entries_changed(now);
        victim.drop_parent_refs();
        self.inode().times.changed(now);
        Ok(gone)
    }
}

/// A dentry has lost its name for good, and the caller holds the lock of that name. This releases
/// the dentry's per-CPU reference count, and the inode's entry in the table by number if the inode
/// has no other name. Returns true if the per-CPU reference count may have to be reclaimed before
/// the dentry can be freed.
pub(crate) fn forget_name(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    let dentry = dentry.to_ref();
    let inode = dentry.inode();
    if inode.is_dir() {
        // For a file, the change of the link count is the barrier: see `Inode::set_numbered`.
        fence(Ordering::SeqCst);
    }
    if inode.has_handed_out_number() && inode.is_unlinked(guard) {
        drop(dentry.sb().nodes.last_name_removed(inode.ino, guard));
    }
    dentry.open_counts.collapse()
}

/// Whether a directory whose removal has begun holds an entry. Pending entries are published, and
/// count.
pub(crate) fn holds_an_entry(dir: &Inode, guard: &Guard) -> bool {
    dir.directory().is_ok_and(|d| d.dirents_after(0, guard).any(|dirent| dirent.to_ref().value.occupied(guard)))
}

/// Whether a directory shows an entry now. False for other inodes.
pub(crate) fn shows_an_entry(dir: &Inode, guard: &Guard) -> bool {
    dir.directory().is_ok_and(|d| d.dirents_after(0, guard).any(|dirent| dirent.to_ref().value.load(guard).is_some()))
}

/// Whether the sticky bit of a directory protects an entry from the caller (analogous to
/// `check_sticky()` in include/linux/fs.h).
fn is_sticky(context: &Context, dir: &PermView, entry: &PermView) -> bool {
    dir.mode & S_ISVTX != 0 && !context.owns(entry) && !context.owns(dir)
}
