//! A word that shows a reference, or none, and can change together with other words.

use std::{marker::PhantomData, ptr::NonNull};

use super::{Op, OpState, Operation, operation::Entry};
use crate::{
    facade::{AtomicPtr, Ordering},
    reclaim::{self, Guard},
    refcount::counted::{Block, Counted, Object, Shared},
};

/// The tag: the bits of a word that say what the rest points to. Blocks and entries are aligned to
/// eight bytes.
const TAG: usize = 0b11;
/// A visible value. With a null pointer: the cell is empty.
const VALUE: usize = 0b00;
/// A value that is invisible until it is published.
const PENDING: usize = 0b01;
/// An [`Entry`]: the state of its op says what the cell shows.
const ENTRY: usize = 0b10;

/// The parts of an entry: the state of its op, the value before, and the value after.
type Parts<T> = (OpState, Option<Counted<T>>, Option<Counted<T>>);

/// A cell's word, decoded.
enum Word<T: Object> {
    Empty,
    Value(NonNull<Block<T>>),
    Pending(NonNull<Block<T>>),
    Entry(NonNull<Entry>),
}

impl<T: Object> Word<T> {
    #[inline]
    fn decode(raw: *mut ()) -> Self {
        let Some(ptr) = NonNull::new(raw.map_addr(|addr| addr & !TAG)) else { return Self::Empty };
        match raw.addr() & TAG {
            VALUE => Self::Value(ptr.cast()),
            PENDING => Self::Pending(ptr.cast()),
            _ => Self::Entry(ptr.cast()),
        }
    }

    fn encode(&self) -> *mut () {
        let (ptr, tag) = match self {
            Self::Empty => (std::ptr::null_mut(), VALUE),
            Self::Value(block) => (block.as_ptr().cast::<()>(), VALUE),
            Self::Pending(block) => (block.as_ptr().cast(), PENDING),
            Self::Entry(entry) => (entry.as_ptr().cast(), ENTRY),
        };
        ptr.map_addr(|addr| addr | tag)
    }

    fn value(block: Option<NonNull<Block<T>>>) -> Self {
        block.map_or(Self::Empty, Self::Value)
    }
}

/// Turns a reference into a pointer that a word or an entry owns.
fn give<T: Object>(value: Counted<T>) -> NonNull<Block<T>> {
    let raw = value.into_raw();
    // SAFETY: `into_raw` returns the address of the block, which is never null.
    unsafe { NonNull::new_unchecked(raw) }
}

/// # Safety
/// `block` came from [`give`], and the word or entry that owned the reference does not own it any
/// more.
unsafe fn take<T: Object>(block: NonNull<Block<T>>) -> Counted<T> {
    // SAFETY: the caller's contract.
    unsafe { Counted::from_raw(block) }
}

/// # Safety
/// `entry` was found under `guard` in the word of a cell of `T`.
unsafe fn peek<'g, T: Object>(
    entry: NonNull<Entry>,
    _guard: &'g Guard,
) -> (Shared<'g, Op>, Option<Shared<'g, T>>, Option<Shared<'g, T>>) {
    // SAFETY: the word owned a reference to the op, which contains the entry. So the guard is older
    // than the op's retirement.
    let Entry { op, before, after } = unsafe { entry.read() };
    // SAFETY: the entry's references are put after it left the word, so the guard is older than
    // that too.
    let share = |block: NonNull<()>| unsafe { Shared::from_raw(block.cast()) };
    // SAFETY: as for `before` and `after`.
    (unsafe { Shared::from_raw(op) }, before.map(share), after.map(share))
}

