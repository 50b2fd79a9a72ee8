//! Tests of the depot, and of what threads keep.

use std::alloc::Layout;

use super::*;
use crate::allocator::{
    BlockBytes, FREE_CHUNKS, FREE_PAGE_CHUNKS, LARGE_MAGAZINE_BLOCKS, LARGE_SPARE_MAGAZINES, LARGEST, LARGEST_CLASS,
    MAGAZINE_BLOCKS, class_of, tests::next,
};
use crate::tuning::LEAN_BLOCKS;

impl Depot {
    /// With so many chunks.
    fn stocked(chunks: usize) -> Self {
        let mut depot = Self::EMPTY;
        // SAFETY: just cut.
        (0..chunks).for_each(|_| unsafe { depot.add(Chunk::cut().expect("memory")) });
        depot
    }

    /// A stack of so many blocks.
    fn stack(&mut self, class: usize, blocks: u32) -> Stack {
        let mut stack = Stack::EMPTY;
        // SAFETY: just taken.
        (0..blocks).for_each(|_| unsafe { stack.push(self.take(class).expect("a block")) });
        stack
    }

    /// Returns the chunks of the list to the system. Blocks outside their chunks are ignored.
    fn forget(mut self) {
        while !self.partial.is_null() {
            let chunk = self.partial;
            // SAFETY: in the list, and no block of it is in use any more.
            unsafe {
                self.unlink(chunk);
                Chunk::unmap(chunk);
            }
        }
    }

    /// How many blocks threads have, in use or in their magazines.
    fn with_threads(&self) -> usize {
        self.out - self.magazines[..self.full].iter().map(|magazine| magazine.len as usize).sum::<usize>()
    }
}

/// A full magazine is passed on unchanged, unless it is rather empty, or most blocks of many
/// chunks are free. Seen to fail: magazines that are never kept, or never passed on; kept
/// although rather empty; emptied however few the chunks are, or however many blocks are in
/// use; and counted as full ones.
#[test]
fn full_magazine_is_passed_on() {
    let class = 3;
    // SAFETY: all blocks that are put were taken from this depot, and are put once.
    let give = |depot: &mut Depot, stack| unsafe { depot.put_many(class, stack) };
    let mut few = Depot::stocked(2 * FREE_CHUNKS);
    let stack = few.stack(class, MAGAZINE_BLOCKS);
    let block = stack.top();
    assert_eq!((give(&mut few, stack), few.full), ((null_mut(), false), 1), "kept");
    let stack = few.take_many(class).expect("the one that was given");
    assert_eq!((stack.top(), stack.len, few.full), (block, MAGAZINE_BLOCKS, 0), "passed on");
    give(&mut few, stack);
    let stack = few.stack(class, MAGAZINE_BLOCKS / 2);
    assert_eq!(
        (give(&mut few, stack), few.full, few.out),
        ((null_mut(), false), 1, MAGAZINE_BLOCKS as usize),
        "emptied into its chunks"
    );
    few.forget();

    let mut many = Depot::stocked(2 * FREE_CHUNKS + 1);
    let used = many.stack(class, (Chunk::blocks(class) * 2) as u32);
    let stack = many.stack(class, MAGAZINE_BLOCKS / 2 + 1);
    assert_eq!((give(&mut many, stack), many.full), ((null_mut(), false), 1), "many blocks are in use");
    let (mut empty, retained) = give(&mut many, used);
    assert_eq!((retained, many.full, many.out, many.chunks), (true, 0, 0, FREE_CHUNKS), "no block is in use");
    for _ in FREE_CHUNKS..2 * FREE_CHUNKS + 1 {
        // SAFETY: the depot has released it, and has linked so many.
        unsafe {
            let chunk = empty;
            empty = (*chunk).next;
            Chunk::unmap(chunk);
        }
    }
    assert!(empty.is_null());
    many.forget();
}

std::thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });

/// Allocates and frees a block when the thread ends.
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        drop(many_bytes(1));
    }
}

/// Blocks of a class that no other test uses.
fn many_bytes(count: usize) -> Vec<BlockBytes> {
    (0..count).map(|_| BlockBytes::patched(LARGEST, &[], 0, &[]).expect("memory")).collect()
}

