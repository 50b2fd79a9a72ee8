//! `VersionedPair`: a word and a record that belongs to it. Both change at one instant and are read
//! together without a lock.
//!
//! A file's size is a word that threads also read by itself, and the location of its data is a
//! record of any length. A thread that reads both must not get the size of one moment and the
//! record of another. It must not wait for the writer either, which may be in a long write.
//!
//! So the record is announced before the word changes, together with its predecessor and the word
//! of each. *The word decides* which of the two records is valid, and the store of the word is the
//! instant of both changes. Afterwards the record is settled: it is valid whatever the word is. A
//! reader loads the record, the word, and the record again. If the record is the same, the word was
//! loaded while that record was the announced one. Records are not reused under a guard, so an
//! equal pointer means the same record. (The reader's validation is that of sequence locks. But
//! here a writer that sleeps does not delay readers.)
//!
//! Linearization points: of a change, the store of the word (if the word stays the same, the
//! exchange of the record); of a read, its load of the word.

use crate::{
    reclaim::{Guard, pin},
    refcount::counted::{AtomicCounted, Counted, Object, Shared},
};

/// The record that belongs to a word.
struct Record<T> {
    /// While a change is in progress: the word before it, and the record that belonged to that
    /// word. Afterwards `None`.
    before: Option<(u64, Option<T>)>,
    /// The record that belongs to any other word.
    after: Option<T>,
}

impl<T: Send + Sync + 'static> Object for Record<T> {}

/// A record that belongs to a word kept elsewhere. `None` is a record too: most words have it.
pub struct VersionedPair<T: Send + Sync + 'static> {
    /// Guarded by the owner's lock. Null until the first change if the initial record is `None`,
    /// and never null again.
    record: AtomicCounted<Record<T>>,
}

impl<T: Send + Sync + 'static> std::fmt::Debug for VersionedPair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedPair").finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> VersionedPair<T> {
    /// With this record, whatever the word is.
    #[must_use]
    pub fn new(record: Option<T>) -> Self {
        let settled = |after| Counted::new(Record { before: None, after: Some(after) });
        Self { record: AtomicCounted::new(record.map(settled)) }
    }

    /// Calls `look` with the word, as `word` loads it (with acquire ordering), and the record that
    /// belonged to it at that instant. Never waits; retries only if a change was made meanwhile.
    /// `look` runs under a guard.
    pub fn read<R>(&self, word: impl Fn() -> u64, look: impl FnOnce(u64, Option<&T>) -> R) -> R {
        let guard = pin();
        loop {
            let record = self.record.load(&guard);
            let now = word();
            if !same(record, self.record.load(&guard)) {
                continue;
            }
            return look(
                now,
                record.and_then(|record| match &record.to_ref().before {
                    Some((before, old)) if *before == now => old.as_ref(),
                    _ => record.to_ref().after.as_ref(),
                }),
            );
        }
    }

    /// Whether `look` accepts the current record. The caller excludes changes.
    pub fn holds(&self, look: impl FnOnce(Option<&T>) -> bool) -> bool {
        if self.record.is_none() {
            return look(None);
        }
        let guard = pin();
        look(self.settled(&guard))
    }

    /// Changes the word from `before` to `after`, and the record to `new`. `store` stores the word,
    /// with release ordering and without a panic. The caller excludes other changes of either.
    pub fn change(&self, before: u64, after: u64, new: Option<T>, store: impl FnOnce()) {
        let guard = pin();
        if before != after {
            let old = self.settled(&guard).cloned();
            let announced = Record { before: Some((before, old)), after: new.clone() };
            drop(self.record.swap(Some(Counted::new(announced))));
            store();
        }
        // From now on the old word, if it is stored again, belongs to the new record.
        drop(self.record.swap(Some(Counted::new(Record { before: None, after: new }))));
    }

    fn settled<'g>(&self, guard: &'g Guard) -> Option<&'g T> {
        let record = self.record.load(guard)?.to_ref();
        debug_assert!(record.before.is_none(), "two changes at a time");
        record.after.as_ref()
    }
}

fn same<T: Object>(a: Option<Shared<'_, T>>, b: Option<Shared<'_, T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.ptr_eq(b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::*};

    #[test]
    fn word_decides_which_record_is_valid() {
        let (word, pair) = (AtomicU64::new(1), VersionedPair::new(None));
        let read = || pair.read(|| word.load(Acquire), |word, record| (word, record.copied()));
        assert_eq!(read(), (1, None));
        pair.change(1, 2, Some('b'), || {
            assert_eq!(read(), (1, None));
            word.store(2, Release);
            assert_eq!(read(), (2, Some('b')));
        });
        // The old word again: it belongs to the current record.
        word.store(1, Release);
        assert_eq!(read(), (1, Some('b')));
        pair.change(1, 3, None, || word.store(3, Release));
        assert_eq!(read(), (3, None));
        pair.change(3, 1, None, || word.store(1, Release));
        pair.change(1, 1, Some('c'), || unreachable!("the word stays"));
        assert_eq!(read(), (1, Some('c')));
        assert!(pair.holds(|record| record == Some(&'c')));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
