//! The free blocks that a thread keeps.

use std::{
    cell::Cell,
    ptr::{NonNull, null_mut},
};

use super::{
    CLASSES, SPARE_MAGAZINES,
    depot::{from_depot, to_depot},
    magazine_blocks, spare_magazines,
};
use crate::tuning::LEAN_BLOCKS;

/// The contents of a free block.
pub(super) struct Free {
    next: *mut Free,
}

/// Free blocks of one class. The block freed last is on top, since its cache line is most likely in
/// this core's cache.
pub(super) struct Stack {
    top: *mut Free,
    pub len: u32,
}

impl Stack {
    pub const EMPTY: Self = Self { top: null_mut(), len: 0 };

    #[inline]
    pub fn pop(&mut self) -> Option<NonNull<Free>> {
        let top = NonNull::new(self.top)?;
        // SAFETY: on the stack, so free, and written by `push`.
        self.top = unsafe { top.read() }.next;
        self.len -= 1;
        Some(top)
    }

    /// # Safety
    /// `block` is a block of the stack's class, which the caller owns.
    #[inline]
    pub unsafe fn push(&mut self, block: NonNull<Free>) {
        // SAFETY: the block is not in use, and is large enough and aligned for a pointer.
        unsafe { block.write(Free { next: self.top }) };
        self.top = block.as_ptr();
        self.len += 1;
    }

    /// Blocks from the depot; none only if the system has no memory.
    #[cold]
    fn refilled(class: usize) -> Self {
        from_depot(class, |depot| depot.take_many(class)).unwrap_or(Self::EMPTY)
    }

    #[cfg(all(test, not(loom)))]
    pub fn top(&self) -> *mut Free {
        self.top
    }

    /// Gives all blocks to the depot. Returns whether magazines prevent chunks from being returned
    /// to the system.
    #[cold]
    pub fn flush(self, class: usize) -> bool {
        if self.len == 0 {
            return false;
        }
        // SAFETY: the owner of a stack owns its blocks.
        unsafe { to_depot(class, self) }
    }
}

/// A thread's free blocks of one class: the magazine in use, and full ones.
pub(super) struct Magazines {
    loaded: Cell<Stack>,
    spares: [Cell<Stack>; SPARE_MAGAZINES],
    full: Cell<usize>,
    /// The depot needs the free blocks.
    lean: Cell<bool>,
}

impl Magazines {
    const fn new() -> Self {
        Self {
            loaded: Cell::new(Stack::EMPTY),
            spares: [const { Cell::new(Stack::EMPTY) }; SPARE_MAGAZINES],
            full: Cell::new(0),
            lean: Cell::new(false),
        }
    }

    #[inline]
    pub fn pop(&self, class: usize) -> Option<NonNull<Free>> {
        let mut loaded = self.loaded.replace(Stack::EMPTY);
        let block = loaded.pop().or_else(|| {
            loaded = self.spare().unwrap_or_else(|| Stack::refilled(class));
            loaded.pop()
        });
        self.loaded.set(loaded);
        block
    }

    /// The full magazine that was added last.
    fn spare(&self) -> Option<Stack> {
        let full = self.full.get().checked_sub(1)?;
        self.full.set(full);
        Some(self.spares[full].replace(Stack::EMPTY))
    }

    fn flush_spares(&self, class: usize) {
        while let Some(spare) = self.spare() {
            spare.flush(class);
        }
    }

    /// Stores a full magazine, when there is no room in the one in use.
    #[cold]
    fn keep(&self, class: usize, magazine: Stack) {
        let full = self.full.get();
        if full < spare_magazines(class) && !self.lean.get() {
            self.spares[full].set(magazine);
            self.full.set(full + 1);
            return;
        }
        self.lean.set(magazine.flush(class));
        if self.lean.get() {
            self.flush_spares(class);
        }
    }

    /// # Safety
    /// `block` is a block of this class, which the caller owns.
    #[inline]
    pub unsafe fn push(&self, class: usize, block: NonNull<Free>) {
        let mut loaded = self.loaded.replace(Stack::EMPTY);
        if loaded.len >= if self.lean.get() { LEAN_BLOCKS } else { magazine_blocks(class) } {
            self.keep(class, loaded);
            loaded = Stack::EMPTY;
        }
        // SAFETY: the caller's contract.
        unsafe { loaded.push(block) };
        self.loaded.set(loaded);
    }
}

/// A thread's free blocks.
pub(super) struct Cache {
    pub classes: [Magazines; CLASSES],
}

impl Drop for Cache {
    fn drop(&mut self) {
        for (class, magazines) in self.classes.iter().enumerate() {
            magazines.loaded.replace(Stack::EMPTY).flush(class);
            magazines.flush_spares(class);
        }
    }
}

std::thread_local!(pub(super) static CACHE: Cache = const { Cache { classes: [const { Magazines::new() }; CLASSES] } });
