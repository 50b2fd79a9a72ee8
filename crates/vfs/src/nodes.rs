//! Node numbers that were handed out: what a server (FUSE, say) has told others, it must find again.
//!
//! The tree itself finds inodes by name. A server also needs them by number, and each answer that named a number counts
//! as a reference until the other side forgets it. Remembered inodes stand in a table keyed by number; looking one up
//! takes no lock and counts nothing (P7).

use std::sync::atomic::{AtomicU64, Ordering};

use pando_sync::{AtomicCounted, Counted, Counter, Guard, Node, Rejected, Shared, SplitTable, Striped, pin};

use crate::{DentryRef, Vfs, dentry::Dentry};

/// The inodes whose numbers are known outside.
#[derive(Default)]
pub(crate) struct Nodes {
    table: SplitTable<Remembered>,
    len: Striped<Counter>,
}

/// An inode and how often its number was handed out. Zero is dead: the node is about to leave the table.
struct Remembered {
    ino: u64,
    /// None once the node has left the table: the inode must not wait for the node's reclamation.
    dentry: AtomicCounted<Dentry>,
    lookups: AtomicU64,
}

impl Remembered {
    /// Counts `n` more, unless it is dead.
    fn count_up(&self, n: u64) -> bool {
        // Relaxed: the count orders nothing; the table's links publish the node.
        let add = |now: u64| (now > 0).then(|| now.saturating_add(n));
        self.lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts `n` less; true if that was the last.
    fn count_down(&self, n: u64) -> bool {
        let sub = |now: u64| (now > 0).then(|| now.saturating_sub(n));
        self.lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).is_ok_and(|old| old <= n)
    }
}

/// Numbers are handed out in a row; the table wants them spread. (splitmix64: Steele, Lea, Flood, 2014.)
fn spread(ino: u64) -> u64 {
    let mut z = ino.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Nodes {
    fn get<'g>(&self, ino: u64, guard: &'g Guard) -> Option<Shared<'g, Node<Remembered>>> {
        self.table.get(spread(ino), |node| node.ino == ino, guard)
    }

    fn remember(&self, dentry: &Counted<Dentry>, lookups: u64) {
        // Put after the guard is gone: an inode's last put may wait.
        let (mut _left, mut _unused) = (None, None);
        let guard = pin();
        let ino = dentry.inode().ino;
        let mut new: Option<Counted<Node<Remembered>>> = None;
        loop {
            if let Some(node) = self.get(ino, &guard) {
                if node.to_ref().count_up(lookups) {
                    // A node of ours that came too late: nor must the inode wait for its reclamation.
                    _unused = new.and_then(|new| new.dentry.swap(None));
                    return;
                }
                // It is dying: it must be out before another can be in.
                _left = self.remove(node, &guard);
            }
            let node = new.take().unwrap_or_else(|| {
                let dentry = AtomicCounted::new(Some(Dentry::first(dentry)));
                Node::new(Remembered { ino, dentry, lookups: AtomicU64::new(lookups) })
            });
            match self.table.insert(spread(ino), |other| other.ino == ino, node, &guard) {
                Ok(_) => {
                    self.counted(true, &guard);
                    return;
                }
                Err(Rejected::Exists { node, .. }) => new = Some(node),
                // splitmix64 is a permutation: different numbers share no more than the 13 bits that the table cuts.
                Err(Rejected::Exhausted { .. }) => {
                    unreachable!("more than 4096 numbers share 51 bits of a permutation")
                }
            }
        }
    }

    fn forget(&self, ino: u64, lookups: u64) {
        let mut _left = None;
        let guard = pin();
        if let Some(node) = self.get(ino, &guard)
            && node.to_ref().count_down(lookups)
        {
            _left = self.remove(node, &guard);
        }
    }

    fn forget_all(&self) {
        loop {
            let mut _left = Vec::new();
            let guard = pin();
            let batch: Vec<_> = self.table.iter_after(0, &guard).take(1024).collect();
            if batch.is_empty() {
                return;
            }
            for node in batch {
                node.to_ref().lookups.store(0, Ordering::Relaxed);
                _left.extend(self.remove(node, &guard));
            }
        }
    }

    /// Takes a dead node out, and its reference, which the caller puts without a guard; none if somebody else does.
    fn remove(&self, node: Shared<'_, Node<Remembered>>, guard: &Guard) -> Option<Counted<Dentry>> {
        if !self.table.remove(node, guard).removed {
            return None;
        }
        self.counted(false, guard);
        node.to_ref().dentry.swap(None)
    }

    fn counted(&self, up: bool, guard: &Guard) {
        let mine = self.len.mine();
        if if up { mine.add(1) } else { mine.sub(1) } {
            self.len.note_contention();
        }
        if !self.len.is_inflated() || mine.changes().is_multiple_of(16) {
            let len = Counter::sum(|| self.len.all()).value;
            self.table.adapt(usize::try_from(len).unwrap_or(usize::MAX), false, guard);
        }
    }
}

impl Vfs {
    /// The remembered inode of a number. No lock, one count.
    #[must_use]
    pub fn iget(&self, ino: u64) -> Option<DentryRef> {
        let guard = pin();
        let node = self.nodes().get(ino, &guard)?;
        // None only for a node that is being forgotten at this moment.
        node.to_ref().dentry.load(&guard)?.get().map(DentryRef)
    }

    /// Says that the number of a dentry's inode was handed out `lookups` times: it can be found by it from now on.
    pub fn remember(&self, dentry: &DentryRef, lookups: u64) {
        if lookups > 0 {
            self.nodes().remember(&dentry.0, lookups);
        }
    }

    /// Takes back `lookups` of what [`Vfs::remember`] counted.
    pub fn forget(&self, ino: u64, lookups: u64) {
        self.nodes().forget(ino, lookups);
    }

    /// Takes everything back: whoever knew numbers is gone.
    pub fn forget_all(&self) {
        self.nodes().forget_all();
    }
}
