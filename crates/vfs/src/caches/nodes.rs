//! Node numbers that were handed out: what a server (FUSE, say) has told others, it must find again.
//!
//! The tree itself finds inodes by name. A server also needs them by number, and each answer that named a number counts
//! as a reference until the other side forgets it.
//!
//! Of the dentries of an inode, the one that was found last stands here: what is done by number has its path. If its name is
//! gone, the first one is as good, which every other leads to.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_sync::{Counted, Guard, Unlinked, pin};

use crate::objects::{
    by_number::{ByNumber, Numbered},
    dentry::Dentry,
    path::is_bound,
    tables::Nodes,
};

impl Numbered<AtomicU64> {
    /// Counts `n` more, unless it is dead.
    fn count_up(&self, n: u64) -> bool {
        // Relaxed: the count orders nothing; the table's links publish the entry.
        let add = |now: u64| (now > 0).then(|| now.saturating_add(n));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts `n` less; true if that was the last.
    fn count_down(&self, n: u64) -> bool {
        let sub = |now: u64| (now > 0).then(|| now.saturating_sub(n));
        self.note.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).is_ok_and(|old| old <= n)
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
        let mut new: Option<Unlinked<_>> = None;
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
            if entry.to_ref().count_down(lookups) { self.table.remove(entry, &guard) } else { None }
        };
        Some(left.is_some_and(|left| left.is_link() && left.inode().links.are_gone()))
    }

    /// Forgets all that was handed out.
    pub(crate) fn forget_all(&self) {
        self.table.clear(|lookups| lookups.store(0, Ordering::Relaxed));
    }
}
