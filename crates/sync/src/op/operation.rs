//! An operation, owned by the thread that carries it out, and the entries to which its words point.

use std::{
    cell::{Cell, UnsafeCell},
    mem::{ManuallyDrop, MaybeUninit},
    ops::Deref,
    ptr::NonNull,
};

use super::Op;
#[cfg(test)]
use crate::reclaim::Guard;
use crate::refcount::counted::{Block, Counted, Object, Shared};

/// How many words an operation changes at most, besides a [`Life`](super::Life): the directory
/// entries and the places of an exchange.
pub(super) const WORDS: usize = 4;

/// How many references to an op are made with it: one for its maker, and one for each word that may
/// point to it.
const REFERENCES: usize = 1 + WORDS + 1;

/// The target of a word while an operation changes it. It does not change while a word points to
/// it. The word owns one reference to each part.
#[repr(align(8))]
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The op that contains the entry.
    pub(super) op: NonNull<Block<Op>>,
    /// The value that the word showed: a block of the cell's type.
    pub(super) before: Option<NonNull<()>>,
    /// The value that the word shows once the op is committed.
    pub(super) after: Option<NonNull<()>>,
}

/// Memory for an entry.
pub(super) type Place = UnsafeCell<MaybeUninit<Entry>>;

/// An [`Op`], owned by the one thread that carries it out. One allocation of two cache lines, with
/// all entries.
///
/// It holds references for all words that may point to the op, and takes back those that its words
/// no longer need. So the count is written once, at the end.
pub struct Operation {
    op: ManuallyDrop<Counted<Op>>,
    /// References held, besides `op`.
    spare: Cell<usize>,
    /// How many of the op's entries are written.
    used: Cell<usize>,
}

impl Operation {
    /// A new operation, undecided.
    #[must_use]
    pub fn new() -> Self {
        let op = Counted::with_references(Op::undecided(), REFERENCES);
        Self { op: ManuallyDrop::new(op), spare: Cell::new(REFERENCES - 1), used: Cell::new(0) }
    }

    /// A view that borrows from this operation, comparable with the views that guards give.
    #[must_use]
    pub fn as_shared(&self) -> Shared<'_, Op> {
        self.op.as_shared()
    }

    /// A reference for a word.
    pub(super) fn lend(&self) -> NonNull<Block<Op>> {
        match self.spare.get().checked_sub(1) {
            Some(left) => self.spare.set(left),
            // Another thread has put one that was lent.
            None => std::mem::forget(Counted::clone(&self.op)),
        }
        self.op.as_shared().as_raw()
    }

    /// Takes back a reference that a word no longer needs, or has not taken.
    pub(super) fn take_back(&self, reference: Counted<Op>) {
        debug_assert!(reference.ptr_eq(&self.op), "a reference to another operation");
        std::mem::forget(reference);
        self.spare.set(self.spare.get() + 1);
    }

    /// A new entry, with a reference to the op. It owns `after`.
    ///
    /// # Panics
    /// If there are four.
    pub(super) fn entry<T: Object>(&self, before: Option<Shared<'_, T>>, after: Option<Counted<T>>) -> NonNull<Entry> {
        let at = self.used.get();
        assert!(at < WORDS, "an operation changes at most {WORDS} words");
        self.used.set(at + 1);
        let before = before.map(|value| value.as_raw().cast());
        let after = after.and_then(|value| NonNull::new(value.into_raw().cast()));
        let place = self.op.entries[at].get().cast::<Entry>();
        let entry = Entry { op: self.lend(), before, after };
        // SAFETY: no word points there: the entry was not used, or it was withdrawn. No other
        // thread writes, since an `Operation` belongs to one thread at a time.
        unsafe {
            place.write(entry);
            NonNull::new_unchecked(place)
        }
    }

    /// Withdraws the newest entry, which no word took. Its memory and its reference to the op are
    /// free again.
    pub(super) fn withdraw(&self, entry: NonNull<Entry>) {
        debug_assert_eq!(entry.as_ptr().cast_const(), self.op.entries[self.used.get() - 1].get().cast(), "the newest");
        self.used.set(self.used.get() - 1);
        self.spare.set(self.spare.get() + 1);
    }
}

#[cfg(test)]
impl Operation {
    /// A view that lasts as long as a guard, even if the operation is dropped first.
    pub(super) fn share<'g>(&self, guard: &'g Guard) -> Shared<'g, Op> {
        self.op.share(guard)
    }

    /// How many words own a reference to the op; a hint.
    #[cfg(not(loom))]
    pub(super) fn words(&self) -> usize {
        Counted::count(&self.op) - 1 - self.spare.get()
    }
}

impl Default for Operation {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Operation {
    type Target = Op;

    fn deref(&self) -> &Op {
        &self.op
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::take(&mut self.op) }.put_with(self.spare.get());
    }
}