/// Takes apart an entry that has left its word. The caller gets the references that the word owned
/// through it: to the op, to the value before, and to the value after.
///
/// # Safety
/// The caller's own read-modify-write took `entry` out of the word of a cell of `T`, or the caller
/// has exclusive access to the cell.
unsafe fn dismantle<T: Object>(entry: NonNull<Entry>) -> (Counted<Op>, Option<Counted<T>>, Option<Counted<T>>) {
    // SAFETY: the caller has the reference to the op, which contains the entry.
    let Entry { op, before, after } = unsafe { entry.read() };
    // SAFETY: the word owned these references, and only the thread that took the entry out of it
    // gets here.
    unsafe { (take(op), before.map(|block| take(block.cast())), after.map(|block| take(block.cast()))) }
}

/// The contents of a cell, unresolved: for scans and for the owner of the word. Readers use
/// [`OpCell::load`].
pub enum Peek<'g, T: Object> {
    /// Nothing.
    Empty,
    /// A visible value.
    Value(Shared<'g, T>),
    /// A value that is invisible until it is published.
    Pending(Shared<'g, T>),
    /// An operation is changing the cell. Its state says what the cell shows.
    Op {
        /// The operation.
        op: Shared<'g, Op>,
        /// The value that the cell shows unless the operation is committed.
        before: Option<Shared<'g, T>>,
        /// The value that the cell shows once the operation is committed.
        after: Option<Shared<'g, T>>,
    },
}

impl<T: Object> Clone for Peek<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Object> Copy for Peek<'_, T> {}

impl<'g, T: Object> Peek<'g, T> {
    /// The value that the cell shows. Reads the state of the operation, if there is one.
    #[inline]
    #[must_use]
    pub fn resolve(self) -> Option<Shared<'g, T>> {
        match self {
            Self::Empty | Self::Pending(_) => None,
            Self::Value(value) => Some(value),
            Self::Op { op, before, after } => match op.state() {
                OpState::Committed => after,
                OpState::Undecided | OpState::Aborted => before,
            },
        }
    }
}

/// A word that shows a reference to a `T`, or none, and that an [`Op`] can change together with
/// others.
///
/// Eight bytes. It has one writer at a time, by the caller's locking. Readers need only a guard.
/// Two concurrent writes are defined all the same: one of them fails, or the later one wins.
pub struct OpCell<T: Object> {
    /// A [`Word`].
    word: AtomicPtr<()>,
    _owns: PhantomData<Counted<T>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<OpCell<Op>>() == size_of::<usize>(), "a cell is one word");

impl<T: Object> OpCell<T> {
    fn from_word(word: &Word<T>) -> Self {
        Self { word: AtomicPtr::new(word.encode()), _owns: PhantomData }
    }

    /// A cell that shows `value`.
    #[must_use]
    pub fn new(value: Option<Counted<T>>) -> Self {
        Self::from_word(&Word::value(value.map(give)))
    }

    /// A cell whose value is invisible until [`OpCell::publish`].
    #[must_use]
    pub fn new_pending(value: Counted<T>) -> Self {
        Self::from_word(&Word::Pending(give(value)))
    }

    /// A cell that is born under an operation: it shows nothing until `op` is committed, then
    /// `after`.
    ///
    /// It is inserted when everything else is enlisted, since a remover may commit the operation as
    /// soon as it finds the cell. After the insertion, it is [adopted](OpCell::adopt).
    ///
    /// # Panics
    /// As [`OpCell::enlist`].
    #[must_use]
    pub fn new_enlisted(op: &Operation, after: Counted<T>) -> Self {
        Self::from_word(&Word::Entry(op.entry(None, Some(after))))
    }

    /// Gives an empty new cell its first value. Called by the thread that has made the cell, before
    /// another thread may write to it.
    pub fn fill(&self, value: Counted<T>) {
        debug_assert!(matches!(Word::<T>::decode(self.word.load(Ordering::Relaxed)), Word::Empty), "it is empty");
        // Release: a thread that finds the value finds it initialized. It reaches further objects
        // through this cell.
        self.word.store(Word::Value(give(value)).encode(), Ordering::Release);
    }

