//! The inode cache of a tree with a backing: the one inode of each number that is known here.
//!
//! It holds a reference to each, and an eviction takes out those that nobody else refers to. Two want to take one out: an
//! eviction, and whoever takes the last name away (nobody can come to it any more). Who marks the entry as leaving does it.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_sync::{Counted, Guard, Shared, pin};

use crate::objects::{
    by_number::{ByNumber, Entry},
    dentry::Dentry,
    tables::InodeCache,
};

impl InodeCache {
    /// The inode of a number, unless it is not known here, or is on its way out.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        self.table.get(ino, guard)
    }

    /// Takes in an inode that was made in a backing or loaded from it; false if its number is there already.
    pub(crate) fn adopt(&self, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
        let entry = ByNumber::make(dentry.clone(), AtomicBool::new(false));
        self.table.insert(entry, guard).map_err(|rejected| drop(ByNumber::empty(&rejected))).is_ok()
    }

    /// A number that rises before each eviction is seen.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::SeqCst)
    }

    /// Some inodes that look idle, from where the last batch ended; and whether that was the end.
    pub(crate) fn idle_batch(&self, guard: &Guard) -> (Vec<Counted<Dentry>>, bool) {
        const BATCH: usize = 64;
        // Ours, and its slot's. Directories have more, which are let go of if nothing is cached of them.
        const IDLE: usize = 2;
        let is_idle = |dentry: Shared<'_, Dentry>| match dentry.to_ref().directory() {
            Ok(directory) => directory.slots_after(0, guard).next().is_none(),
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

    /// The entry of an inode, if it is the one of its number here.
    fn entry_of<'g>(&self, dentry: &Dentry, guard: &'g Guard) -> Option<Shared<'g, Entry<AtomicBool>>> {
        let inode = dentry.inode();
        let is_here = |here: Shared<'_, Dentry>| std::ptr::eq(here.to_ref().inode(), inode);
        self.table.entry(inode.ino, guard).filter(|entry| entry.to_ref().dentry(guard).is_some_and(is_here))
    }

    /// If an inode is in the cache, and `references` (this one, and others that the caller answers for) and the cache's are
    /// all that there are: makes sure that nobody gets another. Its entry is to be [evicted](InodeCache::evict) then.
    pub(crate) fn condemn<'g>(
        &self,
        dentry: &Counted<Dentry>,
        references: usize,
        guard: &'g Guard,
    ) -> Option<Condemned<'g>> {
        debug_assert!(!dentry.is_link(), "further links are in a table of their own");
        let entry = self.entry_of(dentry, guard)?;
        if !Counted::freeze(dentry, references + 1) {
            return None;
        }
        // If it has left meanwhile, one of those references was somebody's.
        if entry.to_ref().note.swap(true, Ordering::AcqRel) {
            Counted::unfreeze(dentry);
            return None;
        }
        Some(Condemned(entry))
    }

    /// Takes out what was condemned.
    pub(crate) fn evict(&self, condemned: Condemned<'_>, guard: &Guard) {
        self.evictions.fetch_add(1, Ordering::SeqCst);
        drop(self.table.remove(condemned.0, guard));
    }

    /// Takes out an inode that has no name any more: nobody can come to it. The caller puts the reference, without a guard
    /// if he can.
    pub(crate) fn leave(&self, dentry: &Dentry, guard: &Guard) -> Option<Counted<Dentry>> {
        let entry = self.entry_of(dentry, guard)?;
        if entry.to_ref().note.swap(true, Ordering::AcqRel) { None } else { self.table.remove(entry, guard) }
    }

    /// All inodes in the cache; no guard is held.
    pub(crate) fn all(&self) -> Vec<Counted<Dentry>> {
        let (mut all, mut after) = (Vec::new(), Some(0));
        while let Some(position) = after {
            let guard = pin();
            let (batch, last) = self.table.batch(position, 1024, &guard);
            all.extend(batch.into_iter().filter_map(|entry| entry.to_ref().dentry(&guard)?.get()));
            after = last;
        }
        all
    }

    /// The tree is taken down.
    pub(crate) fn clear(&self) {
        self.table.clear(|_| {});
    }
}

/// An entry of the cache whose inode nobody gets any more.
#[must_use = "whoever finds it starts over until it is evicted"]
pub(crate) struct Condemned<'g>(Shared<'g, Entry<AtomicBool>>);
