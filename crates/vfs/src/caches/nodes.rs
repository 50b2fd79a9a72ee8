//! Node numbers that were handed out: what a server (FUSE, say) has told others, it must find again.
//!
//! The tree itself finds inodes by name. A server also needs them by number, and each answer that named a number counts
//! as a reference until the other side forgets it.
//!
//! A client may come back with a number that it has forgotten: a file handle outlives the kernel's inode. So the entry of an
//! inode in memory stays after its last count, as *idle*, until the inode loses its last name. The tree holds such an inode
//! anyway, so an idle entry costs its own 56 bytes and no more. A tree that is served to nobody has no entries. An inode of a
//! backing leaves with its last count: an idle entry would keep it in the cache for ever.
//!
//! Two threads may want to remove an idle entry: the one that forgets the last count and the one that removes the last name.
//! Each changes its word, and then reads the other's, with a fence in between, so at least one of them sees both. The thread
//! that marks the entry as dead removes it.
//!
//! Of the dentries of an inode, the one that was found last stands here: what is done by number has its path. If its name is
//! gone, the first one is as good, which every other leads to.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use pando_sync::{Counted, Detached, Guard, Shared, pin};

use crate::objects::{
    by_number::{ByNumber, Entry, Numbered},
    dentry::Dentry,
    path::is_bound,
    tables::Nodes,
};

/// The count of an entry that only the tree's own name keeps.
const IDLE: u64 = 0;
/// The count of an entry that is about to leave the table. No count gets there.
const DEAD: u64 = u64::MAX;

impl Numbered<AtomicU64> {
    /// Counts `n` more, unless it is dead.
    fn count_up(&self, n: u64) -> bool {
        // Relaxed: the count orders nothing; the table's links publish the entry.
        let add = |now: u64| (now != DEAD).then(|| now.saturating_add(n).min(DEAD - 1));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts `n` less; true if that was the last.
    fn count_down(&self, n: u64) -> bool {
        let sub = |now: u64| (now != IDLE && now != DEAD).then(|| now.saturating_sub(n));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).is_ok_and(|old| old <= n)
    }

    /// Marks an idle entry as dead; true if this call did it.
    fn kill(&self) -> bool {
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

    /// Whether that is a new entry.
    pub(crate) fn remember(&self, dentry: &Counted<Dentry>, lookups: u64) -> bool {
        // Put after the guard is gone: an inode's last put may wait.
        let (mut _left, mut _unused, mut _former) = (None, None, None);
        let guard = pin();
        let ino = dentry.inode().ino;
        // First: the thread that removes the last name sees it, or the thread that forgets the last count sees no name.
        dentry.inode().set_numbered();
        let mut new: Option<Detached<_>> = None;
        loop {
            if let Some(entry) = self.table.entry(ino, &guard) {
                if entry.to_ref().count_up(lookups) {
                    // An entry of ours that came too late: nor must the inode wait for its reclamation.
                    _unused = new.and_then(|new| ByNumber::empty(&new));
                    _former = entry.to_ref().set_dentry(dentry, &guard);
                    return false;
                }
                // It is dying: it must be out before another can be in.
                _left = self.table.remove(entry, &guard);
            }
            let entry = new.take().unwrap_or_else(|| ByNumber::make(dentry.clone(), AtomicU64::new(lookups)));
            match self.table.insert(entry, &guard) {
                Ok(()) => return true,
                Err(rejected) => new = Some(rejected),
            }
        }
    }

    /// Counts `lookups` less, if the number is known: whether a link has left that holds a nameless inode, until it is reclaimed.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) -> Option<bool> {
        // Put after the guard is gone.
        let left = {
            let guard = pin();
            let entry = self.table.entry(ino, &guard)?;
            if entry.to_ref().count_down(lookups) { self.leave_unless_named(entry, &guard) } else { None }
        };
        Some(left.is_some_and(|left| left.is_link() && left.inode().links.are_gone()))
    }

    /// Removes an entry that has become idle, unless its inode is in memory and has a name.
    fn leave_unless_named(&self, entry: Shared<'_, Entry<AtomicU64>>, guard: &Guard) -> Option<Counted<Dentry>> {
        // With the other one, in `name_gone`.
        fence(Ordering::SeqCst);
        let inode = entry.to_ref().dentry(guard)?.to_ref().inode();
        let stays = !inode.is_backed() && !inode.is_nameless(guard);
        if stays || !entry.to_ref().kill() { None } else { self.table.remove(entry, guard) }
    }

    /// An inode in memory has lost its last name. Its entry leaves if it is idle; the caller puts the reference.
    pub(crate) fn name_gone(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        // With the other one, in `leave_unless_named`.
        fence(Ordering::SeqCst);
        let entry = self.table.entry(ino, guard)?;
        if entry.to_ref().kill() { self.table.remove(entry, guard) } else { None }
    }

    /// Forgets all that was handed out.
    pub(crate) fn forget_all(&self) {
        self.table.clear(|lookups| lookups.store(DEAD, Ordering::Relaxed));
    }
}
