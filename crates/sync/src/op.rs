//! Multi-word operations: several words change at one instant, by one compare-and-swap.
//!
//! A rename changes two directory entries and a place. A rename over a directory changes that
//! directory's life as well. All of these words must change at one instant. So each word is first
//! pointed to an *entry*, which says what the word holds before the operation and after it. All
//! entries belong to one descriptor, the [`Op`]. The compare-and-swap that moves the `Op` from
//! undecided to committed changes every word at once. A reader that finds an entry answers from the
//! `Op`'s state: it does not write, wait or help. Afterwards the words are cleaned, in any order.
//!
//! The idea is that of Harris, Fraser and Pratt (*A practical multi-word compare-and-swap
//! operation*, 2002). This version is simpler, because each word has one writer at a time (the
//! holder of its name's lock). So threads install entries without helping one another. They race
//! only for an `Op`'s state and for the publication of a pending value.
//!
//! # State words
//!
//! Each transition is one compare-and-swap.
//!
//! * [`Op`]: undecided, committed or aborted. A decided op never changes.
//!   * undecided -> committed: by the operation, or by a remover that helps the birth of a cell.
//!   * undecided -> aborted: by the operation, or by a creator that keeps a directory alive.
//! * [`OpCell`]: empty, value X, pending X, or an entry (op, before, after).
//!   * A cell is born pending, by its creator.
//!   * pending -> value: by the creator or a remover.
//!   * pending -> empty: by the creator.
//!   * before -> entry -> outcome: by the writer.
//!   * value -> value: by the writer.
//!   * any -> empty: by the thread that takes the tree apart.
//! * [`Life`]: alive, op, or removed.
//!   * alive -> op -> alive or removed: by the remover.
//!
//! A cell *shows* nothing when it is empty or pending. Otherwise it shows its value, or under an
//! entry `after` if the op is committed and `before` if not. A life whose op is committed is
//! removed, and a life whose op is aborted is alive, also before a thread cleans the word.
//!
//! # Linearization points
//!
//! A reader loads the word and, if it finds an entry, the op's state. If the op was undecided or
//! aborted, the cell showed `before` when the state was read (the entry of an undecided op is still
//! in the word), or when the word was read. If the op was committed, the cell showed `after` when
//! the word was read or, if later, at the commit. Each of these instants lies within the read.
//!
//! (a) **rename, EXCHANGE, rename-over**: the commit. Every entry is in its word before the commit.
//! So a reader that saw the commit, or a word cleaned after it, finds the entry or its outcome in
//! every other word:
//!
//! ```text
//! renamer of A to B                          reader of A, then B
//! A: X    -> entry(X, none)
//! B: none -> entry(none, X)
//!                                            A: entry, undecided: X (not moved yet)
//! op: undecided -> committed
//!                                            A: entry, committed: none
//! A: entry -> empty                          B: entry, and the op remains committed: X
//! B: entry -> X                              B: X
//! ```
//!
//! A reader that reads in the other order, B empty and then A empty, may miss both: the commit lies
//! between the two reads.
//!
//! (b) **create against removal** (rmdir, or rename over a directory). The creator's instant is the
//! publication of its pending cell, by either thread. The remover's instant is the commit if it
//! succeeds. If the directory is not empty, it is the moment at which its scan
//! ([`OpCell::occupied`]) saw a cell that shows a value. Both threads write first and then read the
//! other's word, with a fence between (in [`Life::begin_removal`] and [`Life::keep_alive`]). So at
//! least one of them sees the other (Dekker):
//!
//! ```text
//! creator                                    remover
//! cell: pending X
//! fence
//! life: alive                                life: alive -> op
//!                                            fence
//!                                            scan: pending X, published here, so
//!                                              that all see "not empty"
//! publish: already done; success             op: aborted; life -> alive; not empty
//!
//! creator                                    remover
//!                                            life: alive -> op
//!                                            fence
//!                                            scan: nothing
//! cell: pending X
//! fence
//! life: op, undecided -> aborted             commit fails: the remover begins again with a
//! publish; success                             new op. It may not say "not empty" yet, since
//!                                              no thread can see X so far. The next scan
//!                                              finds X
//!
//! or, later:                                 commit succeeds: removed
//! life: op, committed: removed
//! cell: pending X -> empty; ENOENT           no thread has ever seen X
//! ```
//!
//! To retract is a compare-and-swap from pending. If it fails, a remover has published the cell and
//! aborted its removal. The cell was seen, and the creator has succeeded.
//!
//! A rename is a create in its target directory. It enlists all its other words first, and makes
//! its new cell last, born under the op. Then it calls `keep_alive`, and aborts if the result is
//! false. A remover whose scan finds such a cell undecided commits the rename itself, and only then
//! says "not empty". It may commit, since everything is enlisted, nothing can fail any more, and
//! the directory stays alive because the remover aborts its removal.
//!
//! (c) **unlink** of a file changes one word: [`OpCell::replace`] is the instant. Unlink of a
//! directory is (b).
//!
//! # Ownership
//!
//! A cell owns one reference to what it holds: to the value, or, through an entry, to `before`, to
//! `after` and to the op that contains the entry. When the word is cleaned, the reference to the
//! outcome stays in the cell, and the thread whose compare-and-swap took the entry out puts the
//! others. So each is put once. A reader may still be reading the entry. Its guard is older than
//! those puts, and keeps all of them readable, as it does for any
//! [`AtomicCounted`](crate::AtomicCounted).
//!
//! # Orderings
//!
//! All accesses to these words are SeqCst, except for the first value of a new cell and for drops.
//! So all threads agree on one order of look-ups of different names and of different operations, as
//! linearizability demands. On x86 that costs readers nothing, and writers use read-modify-writes
//! anyway. The store-then-load protocol of (b) has explicit fences.