    /// The value that the cell shows now. Writes nothing and does not wait: one load, two more
    /// under an operation.
    #[inline]
    #[must_use]
    pub fn load<'g>(&self, guard: &'g Guard) -> Option<Shared<'g, T>> {
        self.peek(guard).resolve()
    }

    /// The contents of the cell, unresolved.
    #[inline]
    #[must_use]
    pub fn peek<'g>(&self, guard: &'g Guard) -> Peek<'g, T> {
        match Word::decode(self.word.load(Ordering::SeqCst)) {
            Word::Empty => Peek::Empty,
            // SAFETY: the cell owned a reference when it was read under the guard, and it is put
            // only after the word has changed.
            Word::Value(block) => Peek::Value(unsafe { Shared::from_raw(block) }),
            // SAFETY: as above.
            Word::Pending(block) => Peek::Pending(unsafe { Shared::from_raw(block) }),
            Word::Entry(entry) => {
                // SAFETY: just found in the word, under the guard.
                let (op, before, after) = unsafe { peek(entry, guard) };
                Peek::Op { op, before, after }
            }
        }
    }

    fn change(&self, from: &Word<T>, to: &Word<T>) -> bool {
        self.word.compare_exchange(from.encode(), to.encode(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Pending to visible, by the creator or by a remover that found the cell.
    ///
    /// Returns true if this call did it, and false if nothing is pending (any more).
    pub fn publish(&self, _guard: &Guard) -> bool {
        // The guard keeps the block's address from being reused between the load and the
        // compare-and-swap.
        match Word::decode(self.word.load(Ordering::SeqCst)) {
            Word::Pending(block) => self.change(&Word::Pending(block), &Word::Value(block)),
            Word::Empty | Word::Value(_) | Word::Entry(_) => false,
        }
    }

    /// Pending to empty, by the creator. No thread has seen the value, which is returned.
    ///
    /// Returns `None` if nothing is pending any more: a remover has published the value, so the
    /// creation has succeeded.
    #[must_use = "None means that the value was published"]
    pub fn retract(&self) -> Option<Counted<T>> {
        let Word::Pending(block) = Word::decode(self.word.load(Ordering::SeqCst)) else { return None };
        // SAFETY: the compare-and-swap took the value out of the cell, which owned a reference to
        // it.
        self.change(&Word::Pending(block), &Word::Empty).then(|| unsafe { take(block) })
    }

    /// For the creator: when dropped, it retracts the pending value, unless that was published.
    #[must_use = "dropping it retracts the value"]
    pub fn creation(&self) -> Creation<'_, T> {
        Creation { cell: self }
    }

    /// Shows `value` from now on: a change of this word alone. Returns the old value.
    ///
    /// The caller is the word's one writer, so no operation is changing it. (Asserted in debug
    /// builds. Otherwise the operation loses this word, which then never showed its `after`, unless
    /// the op is committed.)
    pub fn replace(&self, value: Option<Counted<T>>) -> Option<Counted<T>> {
        let new = Word::value(value.map(give));
        self.swap(&new).unwrap_or_else(|under| {
            debug_assert!(false, "a word was replaced while an operation was at work on it");
            Self::shown(under)
        })
    }

    /// Shows nothing from now on, whatever the cell holds, and even if an operation is changing it:
    /// then the operation loses this word. Called by the thread that takes the tree apart.
    pub fn take(&self) -> Option<Counted<T>> {
        self.swap(&Word::Empty).unwrap_or_else(Self::shown)
    }

    /// The value that the parts of an entry showed.
    fn shown((state, before, after): Parts<T>) -> Option<Counted<T>> {
        if state == OpState::Committed { after } else { before }
    }

    /// Exchanges the word. Returns the old value, or the parts of an entry.
    fn swap(&self, new: &Word<T>) -> Result<Option<Counted<T>>, Parts<T>> {
        let old = Word::decode(self.word.swap(new.encode(), Ordering::SeqCst));
        // SAFETY: the swap took it out of the word.
        unsafe { Self::emptied(old) }
    }

    /// The value that a word held, or the parts of an entry.
    ///
    /// # Safety
    /// The caller has taken it out of its word, or owns the cell and drops it.
    unsafe fn emptied(old: Word<T>) -> Result<Option<Counted<T>>, Parts<T>> {
        match old {
            Word::Empty => Ok(None),
            // SAFETY: the cell owned one reference, which it does not own any more.
            Word::Value(block) | Word::Pending(block) => Ok(Some(unsafe { take(block) })),
            Word::Entry(entry) => {
                // SAFETY: the caller's contract.
                let (op, before, after) = unsafe { dismantle(entry) };
                Err((op.state(), before, after))
            }
        }
    }

    /// Puts the cell under `op`: it shows `before` until the operation is committed, then `after`.
    ///
    /// The cell's reference to `before` stays in the cell until it is finished. All words of an
    /// operation are enlisted before it is committed (asserted in debug builds).
    ///
    /// # Errors
    /// `after`, if the cell does not hold the value `before`, but another value, a pending value,
    /// or an operation.
    ///
    /// # Panics
    /// If four words are enlisted already.
    pub fn enlist<'a>(
        &'a self,
        op: &'a Operation,
        before: Option<Shared<'_, T>>,
        after: Option<Counted<T>>,
    ) -> Result<Enlisted<'a, T>, Option<Counted<T>>> {
        debug_assert!(op.state() != OpState::Committed, "a word was enlisted after the commit");
        let entry = op.entry(before, after);
        let before = before.map(Shared::as_raw);
        if self.change(&Word::value(before), &Word::Entry(entry)) {
            return Ok(Enlisted { cell: self, op });
        }
        // SAFETY: just written, and not stored in a word: this thread has the reference to `after`.
        // (The reference to `before` is the cell's.)
        let after = unsafe { entry.read().after.map(|block| take(block.cast())) };
        op.withdraw(entry);
        Err(after)
    }

    /// For a cell that was [born under](OpCell::new_enlisted) `op` and has been inserted: the
    /// result finishes it.
    pub fn adopt<'a>(&'a self, op: &'a Operation) -> Enlisted<'a, T> {
        Enlisted { cell: self, op }
    }

    /// Cleans the cell, if a decided operation left its entry there: then the outcome is the cell's
    /// value.
    ///
    /// Returns the value that left the cell with the entry. Idempotent. Nothing happens while the
    /// operation is undecided.
    pub fn finish(&self) -> Option<Counted<T>> {
        self.finish_if(|_| true, drop)
    }

    /// Cleans the cell if its op is `wanted`. The op's reference is passed to `back`.
    fn finish_if(
        &self,
        wanted: impl FnOnce(Shared<'_, Op>) -> bool,
        back: impl FnOnce(Counted<Op>),
    ) -> Option<Counted<T>> {
        // The guard keeps the op's memory, and so the entry's address, from being reused between
        // the load and the compare-and-swap.
        let guard = reclaim::pin();
        let Word::<T>::Entry(entry) = Word::decode(self.word.load(Ordering::SeqCst)) else { return None };
        // SAFETY: just found in the word, under the guard.
        let (op, before, after) = unsafe { peek::<T>(entry, &guard) };
        if !wanted(op) {
            return None;
        }
        let outcome = match op.state() {
            OpState::Undecided => return None,
            OpState::Committed => after,
            OpState::Aborted => before,
        };
        let outcome = Word::value(outcome.map(Shared::as_raw));
        if !self.change(&Word::Entry(entry), &outcome) {
            return None;
        }
        // SAFETY: the compare-and-swap took the entry out of its word.
        let (op, before, after) = unsafe { dismantle(entry) };
        let (stays, leaves) = if op.state() == OpState::Committed { (after, before) } else { (before, after) };
        back(op);
        // The word holds it: the entry's reference has become the cell's.
        stays.map(give);
        leaves
    }

    /// Whether the cell shows a value. A remover's scan asks this of each cell, after
    /// [`Life::begin_removal`].
    ///
    /// A remover may say "not empty" only of what other threads can see too. So it publishes a
    /// pending value. If a value is to be born under another thread's undecided operation, it
    /// commits that operation. (The operation inserts such a cell last, and has nothing left to do
    /// that can fail.) If the result is true, the remover aborts its removal.
    ///
    /// [`Life::begin_removal`]: super::Life::begin_removal
    #[must_use = "true obliges the remover to abort"]
    pub fn occupied(&self, guard: &Guard) -> bool {
        loop {
            match self.peek(guard) {
                Peek::Empty => return false,
                Peek::Value(_) => return true,
                Peek::Pending(_) if self.publish(guard) => return true,
                // Published or retracted by its creator meanwhile.
                Peek::Pending(_) => {}
                Peek::Op { op, before, after } => match op.state() {
                    OpState::Committed => return after.is_some(),
                    OpState::Aborted => return before.is_some(),
                    OpState::Undecided if before.is_some() || after.is_none() => return before.is_some(),
                    OpState::Undecided if op.commit() => return true,
                    // Aborted meanwhile, for ever: the next round returns.
                    OpState::Undecided => {}
                },
            }
        }
    }
}

