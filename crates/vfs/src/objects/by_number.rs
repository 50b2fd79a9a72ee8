//! Inodes by number: the hash table behind [`crate::caches::nodes`] (numbers that were handed out)
//! and [`crate::caches::icache`] (the inode cache of a backing). A look-up takes no lock and counts
//! nothing (P7). Analogous to `inode_hashtable` and `find_inode_rcu()` in fs/inode.c.

use pando_sync::{
    AtomicCounted, Counted, Counter, Detached, Guard, Node, Rejected, Shared, SplitTable, Striped, pin, siphash13,
};

use crate::objects::dentry::Dentry;

/// A table of dentries by inode number. It has one dentry of each inode, and a note of the table's
/// owner.
pub(crate) struct ByNumber<T: Send + Sync + 'static> {
    /// Lock-free.
    table: SplitTable<Numbered<T>>,
    /// The key of the hash. A backing may bring numbers that an attacker has chosen. Immutable.
    key: (u64, u64),
    /// The number of entries: striped atomic counters.
    len: Striped<Counter>,
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
        Self { table: SplitTable::default(), key, len: Striped::default() }
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
        // Counted before the insertion, so that a thread that removes the entry cannot decrement
        // the count first.
        self.counted(true, guard);
        match self.table.insert(self.hash(ino), |other| other.ino == ino, entry, guard) {
            Ok(_) => Ok(()),
            Err(Rejected::Exists { node, .. }) => {
                self.counted(false, guard);
                Err(node)
            }
            // This needs two numbers whose hashes agree in 51 bits, under a secret key, and then
            // some 4000 insertions of each while the other is in the table.
            Err(Rejected::Exhausted { .. }) => {
                unreachable!("numbers whose keyed hashes agree have used up their places")
            }
        }
    }

    /// Removes an entry and returns its reference. The caller puts it, without a guard if it can.
    /// None if another thread has removed the entry.
    pub(crate) fn remove(&self, entry: Shared<'_, NumberedNode<T>>, guard: &Guard) -> Option<Counted<Dentry>> {
        if !self.table.remove(entry, guard).removed {
            return None;
        }
        self.counted(false, guard);
        Self::empty(entry.to_ref())
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
        let batch: Vec<_> = self.table.iter_after(after, guard).take(count).collect();
        let last = batch.last().filter(|_| batch.len() == count).map(|entry| entry.to_ref().position());
        (batch, last)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Context, Credentials, Vfs, driver::tests::Nothing};

    /// A thread that removes an entry as soon as it is inserted finds it counted. Seen to fail:
    /// counted after the insertion.
    #[test]
    fn entry_is_counted_before_insertion() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let dentry = vfs.mkdir(&context, At::Cwd, "d", 0o755).expect("mkdir").0;
        let table = ByNumber::new((1, 2));
        let len = || Counter::sum(|| table.len.all()).value;
        let insert = || {
            for _ in 0..100_000 {
                let entry = ByNumber::make(dentry.clone(), ());
                let _ = table.insert(entry, &pin()).map_err(|entry| ByNumber::empty(&entry));
            }
        };
        std::thread::scope(|scope| {
            let inserters: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
            while inserters.iter().any(|inserter| !inserter.is_finished()) {
                table.clear(|()| ());
                assert!(len() < 1 << 32, "less than none");
            }
        });
        table.clear(|()| ());
        assert_eq!(len(), 0);
    }

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
