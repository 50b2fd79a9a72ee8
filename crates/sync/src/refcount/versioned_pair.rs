//! `VersionedPair`: a word and what it goes with, changed at one instant and read together without a lock.
//!
//! A file's size is a word that everybody reads by itself, and where its data lies is a record of any length. Whoever
//! reads both must not get the size of one moment and the record of another; and he must not wait for whoever changes
//! them, who may be anywhere in a long write.
//!
//! So the record is announced before the word changes, together with its predecessor and the word of each: *the word
//! decides* which of the two holds, and storing it is the instant of both. Afterwards the record is settled: it holds by
//! itself. A reader loads the record, the word, and the record again: if it is the same one, the word was loaded while
//! that record was the one that is announced. Records are never used twice, so what is the same was never another.
//! (The reader's validation is that of sequence locks; unlike there, a writer who sleeps holds nobody up.)
//!
//! Linearization points: of a change, the store of the word (of one that keeps the word, the exchange of the record); of
//! a read, its load of the word.

use crate::{
    reclaim::{Guard, pin},
    refcount::counted::{AtomicCounted, Counted, Object, Shared},
};

/// What is known of the word's companion.
struct Record<T> {
    /// The word before the change that is being made, and what went with it; none once it is made.
    before: Option<(u64, Option<T>)>,
    /// What goes with any other word.
    after: Option<T>,
}

impl<T: Send + Sync + 'static> Object for Record<T> {}

/// A record that goes with a word kept elsewhere. None is a record too: the one that most words have.
pub struct VersionedPair<T: Send + Sync + 'static> {
    /// Changed under the owner's lock. Null until the first record that is not none, and never again.
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

    /// The word, as `word` loads it (with acquire ordering), and what went with it at that instant. Never waits; starts over
    /// only if a change was made meanwhile. `look` runs under a guard.
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

    /// Whether `look` likes the record that holds now. The caller keeps others from changing it.
    pub fn holds(&self, look: impl FnOnce(Option<&T>) -> bool) -> bool {
        if self.record.is_none() {
            return look(None);
        }
        let guard = pin();
        look(self.settled(&guard))
    }

    /// Changes the word from `before` to `after`, which `store` does (with release ordering, and without a panic), and the
    /// record to `new`. The caller keeps others from changing either.
    pub fn change(&self, before: u64, after: u64, new: Option<T>, store: impl FnOnce()) {
        let guard = pin();
        if before != after {
            let old = self.settled(&guard).cloned();
            let announced = Record { before: Some((before, old)), after: new.clone() };
            drop(self.record.swap(Some(Counted::new(announced))));
            store();
        }
        // From now on the old word, should it come again, goes with the new record.
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
    fn the_word_decides() {
        let (word, described) = (AtomicU64::new(1), VersionedPair::new(None));
        let read = || described.read(|| word.load(Acquire), |word, record| (word, record.copied()));
        assert_eq!(read(), (1, None));
        described.change(1, 2, Some('b'), || {
            assert_eq!(read(), (1, None));
            word.store(2, Release);
            assert_eq!(read(), (2, Some('b')));
        });
        // The old word comes again, with the record that there is now.
        word.store(1, Release);
        assert_eq!(read(), (1, Some('b')));
        described.change(1, 3, None, || word.store(3, Release));
        assert_eq!(read(), (3, None));
        described.change(3, 1, None, || word.store(1, Release));
        described.change(1, 1, Some('c'), || unreachable!("the word stays"));
        assert_eq!(read(), (1, Some('c')));
        assert!(described.holds(|record| record == Some(&'c')));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
