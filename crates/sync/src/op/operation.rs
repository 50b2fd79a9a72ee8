//! An operation in the hands of the thread that carries it out, and the entries that its words point to.

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

/// How many words an operation changes at most, besides a [`Life`](super::Life): the slots and the places of an exchange.
pub(super) const WORDS: usize = 4;

/// So many references to an op are made with it: its maker's, and one for each word that may point to it.
const REFERENCES: usize = 1 + WORDS + 1;

/// What a word points to while an operation is at work on it. Never changed once a word does; the word owns one reference to each.
#[repr(align(8))]
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The op that the entry lies in.
    pub(super) op: NonNull<Block<Op>>,
    /// What the word showed; a block of the type that the word's cell is of.
    pub(super) before: Option<NonNull<()>>,
    /// What it shows once the op is committed.
    pub(super) after: Option<NonNull<()>>,
}

/// Where an entry will be.
pub(super) type Place = UnsafeCell<MaybeUninit<Entry>>;

/// An [`Op`] in the hands of the one thread that carries it out. One allocation of two cache lines, entries and all.
///
/// It has references in hand for all words that may point to the op, and takes those back that its words have done with: so the
/// count is written once, in the end.
pub struct Operation {
    op: ManuallyDrop<Counted<Op>>,
    /// References in hand, besides `op`.
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

    /// A view that borrows from this operation, comparable with what guards find.
    #[must_use]
    pub fn as_shared(&self) -> Shared<'_, Op> {
        self.op.as_shared()
    }

    /// A reference for a word.
    pub(super) fn lend(&self) -> NonNull<Block<Op>> {
        match self.spare.get().checked_sub(1) {
            Some(left) => self.spare.set(left),
            // Somebody else has put one that was lent.
            None => std::mem::forget(Counted::clone(&self.op)),
        }
        self.op.as_shared().as_raw()
    }

    /// A reference that a word has done with, or has not taken.
    pub(super) fn take_back(&self, reference: Counted<Op>) {
        debug_assert!(reference.ptr_eq(&self.op), "a reference to another operation");
        std::mem::forget(reference);
        self.spare.set(self.spare.get() + 1);
    }

    /// A new entry, with a reference to the op; it owns what it is told to show.
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
        // SAFETY: no word points there: it was not used, or taken back. Nobody else writes, for an `Operation` stays with one
        // thread at a time.
        unsafe {
            place.write(entry);
            NonNull::new_unchecked(place)
        }
    }

    /// The newest entry, which no word took: its place is free again, and so is the reference to the op.
    pub(super) fn withdraw(&self, entry: NonNull<Entry>) {
        debug_assert_eq!(entry.as_ptr().cast_const(), self.op.entries[self.used.get() - 1].get().cast(), "the newest");
        self.used.set(self.used.get() - 1);
        self.spare.set(self.spare.get() + 1);
    }
}

#[cfg(test)]
impl Operation {
    /// A view that lasts as long as a guard, also when the operation goes before it.
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
