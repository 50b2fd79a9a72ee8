//! Inodes by number: the table that stands behind [`crate::caches::nodes`] (what was handed out) and [`crate::caches::icache`] (what is
//! cached of a backing). Looking one up takes no lock and counts nothing (P7).

use pando_sync::{
    AtomicCounted, Counted, Counter, Detached, Guard, Node, Rejected, Shared, SplitTable, Striped, pin, siphash13,
};

use crate::objects::dentry::Dentry;

/// A table of dentries by the numbers of their inodes, one of each inode, with what its owner notes about it.
pub(crate) struct ByNumber<T: Send + Sync + 'static> {
    table: SplitTable<Numbered<T>>,
    /// Of the hash: a backing brings numbers that somebody may have chosen.
    key: (u64, u64),
    len: Striped<Counter>,
}

/// An inode in such a table, which holds a reference to it.
pub(crate) struct Numbered<T> {
    ino: u64,
    /// None once the entry has left the table: the inode must not wait for the entry's reclamation.
    dentry: AtomicCounted<Dentry>,
    pub note: T,
}

/// An entry of a table.
pub(crate) type Entry<T> = Node<Numbered<T>>;

impl<T: Send + Sync> Numbered<T> {
    /// The inode, unless it has left the table.
    pub(crate) fn dentry<'g>(&self, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        self.dentry.load(guard)
    }

    /// Holds this dentry of the inode from now on, instead of another one, unless it has left the table. Answers what is left.
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
    pub(crate) fn entry<'g>(&self, ino: u64, guard: &'g Guard) -> Option<Shared<'g, Entry<T>>> {
        self.table.get(self.hash(ino), |entry| entry.ino == ino, guard)
    }

    /// The inode of a number, unless it is not known here, or is on its way out.
    pub(crate) fn get(&self, ino: u64, guard: &Guard) -> Option<Counted<Dentry>> {
        let entry = self.entry(ino, guard)?.to_ref();
        let mut dentry = entry.dentry(guard)?;
        loop {
            if let Some(held) = dentry.get() {
                return Some(held);
            }
            // Dead: either the inode is, or another dentry of it was put here meanwhile.
            let now = entry.dentry(guard)?;
            if now.ptr_eq(dentry) {
                return None;
            }
            dentry = now;
        }
    }

    /// An entry for an inode, to be inserted: it holds this reference.
    pub(crate) fn make(dentry: Counted<Dentry>, note: T) -> Detached<Numbered<T>> {
        Detached::new(Numbered { ino: dentry.inode().ino, dentry: AtomicCounted::new(Some(dentry)), note })
    }

    /// Takes an entry in; gives it back if its number is there already.
    pub(crate) fn insert(&self, entry: Detached<Numbered<T>>, guard: &Guard) -> Result<(), Detached<Numbered<T>>> {
        let ino = entry.ino;
        // Before it can be seen: whoever takes it out counts it out.
        self.counted(true, guard);
        match self.table.insert(self.hash(ino), |other| other.ino == ino, entry, guard) {
            Ok(_) => Ok(()),
            Err(Rejected::Exists { node, .. }) => {
                self.counted(false, guard);
                Err(node)
            }
            // That takes two numbers whose hashes agree in 51 bits, under a key that nobody knows, and then some 4000
            // insertions, of each while the other is there.
            Err(Rejected::Exhausted { .. }) => {
                unreachable!("numbers whose keyed hashes agree have used up their places")
            }
        }
    }

    /// Takes an entry out, and its reference, which the caller puts without a guard if he can; none if somebody else does.
    pub(crate) fn remove(&self, entry: Shared<'_, Entry<T>>, guard: &Guard) -> Option<Counted<Dentry>> {
        if !self.table.remove(entry, guard).removed {
            return None;
        }
        self.counted(false, guard);
        Self::empty(entry.to_ref())
    }

    /// Takes the reference out of an entry that is in no table.
    pub(crate) fn empty(entry: &Entry<T>) -> Option<Counted<Dentry>> {
        entry.dentry.swap(None)
    }

    /// Some entries after a position, and the position of the last of them. None: that was the end.
    pub(crate) fn batch<'g>(
        &'g self,
        after: u64,
        count: usize,
        guard: &'g Guard,
    ) -> (Vec<Shared<'g, Entry<T>>>, Option<u64>) {
        let batch: Vec<_> = self.table.iter_after(after, guard).take(count).collect();
        let last = batch.last().filter(|_| batch.len() == count).map(|entry| entry.to_ref().position());
        (batch, last)
    }

    /// Takes all entries out; `mark` is told each note before.
    pub(crate) fn clear(&self, mark: impl Fn(&T)) {
        let mut after = Some(0);
        while let Some(position) = after {
            // Put after the guard is gone: an inode's last put may wait.
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

    /// Who takes an entry out as soon as it is there finds it counted. Seen to fail: counted after it was inserted.
    #[test]
    fn an_entry_is_counted_before_it_can_be_taken_out() {
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

    /// Seen to fail: not looked at again, when what was found died before it was counted.
    #[test]
    fn a_number_is_found_while_one_dentry_of_it_takes_the_place_of_another() {
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
