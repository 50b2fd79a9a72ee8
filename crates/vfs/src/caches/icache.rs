//! The inode cache of a tree with a backing: one inode of each number. Analogous to
//! `inode_hashtable`.
//!
//! The cache holds a reference to each inode. An eviction removes an inode if nothing else refers
//! to it. The thread that removes the last name of an inode removes it, too, because no walk can
//! reach it any more. If both happen at once, the thread that marks the entry as leaving removes
//! it.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_sync::{Counted, Guard, Shared};

use crate::objects::{
    by_number::{ByNumber, NumberedNode},
    dentry::Dentry,
    tables::InodeCache,
};

impl InodeCache {
    /// The inode of a number. None if it is not cached, or is being released.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        self.table.get(ino, guard)
    }

    /// As [`InodeCache::get`], without a reference. Analogous to `find_inode_rcu()`.
    pub(crate) fn look<'g>(&self, ino: u64, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        self.table.entry(ino, guard)?.to_ref().dentry(guard)
    }

    /// Inserts an inode that was created in a backing or loaded from it. False if its number is in
    /// the cache already.
    pub(crate) fn adopt(&self, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
        let entry = ByNumber::make(dentry.clone(), AtomicBool::new(false));
        self.table.insert(entry, guard).map_err(|rejected| drop(ByNumber::empty(&rejected))).is_ok()
    }

    /// A batch of inodes that look idle, beginning where the last batch ended, and whether the end
    /// was reached.
    pub(crate) fn idle_batch(&self, guard: &Guard) -> (Vec<Counted<Dentry>>, bool) {
        const BATCH: usize = 64;
        // The cache's reference and that of the directory entry. A directory also has parent
        // references, which are released if none of its names is cached.
        const IDLE: usize = 2;
        let is_idle = |dentry: Shared<'_, Dentry>| match dentry.to_ref().directory() {
            Ok(directory) => directory.dirents_after(0, guard).next().is_none(),
            Err(_) => dentry.count() <= IDLE,
        };
        let (entries, last) = self.table.batch(self.hand.load(Ordering::Relaxed), BATCH, guard);
        self.hand.store(last.unwrap_or(0), Ordering::Relaxed);
        let idle = entries.into_iter().filter_map(|entry| {
            let dentry = entry.to_ref().dentry(guard)?;
            if is_idle(dentry) { dentry.get() } else { None }
        });
        (idle.collect(), last.is_none())
    }

    /// The entry of an inode, if the cache has this inode under its number.
    fn entry_of<'g>(&self, dentry: &Dentry, guard: &'g Guard) -> Option<Shared<'g, NumberedNode<AtomicBool>>> {
        let inode = dentry.inode();
        let is_here = |here: Shared<'_, Dentry>| std::ptr::eq(here.to_ref().inode(), inode);
        self.table.entry(inode.ino, guard).filter(|entry| entry.to_ref().dentry(guard).is_some_and(is_here))
    }

    /// Freezes an inode if it is in the cache and there are no references but the cache's own and
    /// `references` others, all of which the caller accounts for. From then on no thread can get a
    /// reference. The caller must [evict](InodeCache::evict) the entry.
    pub(crate) fn freeze<'g>(
        &self,
        dentry: &Counted<Dentry>,
        references: usize,
        guard: &'g Guard,
    ) -> Option<Frozen<'g>> {
        debug_assert!(!dentry.is_link(), "aliases are in a table of their own");
        let entry = self.entry_of(dentry, guard)?;
        if !Counted::freeze(dentry, references + 1) {
            return None;
        }
        // If another thread has removed the entry meanwhile, one of the counted references was a
        // user's.
        if entry.to_ref().note.swap(true, Ordering::AcqRel) {
            Counted::unfreeze(dentry);
            return None;
        }
        Some(Frozen(entry))
    }

    /// Removes a frozen inode.
    pub(crate) fn evict(&self, frozen: Frozen<'_>, guard: &Guard) {
        drop(self.table.remove(frozen.0, guard));
    }

    /// Removes an inode that has lost its last name, so no walk can reach it. The caller puts the
    /// reference, without a guard if it can.
    pub(crate) fn remove_unlinked(&self, dentry: &Dentry, guard: &Guard) -> Option<Counted<Dentry>> {
        let entry = self.entry_of(dentry, guard)?;
        if entry.to_ref().note.swap(true, Ordering::AcqRel) { None } else { self.table.remove(entry, guard) }
    }

    /// All inodes in the cache. The caller holds no guard.
    pub(crate) fn all(&self) -> Vec<Counted<Dentry>> {
        self.table.filter_map(|entry, guard| entry.dentry(guard)?.get())
    }

    /// Removes all inodes, because the tree is shut down.
    pub(crate) fn clear(&self) {
        self.table.clear(|_| {});
    }
}

/// A cache entry whose inode is frozen.
#[must_use = "threads that find the inode start over until it is evicted"]
pub(crate) struct Frozen<'g>(Shared<'g, NumberedNode<AtomicBool>>);
