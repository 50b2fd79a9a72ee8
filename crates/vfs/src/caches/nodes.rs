//! Node numbers that a server (FUSE) has handed out, and the inodes that they belong to.
//!
//! The tree itself finds inodes by name. A server needs them by number, too. Each reply that
//! contains a number counts as a reference until the client forgets it (`nlookup` in Linux's fuse).
//!
//! A client may use a number again after it has forgotten it, because a file handle outlives the
//! kernel's inode. So the entry of an inode in memory becomes *idle* with its last count, and stays
//! until the inode loses its last name. The tree holds such an inode anyway, so an idle entry costs
//! only its own 56 bytes. A tree that no server exports has no entries. The entry of an inode in a
//! backing is removed with its last count, because an idle entry would keep the inode in the cache
//! for ever.
//!
//! Two threads may want to remove an idle entry: the one that forgets the last count and the one
//! that removes the last name. Each changes its word, and then reads the other's, with a fence in
//! between, so at least one of them sees both. The thread that marks the entry as dead removes it.
//!
//! An entry has that dentry of the inode which was looked up last, so an operation by number has
//! its path. If its name was removed, the first dentry serves as well.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use pando_sync::{Counted, Detached, Guard, Shared, pin};

use crate::objects::{
    by_number::{ByNumber, Numbered, NumberedNode},
    dentry::Dentry,
    path::is_bound,
    tables::Nodes,
};

/// The count of an idle entry: only the tree's own name keeps the inode.
const IDLE: u64 = 0;
/// The count of an entry that is about to leave the table. No real count reaches this value.
const DEAD: u64 = u64::MAX;

impl Numbered<AtomicU64> {
    /// Adds `n` to the count. False if the entry is dead.
    fn count_up(&self, n: u64) -> bool {
        // Relaxed: the count orders nothing; the table's links publish the entry.
        let add = |now: u64| (now != DEAD).then(|| now.saturating_add(n).min(DEAD - 1));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Subtracts `n` from the count. True if that makes the entry idle.
    fn count_down(&self, n: u64) -> bool {
        let sub = |now: u64| (now != IDLE && now != DEAD).then(|| now.saturating_sub(n));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).is_ok_and(|old| old <= n)
    }

    /// Marks an idle entry as dead; true if this call did it.
    fn mark_dead(&self) -> bool {
        self.note.compare_exchange(IDLE, DEAD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Nodes {
    /// The inode of a number that was handed out.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        let found = self.table.get(ino, guard)?;
        if found.is_link() && !is_bound(found.as_shared(), guard) {
            let first = Dentry::first(&found);
            if is_bound(first.as_shared(), guard) {
                return Some(first);
            }
        }
        Some(found)
    }

    /// Whether a number is counted.
    pub(crate) fn is_counted(&self, ino: u64, guard: &Guard) -> bool {
        let lookups = self.table.entry(ino, guard).map(|entry| entry.to_ref().note.load(Ordering::Relaxed));
        !matches!(lookups, None | Some(IDLE | DEAD))
    }

    /// The numbers that are counted. The caller holds no guard.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let is_counted = |lookups: u64| !matches!(lookups, IDLE | DEAD);
        self.table.filter_map(|entry, _| is_counted(entry.note.load(Ordering::Relaxed)).then(|| entry.ino()))
    }

    /// Adds `lookups` to the count of an inode. Returns whether that has made a new entry.
    pub(crate) fn remember(&self, dentry: &Counted<Dentry>, lookups: u64) -> bool {
        // Declared before the guard, so dropped after it: the last put of an inode may wait.
        let (mut _left, mut _unused, mut _former) = (None, None, None);
        let guard = pin();
        let ino = dentry.inode().ino;
        // Set before the entry is used: either the thread that removes the last name sees it, or
        // the thread that forgets the last count sees that there is no name.
        dentry.inode().set_numbered();
        let mut new: Option<Detached<_>> = None;
        loop {
            if let Some(entry) = self.table.entry(ino, &guard) {
                if entry.to_ref().count_up(lookups) {
                    // An entry that this thread has allocated in vain. It must not hold the inode
                    // until it is reclaimed.
                    _unused = new.and_then(|new| ByNumber::empty(&new));
                    _former = entry.to_ref().set_dentry(dentry, &guard);
                    return false;
                }
                // The entry is dead. It must leave the table before another one of the same number
                // can be inserted.
                _left = self.table.remove(entry, &guard);
            }
            let entry = new.take().unwrap_or_else(|| ByNumber::make(dentry.clone(), AtomicU64::new(lookups)));
            match self.table.insert(entry, &guard) {
                Ok(()) => return true,
                Err(rejected) => new = Some(rejected),
            }
        }
    }

    /// Subtracts `lookups` from the count of a number. None if the number is not known. The caller
    /// puts the reference of an entry that this has removed, without a guard or a lock: the last
    /// put of an inode may wait.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) -> Option<Option<Counted<Dentry>>> {
        let guard = pin();
        let entry = self.table.entry(ino, &guard)?;
        Some(if entry.to_ref().count_down(lookups) { self.leave_unless_named(entry, &guard) } else { None })
    }

    /// Removes an entry that has become idle, unless its inode is in memory and has a name.
    fn leave_unless_named(&self, entry: Shared<'_, NumberedNode<AtomicU64>>, guard: &Guard) -> Option<Counted<Dentry>> {
        // Pairs with the fence in `last_name_removed`.
        fence(Ordering::SeqCst);
        let inode = entry.to_ref().dentry(guard)?.to_ref().inode();
        let stays = !inode.is_backed() && !inode.is_unlinked(guard);
        if stays || !entry.to_ref().mark_dead() { None } else { self.table.remove(entry, guard) }
    }

    /// Removes the entry of an inode in memory that has lost its last name, if the entry is idle.
    /// The caller puts the reference.
    pub(crate) fn last_name_removed(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        // Pairs with the fence in `leave_unless_named`.
        fence(Ordering::SeqCst);
        let entry = self.table.entry(ino, guard)?;
        if entry.to_ref().mark_dead() { self.table.remove(entry, guard) } else { None }
    }

    /// Removes all entries.
    pub(crate) fn forget_all(&self) {
        self.table.clear(|lookups| lookups.store(DEAD, Ordering::Relaxed));
    }
}
