//! The cached aliases of a tree with a backing.

use std::{
    ops::Bound,
    sync::{MutexGuard, atomic::Ordering},
};

use pando_sync::{Counted, lock};

use crate::objects::{
    dentry::Dentry,
    tables::{CachedLinks, LinkTable},
};

/// The number of aliases that are visited while the table is locked once.
const BATCH: usize = 64;

impl CachedLinks {
    /// A number that no alias has had.
    pub(crate) fn next_id(&self) -> u64 {
        // Relaxed: the numbers order nothing.
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn table(&self) -> MutexGuard<'_, LinkTable> {
        lock(&self.table)
    }

    /// Adds an alias after it was bound. No effect for a first dentry. The caller holds the name
    /// lock.
    pub(crate) fn add(&self, dentry: &Counted<Dentry>) {
        if let Some(id) = dentry.link_id() {
            self.table().links.insert(id, dentry.clone());
        }
    }

    /// Removes an alias that is not bound any more. The caller holds the name lock.
    pub(crate) fn remove(&self, dentry: &Dentry) {
        if let Some(id) = dentry.link_id() {
            let removed = self.table().links.remove(&id);
            drop(removed);
        }
    }

    /// Empties the table, because the tree is shut down.
    pub(crate) fn take(&self) -> impl Iterator<Item = Counted<Dentry>> + use<> {
        std::mem::take(&mut self.table().links).into_values()
    }

    /// A batch of aliases, beginning where the last one ended, and whether the end was reached.
    pub(crate) fn batch(&self) -> (Vec<Counted<Dentry>>, bool) {
        let mut table = self.table();
        let after = (Bound::Excluded(table.hand), Bound::Unbounded);
        let batch: Vec<_> = table.links.range(after).take(BATCH).map(|(id, link)| (*id, link.clone())).collect();
        let ended = batch.len() < BATCH;
        table.hand = if ended { 0 } else { batch[batch.len() - 1].0 };
        (batch.into_iter().map(|(_, link)| link).collect(), ended)
    }
}
