//! The life of a directory, or of any object that can be removed while other threads add to it.

use std::{marker::PhantomData, ptr::NonNull};

use super::{Op, OpState, Operation};
use crate::{
    facade::{AtomicPtr, Ordering, fence_after_exchange},
    reclaim::{self, Guard},
    refcount::counted::{Block, Counted, Shared},
};

/// Alive, and no removal is in progress.
const ALIVE: usize = 0;
/// Removed, for ever. No block has this address, since blocks are aligned to eight bytes.
const REMOVED: usize = 1;

fn constant(word: usize) -> *mut Block<Op> {
    std::ptr::without_provenance_mut(word)
}

/// The op that a word points to, if the word is not one of the constants.
fn op_in(word: *mut Block<Op>) -> Option<NonNull<Block<Op>>> {
    if word.addr() == REMOVED { None } else { NonNull::new(word) }
}

/// The state of a [`Life`].
#[derive(Clone, Copy)]
pub enum LifeState<'g> {
    /// Alive; also if a removal was aborted.
    Alive,
    /// An operation that removes the object is undecided.
    Removing(Shared<'g, Op>),
    /// Removed, from the commit of the operation that removes it.
    Removed,
}

/// Why a removal could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRemovable {
    /// Another operation that removes the object is undecided.
    Busy,
    /// It has been removed.
    Removed,
}

impl std::fmt::Display for NotRemovable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Busy => "another removal is in progress",
            Self::Removed => "already removed",
        })
    }
}

impl std::error::Error for NotRemovable {}

/// The life of a directory (or of any object that can be removed): alive, being removed by an
/// [`Op`], or removed. One word.
pub struct Life {
    /// `ALIVE`, `REMOVED`, or an op, to which the word owns a reference.
    word: AtomicPtr<Block<Op>>,
    _owns: PhantomData<Counted<Op>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Life>() == size_of::<usize>(), "a life is one word");

impl Life {
    /// Alive.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(constant(ALIVE)), _owns: PhantomData }
    }

    /// The current state. Writes nothing and does not wait.
    #[inline]
    #[must_use]
    pub fn state<'g>(&self, guard: &'g Guard) -> LifeState<'g> {
        Self::decode(self.word.load(Ordering::SeqCst), guard)
    }

    /// Decodes a word that was loaded under the guard.
    fn decode<'g>(word: *mut Block<Op>, _guard: &'g Guard) -> LifeState<'g> {
        let Some(op) = op_in(word) else {
            return if word.addr() == REMOVED { LifeState::Removed } else { LifeState::Alive };
        };
        // SAFETY: the word owned a reference when it was read under the guard, and it is put only
        // after the word has changed.
        let op = unsafe { Shared::from_raw(op) };
        match op.state() {
            OpState::Undecided => LifeState::Removing(op),
            OpState::Committed => LifeState::Removed,
            OpState::Aborted => LifeState::Alive,
        }
    }

    /// Begins a removal: from now on a creator aborts `op` before it publishes, until `op` is
    /// decided.
    ///
    /// Then the caller scans ([`OpCell::occupied`](super::OpCell::occupied)), aborts if it found
    /// anything, and otherwise commits. If the commit fails, a creator was here whose entry may not
    /// be visible yet. Then the caller begins again, with a new op. Includes the fence between this
    /// word and the scan.
    ///
    /// # Errors
    /// [`NotRemovable`], if it is removed or being removed.
    pub fn begin_removal<'a>(&'a self, op: &'a Operation) -> Result<Removal<'a>, NotRemovable> {
        let guard = reclaim::pin();
        let mine = op.lend();
        let mut word = self.word.load(Ordering::SeqCst);
        let refused = loop {
            match Self::decode(word, &guard) {
                LifeState::Alive => {}
                LifeState::Removing(_) => break NotRemovable::Busy,
                LifeState::Removed => break NotRemovable::Removed,
            }
            match self.word.compare_exchange(word, mine.as_ptr(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) => {
                    // An aborted op that its remover has not cleaned yet.
                    drop(Self::owned(old));
                    fence_after_exchange();
                    return Ok(Removal { life: self, op });
                }
                Err(now) => word = now,
            }
        };
        // SAFETY: lent above, and no word has it.
        op.take_back(unsafe { Counted::from_raw(mine) });
        Err(refused)
    }

    /// The reference of a word, which the caller has taken out.
    fn owned(word: *mut Block<Op>) -> Option<Counted<Op>> {
        // SAFETY: the word owned a reference, and the caller's compare-and-swap moved it to the
        // caller.
        op_in(word).map(|op| unsafe { Counted::from_raw(op) })
    }

    /// Called by a creator when its entry is in place, pending or under its own operation. Returns
    /// whether the entry may become visible.
    ///
    /// True: the directory is alive, and a removal that was in progress is aborted. A removal that
    /// begins later finds the entry. False: the directory has been removed, and the entry must be
    /// retracted. Includes the fence between the entry, which a read-modify-write has put in place,
    /// and this word.
    #[must_use = "false: the entry must be taken back"]
    pub fn keep_alive(&self, guard: &Guard) -> bool {
        fence_after_exchange();
        match self.state(guard) {
            LifeState::Alive => true,
            LifeState::Removing(op) => op.abort(),
            LifeState::Removed => false,
        }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state(&reclaim::pin()) {
            LifeState::Alive => "Alive",
            LifeState::Removing(_) => "Removing",
            LifeState::Removed => "Removed",
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Relaxed, and no read-modify-write: no other thread has access to the word, which is
        // dropped.
        drop(Self::owned(self.word.load(Ordering::Relaxed)));
    }
}

/// A removal in progress. Dropping it aborts the operation if that is still undecided, and settles
/// the word. So a panic leaves the object alive, and no operation in its word.
#[must_use = "dropping it aborts the removal"]
pub struct Removal<'a> {
    life: &'a Life,
    op: &'a Operation,
}

impl Removal<'_> {
    /// Aborts the operation if it is still undecided, and settles the word. Returns whether the
    /// object is removed.
    pub fn finish(self) -> bool {
        let removed = self.settle();
        std::mem::forget(self);
        removed
    }

    fn settle(&self) -> bool {
        let aborted = self.op.abort();
        let mine = self.op.as_shared().as_raw().as_ptr();
        let settled = constant(if aborted { ALIVE } else { REMOVED });
        // It fails if the next removal has replaced an aborted one. Then that removal has put the
        // word's reference. This operation's own reference keeps the op's address from being
        // reused.
        if let Ok(word) = self.life.word.compare_exchange(mine, settled, Ordering::SeqCst, Ordering::SeqCst) {
            Life::owned(word).into_iter().for_each(|reference| self.op.take_back(reference));
        }
        !aborted
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}
