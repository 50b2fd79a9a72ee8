//! The free blocks that a thread keeps for itself.

use std::{
    cell::Cell,
    ptr::{NonNull, null_mut},
};

use super::{
    CLASSES, SPARE_MAGAZINES,
    depot::{from_depot, to_depot},
    rounds, spares,
};
use crate::tuning::LEAN_BLOCKS;

/// What a free block holds.
pub(super) struct Free {
    next: *mut Free,
}

/// Free blocks of one class, the last one freed on top: its line is the likeliest to be in this core's cache.
pub(super) struct Stack {
    top: *mut Free,
    pub len: u32,
}

impl Stack {
    pub const EMPTY: Self = Self { top: null_mut(), len: 0 };

    #[inline]
    pub fn pop(&mut self) -> Option<NonNull<Free>> {
        let top = NonNull::new(self.top)?;
        // SAFETY: on a stack, so free, and written by `push`.
        self.top = unsafe { top.read() }.next;
        self.len -= 1;
        Some(top)
    }

    /// # Safety
    /// `block` is a block of the stack's class, and the caller's to give.
    #[inline]
    pub unsafe fn push(&mut self, block: NonNull<Free>) {
        // SAFETY: nobody uses the block, and it is large enough and aligned for a pointer.
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

    /// Gives all of it to the depot; answers whether magazines would keep chunks from the system.
    #[cold]
    pub fn flush(self, class: usize) -> bool {
        if self.len == 0 {
            return false;
        }
        // SAFETY: a stack's blocks are its owner's to give.
        unsafe { to_depot(class, self) }
    }
}

/// A thread's free blocks of one class: the magazine in use, and full ones.
pub(super) struct Magazines {
    loaded: Cell<Stack>,
    spares: [Cell<Stack>; SPARE_MAGAZINES],
    full: Cell<usize>,
    /// The depot would rather have what is free.
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

    /// The full magazine that came last.
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

    /// A full magazine, for when there is no room in the one in use.
    #[cold]
    fn keep(&self, class: usize, magazine: Stack) {
        let full = self.full.get();
        if full < spares(class) && !self.lean.get() {
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
    /// `block` is a block of this class, and the caller's to give.
    #[inline]
    pub unsafe fn push(&self, class: usize, block: NonNull<Free>) {
        let mut loaded = self.loaded.replace(Stack::EMPTY);
        if loaded.len >= if self.lean.get() { LEAN_BLOCKS } else { rounds(class) } {
            self.keep(class, loaded);
            loaded = Stack::EMPTY;
        }
        // SAFETY: the caller's.
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