impl<T: Object> Drop for OpCell<T> {
    fn drop(&mut self) {
        // Relaxed, and no read-modify-write: no other thread has access to the cell.
        let last = Word::decode(self.word.load(Ordering::Relaxed));
        // SAFETY: the cell is dropped.
        drop(unsafe { Self::emptied(last) });
    }
}

impl<T: Object> Default for OpCell<T> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<T: Object + std::fmt::Debug> std::fmt::Debug for OpCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.load(&reclaim::pin()).map(Shared::to_ref).fmt(f)
    }
}

/// A cell under an operation. Dropping it aborts the operation if that is still undecided, and
/// finishes the cell. So a panic leaves no word that points to an operation.
#[must_use = "dropping it aborts the operation"]
pub struct Enlisted<'a, T: Object> {
    cell: &'a OpCell<T>,
    op: &'a Operation,
}

impl<T: Object> Enlisted<'_, T> {
    /// Aborts the operation if it is still undecided, and cleans the cell. Returns the value that
    /// left it.
    pub fn finish(self) -> Option<Counted<T>> {
        let left = self.finish_cell();
        std::mem::forget(self);
        left
    }

    fn finish_cell(&self) -> Option<Counted<T>> {
        if self.op.state() == OpState::Undecided {
            self.op.abort();
        }
        // This operation's reference keeps the op's address from being reused, so an equal address
        // means this operation.
        self.cell.finish_if(|op| op.ptr_eq(self.op.as_shared()), |op| self.op.take_back(op))
    }
}

impl<T: Object> Drop for Enlisted<'_, T> {
    fn drop(&mut self) {
        drop(self.finish_cell());
    }
}

/// A pending value of its creator. Dropping it retracts the value, unless another thread has
/// published it. So a panic leaves nothing pending.
#[must_use = "dropping it retracts the value"]
pub struct Creation<'a, T: Object> {
    cell: &'a OpCell<T>,
}

impl<T: Object> Creation<'_, T> {
    /// Publishes the value, unless a remover has already done so. Either way the creation has
    /// succeeded.
    pub fn publish(self, guard: &Guard) {
        self.cell.publish(guard);
        std::mem::forget(self);
    }

    /// Retracts and returns the value. Returns `None` if it has been published: then the creation
    /// has succeeded.
    #[must_use = "None means that the creation has succeeded"]
    pub fn retract(self) -> Option<Counted<T>> {
        let back = self.cell.retract();
        std::mem::forget(self);
        back
    }
}

impl<T: Object> Drop for Creation<'_, T> {
    fn drop(&mut self) {
        drop(self.cell.retract());
    }
}
