//! One operation over many words, committed by one compare-and-swap.
//!
//! A rename changes two slots and a place; a rename over a directory changes that directory's life as well. All of them
//! must change at one instant. So each word is first pointed to an *entry* that says what the word holds before the
//! operation and what after it; all entries share one [`Op`]; and the compare-and-swap that moves the `Op` from
//! undecided to committed changes every word at once. A reader that meets an entry answers from the `Op`'s state: it
//! neither writes nor waits nor helps. Afterwards the words are cleaned, in any order.
//!
//! The idea is that of Harris, Fraser and Pratt (*A practical multi-word compare-and-swap operation*, 2002). Ours is
//! simpler, because each word has one writer at a time (the holder of its name's lock): entries are put without helping
//! one another, and only an `Op`'s state and the publication of a pending value are raced for.
//!
//! # State words
//!
//! | word | states | transitions (each one compare-and-swap) |
//! | --- | --- | --- |
//! | [`Op`] | undecided, committed, aborted | undecided -> committed: the operation, or a remover that helps a birth. undecided -> aborted: the operation, or a creator that keeps a directory alive. Decided is for ever |
//! | [`OpCell`] | empty, value X, pending X, entry (op, before, after) | pending, by its creator: a cell is born so. pending -> value: creator or remover. pending -> empty: creator. before -> entry -> outcome: the writer. value -> value: the writer. any -> empty: who takes everything apart |
//! | [`Life`] | alive, op, removed | alive -> op -> alive or removed: the remover |
//!
//! A cell *shows*: nothing when empty or pending; its value; under an entry `after` if the op is committed and `before`
//! otherwise. A life whose op is committed is removed, one whose op is aborted is alive: before anybody cleans it.
//!
//! # Linearization points
//!
//! A reader loads the word and, if it finds an entry, the op's state. Found undecided or aborted, the cell showed
//! `before` when the state was read (an undecided op's entry is still in the word), or when the word was read. Found
//! committed, it showed `after` when the word was read or, if later, at the commit. Each lies within the read.
//!
//! (a) **rename, EXCHANGE, rename-over**: the commit. Every entry is in its word before, and a reader that saw the
//! commit (or a word cleaned after it) therefore finds the entry or its outcome in every other word:
//!
//! ```text
//! renamer of A to B                          reader of A, then B
//! A: X    -> entry(X, none)
//! B: none -> entry(none, X)
//!                                            A: entry, undecided: X. (had it stopped here: not moved yet)
//! op: undecided -> committed
//!                                            A: entry, committed: none
//! A: entry -> empty                          B: entry, and the state it has seen committed stays so: X
//! B: entry -> X                              B: X
//! ```
//!
//! Read in the other order, B empty and then A empty, both may be missed: the commit lies between the two reads.
//!
//! (b) **create against removal** (rmdir, or rename over a directory). The creator's instant is the publication of its
//! pending slot, by whomever; the remover's is the commit when it succeeds and, when the directory is not empty, the
//! moment at which its scan ([`OpCell::occupied`]) saw an entry that shows. Both write first and then look at the
//! other's word, with a fence between (in [`Life::begin_removal`] and [`Life::keep_alive`]), so at least one sees the
//! other (Dekker):
//!
//! ```text
//! creator                                    remover
//! slot: pending X
//! fence
//! life: alive                                life: alive -> op
//!                                            fence
//!                                            scan: pending X, published here, so that "not empty" is true for all
//! publish: it is already; success            op: aborted; life -> alive; not empty
//!
//! creator                                    remover
//!                                            life: alive -> op
//!                                            fence
//!                                            scan: nothing
//! slot: pending X
//! fence
//! life: op, undecided -> aborted             commit fails: the remover begins again with a new op. It may not say
//! publish; success                             "not empty" yet, for nobody can see X so far; the next scan finds X
//!
//! or, later:                                 commit succeeds: removed
//! life: op, committed: removed
//! slot: pending X -> empty; ENOENT           nobody has ever seen X
//! ```
//!
//! Retracting is a compare-and-swap from pending. If it fails, a remover has published the entry and given up, the
//! entry was seen, and the creator has succeeded.
//!
//! A rename is a create in its target directory. It enlists all its other words first, and makes its new slot last,
//! born under the op; then it calls `keep_alive`, and aborts if that says no. A remover whose scan finds such a slot
//! undecided commits the rename itself (everything is enlisted, nothing can fail any more, and the directory is alive,
//! since the remover gives up) and only then says "not empty".
//!
//! (c) **unlink** of a file changes one word: [`OpCell::replace`] is the instant. Unlink of a directory is (b).
//!
//! # Ownership
//!
//! A cell owns one reference to what it holds: the value, or, through an entry, `before`, `after` and the op that the entry
//! lies in. The outcome's reference stays in the cell and the other one leaves it at the cleaning, by whoever's compare-and-swap
//! took the entry out: so each is put once. A reader may still be looking at the entry, and its guard is older than
//! those puts: it keeps all of them readable, the entry with its op, as it does for any [`AtomicCounted`](crate::AtomicCounted).
//!
//! # Orderings
//!
//! All accesses to these words are SeqCst (but for a new cell's first value, and for drops): look-ups of different names,
//! and different operations, then have one order for all threads, as linearizability asks. On x86 that costs the readers
//! nothing, and the writers use read-modify-writes anyway. The store-then-load protocol of (b) has explicit fences.

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

/// Not decided yet: every word still shows what it held before.
const UNDECIDED: usize = 0;
/// All words have changed.
const COMMITTED: usize = 1;
/// No word has changed.
const ABORTED: usize = 2;

/// The state that all words of one operation share, and their entries. Made as an [`Operation`], and found under guards.
pub struct Op {
    /// One of the three constants; atomic: a single independent value.
    state: AtomicUsize,
    /// Each written before a word points to it, and read by whoever finds it there.
    entries: [Place; WORDS],
}

// SAFETY: the entries are written by one thread (`Operation`), each before its word shows it, and then only read; what they point
// to is Send and Sync, as each `Object` is.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

impl Object for Op {}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state().fmt(f)
    }
}

/// What has become of an [`Op`]. Once decided, it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpState {
    /// Every word shows what it held before the operation.
    Undecided,
    /// Every word shows what it holds after the operation.
    Committed,
    /// Every word shows what it held before, for ever.
    Aborted,
}

impl Op {
    /// With no entry yet.
    fn undecided() -> Self {
        Self { state: AtomicUsize::new(UNDECIDED), entries: [const { Place::new(MaybeUninit::uninit()) }; WORDS] }
    }

    /// Changes all enlisted words at this instant, unless the operation was aborted before.
    ///
    /// Returns whether the operation is committed now, by this call or an earlier one. Call it when all words are
    /// enlisted.
    pub fn commit(&self) -> bool {
        self.decide(COMMITTED)
    }

    /// Leaves all words as they were, unless the operation was committed before.
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

    /// What has become of the operation so far.
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
