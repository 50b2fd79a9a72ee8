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
    inode::Inode,
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
        let is_new = self.table.insert(entry, guard).map_err(|rejected| drop(ByNumber::empty(&rejected))).is_ok();
        if is_new && self.table.is_time_to_count() {
            self.note_size();
        }
        is_new
    }

    /// The next inodes that look idle. Other threads get other inodes, until the hand has passed
    /// all. An inode that was found in the cache again since it was looked at last, or that is
    /// new, is left alone this time (a *second chance*; analogous to `inode_lru_isolate()`).
    /// `is_counted` says whether a number is counted for a server's clients.
    pub(crate) fn idle_batch(&self, is_counted: impl Fn(u64) -> bool, guard: &Guard) -> Idle {
        const BATCH: usize = 64;
        // The cache's reference and that of the directory entry. A directory also has parent
        // references, which are released if none of its names is cached.
        const IDLE: usize = 2;
        // A number that is counted has a reference, too.
        let is_idle = |dentry: Shared<'_, Dentry>, is_counted: bool| match dentry.to_ref().directory() {
            Ok(directory) => directory.dirents_after(0, guard).next().is_none(),
            Err(_) => dentry.count() <= IDLE + usize::from(is_counted),
        };
        let mut from = self.hand.load(Ordering::Relaxed);
        let (entries, last) = loop {
            let (entries, last) = self.table.batch(from, BATCH, guard);
            match self.hand.compare_exchange(from, last.unwrap_or(0), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break (entries, last),
                Err(now) => from = now,
            }
        };
        let mut idle = Idle { looked: entries.len(), at_end: last.is_none(), ..Idle::default() };
        for entry in entries {
            let Some(dentry) = entry.to_ref().dentry(guard) else { continue };
            let ino = entry.to_ref().ino();
            let is_counted = is_counted(ino);
            if !is_idle(dentry, is_counted) {
                continue;
            }
            if dentry.to_ref().inode().take_chance() {
                idle.spared += 1;
            } else if is_counted {
                idle.counted.push(ino);
            } else {
                idle.inodes.extend(dentry.get());
            }
        }
        idle
    }

    /// Whether `count` inodes may be added without a search for idle ones, because the last search
    /// was not worth its time.
    pub(crate) fn skips_search(&self, count: usize) -> bool {
        let skip = |left: usize| (left > 0).then(|| left.saturating_sub(count));
        // Loaded first: as a rule it is 0, and then nothing is written.
        self.unsearched.load(Ordering::Relaxed) > 0
            && self.unsearched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip).is_ok()
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
        if let Some(dentry) = self.table.remove(frozen.0, guard) {
            uncount_xattrs(dentry.inode(), guard);
        }
    }

    /// Removes an inode that has lost its last name, so no walk can reach it. The caller puts the
    /// reference, without a guard if it can.
    pub(crate) fn remove_unlinked(&self, dentry: &Dentry, guard: &Guard) -> Option<Counted<Dentry>> {
        let entry = self.entry_of(dentry, guard)?;
        if entry.to_ref().note.swap(true, Ordering::AcqRel) {
            return None;
        }
        uncount_xattrs(dentry.inode(), guard);
        self.table.remove(entry, guard)
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

/// Inodes that look idle.
#[derive(Default)]
pub(crate) struct Idle {
    pub inodes: Vec<Counted<Dentry>>,
    /// The numbers of those that only a server's clients keep in the cache.
    pub counted: Vec<u64>,
    /// How many inodes were looked at.
    pub looked: usize,
    /// How many idle ones were left to their second chance.
    pub spared: usize,
    /// The next batch begins with the first inode of the table.
    pub at_end: bool,
}

/// A cache entry whose inode is frozen.
#[must_use = "threads that find the inode start over until it is evicted"]
pub(crate) struct Frozen<'g>(Shared<'g, NumberedNode<AtomicBool>>);

/// The inode leaves the cache: its extended attributes do not count any more.
fn uncount_xattrs(inode: &Inode, guard: &Guard) {
    if let Some(xattrs) = inode.xattrs.load(guard) {
        inode.count_xattrs(xattrs.to_ref(), 0);
    }
}
