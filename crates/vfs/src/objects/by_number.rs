//! Inodes by number: the hash table behind [`crate::caches::nodes`] (numbers that were handed out)
//! and [`crate::caches::icache`] (the inode cache of a backing). A look-up takes no lock and counts
//! nothing (P7). Analogous to `inode_hashtable` and `find_inode_rcu()` in fs/inode.c.

use pando_sync::{AtomicCounted, Counted, Detached, Guard, HashTable, Node, Shared, pin, siphash13};

use crate::objects::dentry::Dentry;

/// A table of dentries by inode number. It has one dentry of each inode, and a note of the table's
/// owner.
pub(crate) struct ByNumber<T: Send + Sync + 'static> {
    /// Lock-free.
    table: HashTable<Numbered<T>>,
    /// The key of the hash. A backing may bring numbers that an attacker has chosen. Immutable.
    key: (u64, u64),
}

/// An inode in the table. The entry holds a reference to it.
pub(crate) struct Numbered<T> {
    /// Immutable.
    ino: u64,
    /// None after the entry was removed: the inode is released at once and does not wait for the
    /// reclamation of the entry.
    dentry: AtomicCounted<Dentry>,
    /// State of the table's owner.
    pub note: T,
}

/// An entry of the table.
pub(crate) type NumberedNode<T> = Node<Numbered<T>>;

impl<T: Send + Sync> Numbered<T> {
    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    /// The dentry, unless the entry was removed.
    pub(crate) fn dentry<'g>(&self, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        self.dentry.load(guard)
    }

    /// Replaces the dentry by another one of the same inode, unless the entry was removed. Returns
    /// the reference that is left over.
    pub(crate) fn set_dentry(&self, dentry: &Counted<Dentry>, guard: &Guard) -> Option<Counted<Dentry>> {
        let known = self.dentry(guard)?;
        if known.ptr_eq(dentry.as_shared()) || !std::ptr::eq(known.to_ref().inode(), dentry.inode()) {
            return None;
        }
        self.dentry.compare_exchange(Some(known), Some(dentry.clone())).unwrap_or_else(|new| new)
    }
}

impl<T: Send + Sync + 'static> ByNumber<T> {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: HashTable::new(), key }
    }

    fn hash(&self, ino: u64) -> u64 {
        siphash13(self.key, &ino.to_le_bytes())
    }

    /// The entry of a number.
    pub(crate) fn entry<'g>(&self, ino: u64, guard: &'g Guard) -> Option<Shared<'g, NumberedNode<T>>> {
        self.table.get(self.hash(ino), |entry| entry.ino == ino, guard)
    }

    /// A counted reference to the inode of a number. None if the number is not in the table, or the
    /// inode is being released.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        let entry = self.entry(ino, guard)?.to_ref();
        let mut dentry = entry.dentry(guard)?;
        loop {
            if let Some(held) = dentry.get() {
                return Some(held);
            }
            // The object is dead: the inode was released, or another dentry of it has replaced this
            // one.
            let now = entry.dentry(guard)?;
            if now.ptr_eq(dentry) {
                return None;
            }
            dentry = now;
        }
    }

    /// A new entry, not in the table yet. It holds the given reference.
    pub(crate) fn make(dentry: Counted<Dentry>, note: T) -> Detached<Numbered<T>> {
        Detached::new(Numbered { ino: dentry.inode().ino, dentry: AtomicCounted::new(Some(dentry)), note })
    }

    /// Inserts an entry. Returns it if the number is in the table already.
    pub(crate) fn insert(&self, entry: Detached<Numbered<T>>, guard: &Guard) -> Result<(), Detached<Numbered<T>>> {
        let ino = entry.ino;
        self.table.insert(self.hash(ino), |other| other.ino == ino, entry, guard).map(drop).map_err(|(_, entry)| entry)
    }

    /// Removes an entry and returns its reference. The caller puts it, without a guard if it can.
    /// None if another thread has removed the entry.
    pub(crate) fn remove(&self, entry: Shared<'_, NumberedNode<T>>, guard: &Guard) -> Option<Counted<Dentry>> {
        if self.table.remove(entry, guard) { Self::empty(entry.to_ref()) } else { None }
    }

    /// Takes the reference out of an entry that is in no table.
    pub(crate) fn empty(entry: &NumberedNode<T>) -> Option<Counted<Dentry>> {
        entry.dentry.swap(None)
    }

    /// Up to `count` entries after a position, and the position of the last one. None instead of
    /// the position: the end was reached.
    pub(crate) fn batch<'g>(
        &'g self,
        after: u64,
        count: usize,
        guard: &'g Guard,
    ) -> (Vec<Shared<'g, NumberedNode<T>>>, Option<u64>) {
        self.table.batch(after, count, guard)
    }

    /// The number of entries, if nothing changes meanwhile.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// See [`HashTable::is_time_to_count`].
    pub(crate) fn is_time_to_count(&self) -> bool {
        self.table.is_time_to_count()
    }

    /// The results of `each` for all entries, in batches: each has a guard of its own. The caller
    /// holds no guard.
    pub(crate) fn filter_map<R>(&self, each: impl Fn(&NumberedNode<T>, &Guard) -> Option<R>) -> Vec<R> {
        let (mut results, mut after) = (Vec::new(), Some(0));
        while let Some(position) = after {
            let guard = pin();
            let (batch, last) = self.batch(position, 1024, &guard);
            results.extend(batch.into_iter().filter_map(|entry| each(entry.to_ref(), &guard)));
            after = last;
        }
        results
    }

    /// Removes all entries. `mark` is called with each note before the removal.
    pub(crate) fn clear(&self, mark: impl Fn(&T)) {
        let mut after = Some(0);
        while let Some(position) = after {
            // Declared before the guard, so dropped after it: the last put of an inode may wait.
            let mut _left = Vec::new();
            let guard = pin();
            let (batch, last) = self.batch(position, 1024, &guard);
            for entry in batch {
                mark(&entry.to_ref().note);
                _left.extend(self.remove(entry, &guard));
            }
            after = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Context, Credentials, Vfs, driver::tests::Nothing};

    /// Seen to fail: a `get` that does not load the dentry again after the one that it found was
    /// dead.
    #[test]
    fn number_is_found_while_its_dentry_is_replaced() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let first = vfs.mknod(&context, At::Cwd, "f", 0o100_600, 0).expect("mknod").0;
        let ino = first.inode().ino;
        let table = ByNumber::new((1, 2));
        assert!(table.insert(ByNumber::make(first.clone(), ()), &pin()).is_ok());
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                for _ in 0..100_000 {
                    let guard = pin();
                    let entry = table.entry(ino, &guard).expect("there");
                    drop(entry.to_ref().set_dentry(&Dentry::new_link(first.clone(), 0), &guard));
                }
            });
            while !replacing.is_finished() {
                assert_eq!(table.get(ino, &pin()).map(|found| found.inode().ino), Some(ino));
            }
        });
        table.clear(|()| ());
    }
}