mod cell;
mod life;
mod operation;

pub use cell::{Creation, Enlisted, OpCell, Peek};
pub use life::{Life, LifeState, NotRemovable, Removal};
pub use operation::Operation;

use std::mem::MaybeUninit;

use self::operation::{Place, WORDS};
use crate::{
    facade::{AtomicUsize, Ordering},
    refcount::counted::Object,
};

/// Not decided yet: every word still shows its old value.
const UNDECIDED: usize = 0;
/// All words have changed.
const COMMITTED: usize = 1;
/// No word has changed.
const ABORTED: usize = 2;

/// The descriptor of one operation: the state that all its words share, and their entries. Made as
/// an [`Operation`], and found by other threads under guards.
pub struct Op {
    /// One of the three constants. Atomic: a single independent value.
    state: AtomicUsize,
    /// Each is written before a word points to it, and read by threads that find it there.
    entries: [Place; WORDS],
}

// SAFETY: one thread (`Operation`) writes the entries, each before a word points to it. After that
// they are only read. They point to `Object`s, which are Send and Sync.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

impl Object for Op {}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state().fmt(f)
    }
}

/// The state of an [`Op`]. Once decided, it does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpState {
    /// Every word shows its value from before the operation.
    Undecided,
    /// Every word shows its value after the operation.
    Committed,
    /// Every word shows its value from before the operation, for ever.
    Aborted,
}

impl Op {
    /// Without entries.
    fn undecided() -> Self {
        Self { state: AtomicUsize::new(UNDECIDED), entries: [const { Place::new(MaybeUninit::uninit()) }; WORDS] }
    }

    /// Changes all enlisted words at this instant, unless the operation was aborted before.
    ///
    /// Returns whether the operation is committed now, by this call or an earlier one. Called when
    /// all words are enlisted.
    pub fn commit(&self) -> bool {
        self.decide(COMMITTED)
    }

    /// Leaves all words unchanged, unless the operation was committed before.
    ///
    /// Returns whether the operation is aborted now, by this call or an earlier one.
    pub fn abort(&self) -> bool {
        self.decide(ABORTED)
    }

    fn decide(&self, to: usize) -> bool {
        match self.state.compare_exchange(UNDECIDED, to, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(now) => now == to,
        }
    }

    /// The current state of the operation.
    #[inline]
    #[must_use]
    pub fn state(&self) -> OpState {
        match self.state.load(Ordering::SeqCst) {
            UNDECIDED => OpState::Undecided,
            COMMITTED => OpState::Committed,
            _ => OpState::Aborted,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
