//! `HashTable`: a [`SplitTable`] that counts its elements and adapts its size to their number.

use crate::{
    counters::{striped::Striped, tally::Counter},
    reclaim::Guard,
    refcount::counted::Shared,
    split_table::{Detached, Node, Rejected, Removed, SplitTable},
};

/// Once threads contend, a thread adds up the number of elements once in so many changes.
const SUM_EVERY: u64 = 16;

/// The element that is there, and the one that was to be inserted.
pub type Exists<'g, T> = (Shared<'g, Node<T>>, Detached<T>);

/// A lock-free hash table with a striped count of its elements. Look-ups write nothing.
///
/// The caller computes the hashes. If an attacker may choose the keys, the hash needs a secret key.
pub struct HashTable<T: Send + Sync + 'static> {
    table: SplitTable<T>,
    len: Striped<Counter>,
}

impl<T: Send + Sync + 'static> std::fmt::Debug for HashTable<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashTable").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Default for HashTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> HashTable<T> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { table: SplitTable::new(), len: Striped::default() }
    }

    /// The element of this hash for which `same` is true. Writes nothing.
    #[inline]
    pub fn get<'g>(&self, hash: u64, same: impl Fn(&T) -> bool, guard: &'g Guard) -> Option<Shared<'g, Node<T>>> {
        self.table.get(hash, same, guard)
    }

    /// Inserts an element, unless there is one of this hash for which `same` is true.
    ///
    /// # Errors
    /// [`Exists`], with the caller's element.
    ///
    /// # Panics
    /// Elements of one hash have used up their places. This needs hashes that agree in 51 bits,
    /// and then some 4000 insertions of each while another one is in the table.
    pub fn insert<'g>(
        &self,
        hash: u64,
        same: impl Fn(&T) -> bool,
        element: Detached<T>,
        guard: &'g Guard,
    ) -> Result<Shared<'g, Node<T>>, Exists<'g, T>> {
        // Counted before the insertion, so that a thread that removes the element cannot decrement
        // the count first.
        self.counted(true, guard);
        match self.table.insert(hash, same, element, guard) {
            Ok(inserted) => {
                if inserted.contended {
                    self.contended(guard);
                }
                Ok(inserted.node)
            }
            Err(Rejected::Exists { found, node }) => {
                self.counted(false, guard);
                Err((found, node))
            }
            Err(Rejected::Exhausted { .. }) => unreachable!("elements of one hash have used up their places"),
        }
    }

    /// Removes exactly this element. False if another thread has.
    pub fn remove(&self, element: Shared<'_, Node<T>>, guard: &Guard) -> bool {
        let Removed { removed, contended } = self.table.remove(element, guard);
        if removed {
            self.counted(false, guard);
        }
        if contended {
            self.contended(guard);
        }
        removed
    }

    /// Up to `count` elements after a position, and the position of the last one. None instead of
    /// the position: the end was reached. As for [`SplitTable::iter_after`], an element that is in
    /// the table throughout a series of batches is returned once.
    pub fn batch<'g>(&'g self, after: u64, count: usize, guard: &'g Guard) -> (Vec<Shared<'g, Node<T>>>, Option<u64>) {
        let batch: Vec<_> = self.table.iter_after(after, guard).take(count).collect();
        let last = batch.last().filter(|_| batch.len() == count).map(|element| element.to_ref().position());
        (batch, last)
    }

    /// The number of elements, if nothing changes meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(Counter::sum(|| self.len.all()).value).unwrap_or(usize::MAX)
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this thread should look at the number of elements after an insertion: after each
    /// one, or, once threads contend, after one in some. For bounds that need not be exact.
    #[inline]
    #[must_use]
    pub fn is_time_to_count(&self) -> bool {
        !self.len.is_inflated() || self.len.mine().added().is_multiple_of(SUM_EVERY)
    }

    /// This thread contended with another one: they get more buckets, and counts of their own.
    #[cold]
    fn contended(&self, guard: &Guard) {
        self.len.note_contention();
        self.table.adapt(self.len(), true, guard);
    }

    fn counted(&self, up: bool, guard: &Guard) {
        let mine = self.len.mine();
        if if up { mine.add(1) } else { mine.sub(1) } {
            self.len.note_contention();
        }
        if !self.len.is_inflated() || mine.changes().is_multiple_of(SUM_EVERY) {
            self.table.adapt(self.len(), false, guard);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reclaim::pin;

    /// A thread that removes an element as soon as it is inserted finds it counted. Seen to fail:
    /// counted after the insertion.
    #[test]
    fn element_is_counted_before_insertion() {
        let table = HashTable::new();
        let times = if cfg!(miri) { 100 } else { 100_000 };
        let insert = || (0..times).for_each(|_| drop(table.insert(1, |()| true, Detached::new(()), &pin())));
        std::thread::scope(|scope| {
            let inserters: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
            while inserters.iter().any(|inserter| !inserter.is_finished()) {
                let guard = pin();
                table.get(1, |()| true, &guard).map(|element| table.remove(element, &guard));
                assert!(table.len() < 1 << 32, "less than none");
            }
        });
        let guard = pin();
        table.get(1, |()| true, &guard).map(|element| table.remove(element, &guard));
        assert!(table.is_empty());
    }

    #[test]
    fn batches_return_each_element_once() {
        let table = HashTable::new();
        let guard = pin();
        for key in 0..1000_u64 {
            let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(table.insert(hash, |other| *other == key, Detached::new(key), &guard).is_ok());
            let again = table.insert(hash, |other| *other == key, Detached::new(key), &guard);
            assert_eq!(again.err().map(|(found, _)| **found.to_ref()), Some(key));
        }
        let (mut keys, mut after) = (Vec::new(), Some(0));
        while let Some(position) = after {
            let (batch, last) = table.batch(position, 64, &guard);
            keys.extend(batch.iter().map(|element| **element.to_ref()));
            after = last;
        }
        keys.sort_unstable();
        assert_eq!((keys, table.len()), ((0..1000).collect(), 1000));
    }
}
