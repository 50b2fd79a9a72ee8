//! The further links that are in the cache of a tree with a backing.

use std::{
    ops::Bound,
    sync::{MutexGuard, atomic::Ordering},
};

use pando_sync::{Counted, lock};

use crate::objects::{
    dentry::Dentry,
    tables::{CachedLinks, LinkTable},
};

/// Links looked at with the table locked once.
const BATCH: usize = 64;

impl CachedLinks {
    /// A number that no link has had.
    pub(crate) fn next_id(&self) -> u64 {
        // Relaxed: the numbers order nothing.
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn table(&self) -> MutexGuard<'_, LinkTable> {
        lock(&self.table)
    }

    /// A dentry was bound; first dentries do not stand here. The caller holds its name's lock.
    pub(crate) fn add(&self, dentry: &Counted<Dentry>) {
        if let Some(id) = dentry.link_id() {
            self.table().links.insert(id, dentry.clone());
        }
    }

    /// A dentry is bound no more. The caller holds its name's lock.
    pub(crate) fn remove(&self, dentry: &Dentry) {
        if let Some(id) = dentry.link_id() {
            let removed = self.table().links.remove(&id);
            drop(removed);
        }
    }

    /// All of them, out of the table: the tree is taken down.
    pub(crate) fn take(&self) -> impl Iterator<Item = Counted<Dentry>> + use<> {
        std::mem::take(&mut self.table().links).into_values()
    }

    /// Some links, from where the last batch ended; and whether that was the end.
    pub(crate) fn batch(&self) -> (Vec<Counted<Dentry>>, bool) {
        let mut table = self.table();
        let after = (Bound::Excluded(table.hand), Bound::Unbounded);
        let batch: Vec<_> = table.links.range(after).take(BATCH).map(|(id, link)| (*id, link.clone())).collect();
        let ended = batch.len() < BATCH;
        table.hand = if ended { 0 } else { batch[batch.len() - 1].0 };
        (batch.into_iter().map(|(_, link)| link).collect(), ended)
    }
}
