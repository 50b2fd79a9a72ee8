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
    /// Where the search for idle inodes goes on.
    hand: AtomicU64,
    /// How many were evicted: whoever knew attributes before one of them may know old ones.
    evictions: AtomicU64,
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
    fn node<'g>(&self, ino: u64, guard: &'g Guard) -> Option<Shared<'g, Node<Remembered>>> {
        self.table.get(spread(ino), |node| node.ino == ino, guard)
    }

    /// The inode of a number, unless it is not known here, or is on its way out.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        self.node(ino, guard)?.to_ref().dentry.load(guard)?.get()
    }

    /// Takes in an inode that was loaded from a backing, with one count for the cache itself; false if its number is
    /// there already.
    pub(crate) fn adopt(&self, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
        let ino = dentry.inode().ino;
        let node = Remembered { ino, dentry: AtomicCounted::new(Some(dentry.clone())), lookups: AtomicU64::new(1) };
        match self.table.insert(spread(ino), |other| other.ino == ino, Node::new(node), guard) {
            Ok(_) => {
                self.counted(true, guard);
                true
            }
            Err(Rejected::Exists { node, .. } | Rejected::Exhausted { node }) => {
                drop(node.dentry.swap(None));
                false
            }
        }
    }

    /// A number that rises before each eviction is seen.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::SeqCst)
    }

    /// Some inodes that only the cache counts, from where the last batch ended; and whether that was the end.
    pub(crate) fn idle_batch(&self, guard: &Guard) -> (Vec<Counted<Dentry>>, bool) {
        const BATCH: usize = 64;
        let mut count = 0;
        let mut batch = Vec::new();
        for node in self.table.iter_after(self.hand.load(Ordering::Relaxed), guard).take(BATCH) {
            count += 1;
            self.hand.store(node.to_ref().position(), Ordering::Relaxed);
            let idle = node.to_ref().lookups.load(Ordering::Relaxed) == 1;
            batch.extend(idle.then(|| node.to_ref().dentry.load(guard)?.get()).flatten());
        }
        if count < BATCH {
            self.hand.store(0, Ordering::Relaxed);
        }
        (batch, count < BATCH)
    }

    /// Takes out an inode that was condemned: nobody can have counted it since.
    pub(crate) fn evict(&self, ino: u64, guard: &Guard) {
        self.evictions.fetch_add(1, Ordering::SeqCst);
        if let Some(node) = self.node(ino, guard) {
            node.to_ref().lookups.store(0, Ordering::Relaxed);
            drop(self.remove(node, guard));
        }
    }

    /// Takes out an inode that has no name any more, if only the cache counts it: nobody can come to it. The caller puts
    /// the reference, without a guard if it can.
    pub(crate) fn drop_nameless(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        let node = self.node(ino, guard)?;
        let last = node.to_ref().lookups.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if last { self.remove(node, guard) } else { None }
    }

    /// All inodes in the table; no guard is held.
    pub(crate) fn all(&self) -> Vec<Counted<Dentry>> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let guard = pin();
            let mut count = 0;
            for node in self.table.iter_after(after, &guard).take(1024) {
                count += 1;
                after = node.to_ref().position();
                all.extend(node.to_ref().dentry.load(&guard).and_then(|dentry| dentry.get()));
            }
            if count == 0 {
                return all;
            }
        }
    }

    fn remember(&self, dentry: &Counted<Dentry>, lookups: u64) {
        // Put after the guard is gone: an inode's last put may wait.
        let (mut _left, mut _unused) = (None, None);
        let guard = pin();
        let ino = dentry.inode().ino;
        let mut new: Option<Counted<Node<Remembered>>> = None;
        loop {
            if let Some(node) = self.node(ino, &guard) {
                if node.to_ref().count_up(lookups) {
                    // A node of ours that came too late: nor must the inode wait for its reclamation.
                    _unused = new.and_then(|new| new.dentry.swap(None));
                    return;
                }
                // It is dying: it must be out before another can be in.
                _left = self.remove(node, &guard);
            }
            let node = new.take().unwrap_or_else(|| {
                // What a cache holds anyway has a count of the cache's, too: an eviction must not take ours for it.
                let caches = u64::from(dentry.sb().driver.backing().is_some());
                let dentry = AtomicCounted::new(Some(Dentry::first(dentry)));
                Node::new(Remembered { ino, dentry, lookups: AtomicU64::new(lookups + caches) })
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

    /// Counts `lookups` less; whether the number was known.
    fn forget(&self, ino: u64, lookups: u64) -> bool {
        let mut _left = None;
        let guard = pin();
        let Some(node) = self.node(ino, &guard) else { return false };
        if node.to_ref().count_down(lookups) {
            _left = self.remove(node, &guard);
        } else if node.to_ref().dentry.load(&guard).is_some_and(|dentry| {
            let inode = dentry.to_ref().inode();
            inode.shard.sb.driver.backing().is_some() && inode.is_nameless(&guard)
        }) {
            _left = self.drop_nameless(ino, &guard);
        }
        true
    }

    /// Forgets what was handed out: each inode keeps `rest` counts (one for a cache that holds it anyway), or goes.
    pub(crate) fn forget_all(&self, rest: u64) {
        let mut after = 0;
        loop {
            let mut _left = Vec::new();
            let guard = pin();
            let batch: Vec<_> = self.table.iter_after(after, &guard).take(1024).collect();
            if batch.is_empty() {
                return;
            }
            for node in batch {
                after = node.to_ref().position();
                node.to_ref().lookups.store(rest, Ordering::Relaxed);
                if rest == 0 {
                    _left.extend(self.remove(node, &guard));
                }
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
    /// The inode of a number that was handed out ([`Vfs::remember`]). No lock, one count.
    ///
    /// Numbers of memory drivers are unique in the whole name space. A backing brings numbers of its own: the root's tree
    /// is searched first.
    #[must_use]
    pub fn iget(&self, ino: u64) -> Option<DentryRef> {
        let guard = pin();
        self.superblocks(|sb| sb.nodes.get(ino, &guard)).map(DentryRef)
    }

    /// Says that the number of a dentry's inode was handed out `lookups` times: it can be found by it from now on.
    pub fn remember(&self, dentry: &DentryRef, lookups: u64) {
        if lookups > 0 {
            dentry.0.sb().nodes.remember(&dentry.0, lookups);
        }
    }

    /// Takes back `lookups` of what [`Vfs::remember`] counted.
    pub fn forget(&self, ino: u64, lookups: u64) {
        self.superblocks(|sb| sb.nodes.forget(ino, lookups).then_some(()));
    }

    /// Takes everything back: whoever knew numbers is gone.
    pub fn forget_all(&self) {
        self.superblocks(|sb| -> Option<()> {
            sb.nodes.forget_all(u64::from(sb.driver.backing().is_some()));
            None
        });
    }
}