/// A thread keeps some magazines, and only a few blocks when these may prevent chunks from
/// being returned to the system. When it has ended, it keeps nothing. Seen to fail: a thread
/// that keeps nothing, or one magazine less, or without limit, or that does not reuse what it
/// keeps; that keeps as many large blocks as small ones; that ignores the depot's need, or its
/// end; that does not give up the magazine in use, or the others, when it ends, or what is
/// freed after that; bytes that are not freed; as few idle chunks of pages as of small blocks.
#[test]
fn thread_keeps_some_blocks_until_it_ends() {
    let class = class_of(Layout::new::<[u8; LARGEST]>()).expect("a class");
    let depot = move || locked(&DEPOTS[class].0);
    let kept = move || depot().with_threads();
    let (spares, rounds) = (LARGE_SPARE_MAGAZINES * LARGE_MAGAZINE_BLOCKS as usize, LARGE_MAGAZINE_BLOCKS as usize);
    let keeps = move || {
        // Initialized first, so that it is dropped after this thread's cache.
        LATE.with_borrow_mut(|late| *late = Some(Late));
        drop(many_bytes(100));
        let before = kept();
        assert!((spares + 1..=spares + rounds).contains(&before), "{before} blocks are kept");
        let again = many_bytes(spares + 1);
        assert_eq!(kept(), before, "the blocks that were kept are reused");
        drop(again);
        // A few blocks of each of many chunks stay in use, and nearly all others are freed.
        let all = many_bytes((2 * FREE_PAGE_CHUNKS + 8) * Chunk::blocks(class));
        let (stays, freed): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(n, _)| n % 64 == 0);
        drop(freed);
        let lean = kept() - stays.len();
        assert!(lean <= LEAN_BLOCKS as usize, "{lean} blocks are kept");
        drop(stays);
        let chunks = depot().chunks;
        assert!((FREE_PAGE_CHUNKS..=2 * FREE_PAGE_CHUNKS).contains(&chunks), "{chunks} chunks");
        drop(many_bytes(100));
        assert!(kept() > spares, "as before");
    };
    std::thread::spawn(keeps).join().expect("no panic");
    assert_eq!(kept(), 0, "the thread has ended");
}

/// Whole magazines are taken and put. They are emptied into their chunks when the other blocks
/// are free.
#[test]
fn magazines_do_not_prevent_chunks_from_being_unmapped() {
    let (class, mut seed) = (3, 5);
    let mut depot = Depot::stocked(20);
    let mut out: Vec<Stack> = std::iter::from_fn(|| depot.take_many(class)).collect();
    // Blocks that do not make a full magazine are put back.
    while let Some(last) = out.pop_if(|last| last.len < MAGAZINE_BLOCKS) {
        // SAFETY: just taken.
        assert!(unsafe { depot.put_many(class, last) }.0.is_null());
    }
    assert!(out.iter().all(|stack| stack.len == MAGAZINE_BLOCKS));
    assert_eq!(depot.chunks, 20);
    let mut unmapped = 0;
    // Shuffled, so that each magazine has blocks of many chunks.
    let mut free: Vec<_> = out.iter_mut().flat_map(|stack| std::iter::from_fn(|| stack.pop())).collect();
    while !free.is_empty() {
        let mut stack = Stack::EMPTY;
        for _ in 0..MAGAZINE_BLOCKS.min(free.len() as u32) {
            let block = free.swap_remove(next(&mut seed) % free.len());
            // SAFETY: taken from this depot, and put once.
            unsafe { stack.push(block) };
        }
        // SAFETY: as above.
        let (mut empty, _) = unsafe { depot.put_many(class, stack) };
        while !empty.is_null() {
            // SAFETY: the depot has released it.
            unsafe {
                let chunk = empty;
                empty = (*chunk).next;
                Chunk::unmap(chunk);
            }
            unmapped += 1;
        }
    }
    assert!(depot.chunks <= 2 * FREE_CHUNKS, "{} chunks are kept", depot.chunks);
    assert_eq!(unmapped + depot.chunks, 20, "none is lost");
    depot.forget();
}

/// Seen to fail: as many idle chunks of large blocks as of pages.
#[test]
fn free_chunks_are_returned_to_the_system() {
    for class in [5, LARGEST_CLASS - 1] {
        let mut seed = 3;
        let mut depot = Depot::stocked(5);
        let mut out: Vec<_> = (0..5 * Chunk::blocks(class)).map(|_| depot.take(class).expect("a block")).collect();
        assert!(depot.partial.is_null(), "five chunks are full");
        // SAFETY: taken from this depot, and put once.
        assert!(out.pop().is_some_and(|last| unsafe { depot.put(class, last) }.is_none()));
        out.push(depot.take(class).expect("the one that was given"));
        let mut unmapped = 0;
        while !out.is_empty() {
            let block = out.swap_remove(next(&mut seed) % out.len());
            // SAFETY: taken from this depot, and put once.
            if let Some(chunk) = unsafe { depot.put(class, block) } {
                unmapped += 1;
                // SAFETY: the depot has released it, and all its blocks are free.
                unsafe { Chunk::unmap(chunk) };
            }
        }
        assert_eq!(unmapped, 5 - FREE_CHUNKS);
        for _ in 0..FREE_CHUNKS {
            let chunk = depot.partial;
            // SAFETY: in the list, and no block is outside.
            unsafe {
                assert_eq!((*chunk).used, 0);
                depot.unlink(chunk);
                Chunk::unmap(chunk);
            }
        }
        assert!(depot.partial.is_null());
    }
}
