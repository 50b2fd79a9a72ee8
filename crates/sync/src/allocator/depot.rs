//! The free blocks that threads share: full magazines, and the chunks from which blocks are cut.

use crate::tuning::{CHUNK_BYTES, DEPOT_MAGAZINES};
use std::{
    ptr::{NonNull, null_mut},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    CACHE_LINE, CLASSES, bytes_of, idle_chunks, magazine_blocks,
    magazines::{Free, Stack},
    system,
};
use crate::base::padded::Padded;

/// The address of the first chunk, on a cache line to which no thread writes afterwards.
static FIRST_CHUNK: Padded<AtomicUsize> = Padded(AtomicUsize::new(0));

/// An address near which blocks are: the same for every thread that has allocated a block.
#[inline]
pub(crate) fn first_chunk() -> usize {
    FIRST_CHUNK.0.load(Ordering::Relaxed)
}

/// The header of a chunk. Its blocks follow. Guarded by the depot's lock.
#[repr(C, align(64))]
struct Chunk {
    free: Stack,
    /// The number of the first block that was never used. It and all blocks behind it are not on
    /// the stack.
    fresh: usize,
    /// How many blocks are outside the chunk.
    used: usize,
    /// Neighbours in the depot's list of chunks that have free blocks.
    next: *mut Chunk,
    prev: *mut Chunk,
}

const _: () = assert!(size_of::<Chunk>() == CACHE_LINE);

impl Chunk {
    /// How many blocks of a class a chunk has.
    const fn blocks(class: usize) -> usize {
        (CHUNK_BYTES - CACHE_LINE) / bytes_of(class)
    }

    /// A chunk with no blocks in use; `None` if the system has no memory.
    fn cut() -> Option<NonNull<Self>> {
        let chunk = system::map()?.cast::<Self>();
        if first_chunk() == 0 {
            // Relaxed: a number. If another thread was first, its value remains.
            let _ = FIRST_CHUNK.0.compare_exchange(0, chunk.addr().get(), Ordering::Relaxed, Ordering::Relaxed);
        }
        // SAFETY: unshared memory, large enough and aligned.
        unsafe { chunk.write(Self { free: Stack::EMPTY, fresh: 0, used: 0, next: null_mut(), prev: null_mut() }) };
        Some(chunk)
    }

    /// Returns it to the system.
    ///
    /// # Safety
    /// The depot has released it to the caller.
    unsafe fn unmap(chunk: *mut Self) {
        // SAFETY: not null. `cut` mapped it, and all its blocks are free.
        unsafe { system::unmap(NonNull::new_unchecked(chunk).cast()) };
    }

    /// The chunk from which a block was cut.
    fn of(block: NonNull<Free>) -> *mut Self {
        block.as_ptr().map_addr(|addr| addr & !(CHUNK_BYTES - 1)).cast()
    }
}

/// The shared state of one class: a list of its chunks that have free blocks, and full magazines.
pub(super) struct Depot {
    partial: *mut Chunk,
    /// How many chunks of the list are completely free.
    idle: usize,
    /// How many chunks the class has.
    chunks: usize,
    /// How many blocks are outside their chunks.
    out: usize,
    /// The first `full` of these are full magazines, or nearly full ones. The others are empty.
    magazines: [Stack; DEPOT_MAGAZINES],
    full: usize,
}

impl Depot {
    const EMPTY: Self = Self {
        partial: null_mut(),
        idle: 0,
        chunks: 0,
        out: 0,
        magazines: [const { Stack::EMPTY }; DEPOT_MAGAZINES],
        full: 0,
    };
}

// SAFETY: the chunks belong to the depot, which is used under its lock.
unsafe impl Send for Depot {}

static DEPOTS: [Padded<Mutex<Depot>>; CLASSES] = [const { Padded(Mutex::new(Depot::EMPTY)) }; CLASSES];

/// Returns what `take` finds in the depot, after another chunk was added if necessary. `None` if
/// the system has no memory.
pub(super) fn from_depot<T>(class: usize, take: impl Fn(&mut Depot) -> Option<T>) -> Option<T> {
    let depot = &DEPOTS[class].0;
    if let Some(taken) = take(&mut locked(depot)) {
        return Some(taken);
    }
    // The lock is not held during the system call.
    let chunk = Chunk::cut()?;
    let mut depot = locked(depot);
    // SAFETY: just cut.
    unsafe { depot.add(chunk) };
    take(&mut depot)
}

/// Gives blocks to the depot, and returns chunks that it does not keep to the system. Returns
/// whether magazines prevent chunks from being returned to the system.
///
/// # Safety
/// The blocks are of this class, and the caller owns them.
pub(super) unsafe fn to_depot(class: usize, stack: Stack) -> bool {
    // SAFETY: the caller's contract.
    let (mut empty, retained) = unsafe { locked(&DEPOTS[class].0).put_many(class, stack) };
    while !empty.is_null() {
        // SAFETY: the depot has released it: all its blocks are free, and no other thread can reach
        // it.
        let next = unsafe { (*empty).next };
        // SAFETY: as above.
        unsafe { Chunk::unmap(empty) };
        empty = next;
    }
    retained
}

fn locked(depot: &Mutex<Depot>) -> std::sync::MutexGuard<'_, Depot> {
    // A panic inside is a failed assertion. The lists are as they were before.
    depot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Depot {
    /// A magazine of blocks, or as many as there are; `None` if there are none.
    pub fn take_many(&mut self, class: usize) -> Option<Stack> {
        if let Some(full) = self.full.checked_sub(1) {
            self.full = full;
            return Some(std::mem::replace(&mut self.magazines[full], Stack::EMPTY));
        }
        let mut stack = Stack::EMPTY;
        while stack.len < magazine_blocks(class) {
            let Some(block) = self.take(class) else { break };
            // SAFETY: the depot has given it to this thread.
            unsafe { stack.push(block) };
        }
        (stack.len > 0).then_some(stack)
    }

    /// Takes blocks back. Returns chunks, linked by `next`, that the caller returns to the system,
    /// and whether magazines prevent more chunks from being returned.
    ///
    /// # Safety
    /// The blocks came from this depot with this class, and the caller owns them.
    unsafe fn put_many(&mut self, class: usize, stack: Stack) -> (*mut Chunk, bool) {
        let mut empty = null_mut();
        if self.full < DEPOT_MAGAZINES && stack.len * 2 > magazine_blocks(class) {
            self.magazines[self.full] = stack;
            self.full += 1;
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.return_to_chunks(class, stack, &mut empty) };
        }
        let kept: usize = self.magazines[..self.full].iter().map(|magazine| magazine.len as usize).sum();
        // Most blocks are free, and there are many chunks: the magazines may be what keeps the
        // chunks in use.
        let retained =
            self.chunks > 2 * idle_chunks(class) && (self.out - kept) * 8 < self.chunks * Chunk::blocks(class);
        if retained {
            while let Some(full) = self.full.checked_sub(1) {
                self.full = full;
                let magazine = std::mem::replace(&mut self.magazines[full], Stack::EMPTY);
                // SAFETY: its blocks were given to the depot.
                unsafe { self.return_to_chunks(class, magazine, &mut empty) };
            }
        }
        (empty, retained)
    }

    /// Puts each block into its chunk. Chunks that are to be returned to the system are put onto
    /// `empty`.
    ///
    /// # Safety
    /// As for [`Depot::put_many`].
    unsafe fn return_to_chunks(&mut self, class: usize, mut stack: Stack, empty: &mut *mut Chunk) {
        while let Some(block) = stack.pop() {
            // SAFETY: the caller's contract.
            if let Some(chunk) = unsafe { self.put(class, block) } {
                // SAFETY: the depot has released it to this thread.
                unsafe { (*chunk).next = *empty };
                *empty = chunk;
            }
        }
    }

    /// Adds a chunk.
    ///
    /// # Safety
    /// It was just cut, and the caller owns it.
    unsafe fn add(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the caller's contract, so it is in no list.
        unsafe { self.link(chunk.as_ptr()) };
        self.idle += 1;
        self.chunks += 1;
    }

    /// Takes a block; `None` if no chunk has any.
    pub fn take(&mut self, class: usize) -> Option<NonNull<Free>> {
        if self.partial.is_null() {
            return None;
        }
        let chunk = self.partial;
        // SAFETY: in the list, so allocated, and only used under the lock that `self` stands for.
        unsafe {
            if (*chunk).used == 0 {
                self.idle -= 1;
            }
            (*chunk).used += 1;
            self.out += 1;
            let block = (*chunk).free.pop().unwrap_or_else(|| {
                let place = CACHE_LINE + (*chunk).fresh * bytes_of(class);
                (*chunk).fresh += 1;
                assert!(place + bytes_of(class) <= CHUNK_BYTES, "a chunk in the list has a free block");
                NonNull::new_unchecked(chunk.byte_add(place).cast())
            });
            if (*chunk).used == Chunk::blocks(class) {
                self.unlink(chunk);
            }
            Some(block)
        }
    }

    /// Takes a block back. Returns its chunk if it is completely free and enough others are too.
    /// Then the caller returns it to the system.
    ///
    /// # Safety
    /// `block` came from `take` with this class, and the caller owns it.
    unsafe fn put(&mut self, class: usize, block: NonNull<Free>) -> Option<*mut Chunk> {
        let chunk = Chunk::of(block);
        // SAFETY: the block is outside its chunk, so the chunk is allocated, and it is only used
        // under the lock that `self` stands for.
        unsafe {
            if (*chunk).used == Chunk::blocks(class) {
                self.link(chunk);
            }
            (*chunk).free.push(block);
            (*chunk).used -= 1;
            self.out -= 1;
            if (*chunk).used > 0 {
                return None;
            }
            if self.idle < idle_chunks(class) {
                self.idle += 1;
                return None;
            }
            self.unlink(chunk);
            self.chunks -= 1;
        }
        Some(chunk)
    }

    /// # Safety
    /// `chunk` belongs to the depot, and is in no list.
    unsafe fn link(&mut self, chunk: *mut Chunk) {
        // SAFETY: the caller's contract. The first chunk of the list belongs to the depot too.
        unsafe {
            (*chunk).prev = null_mut();
            (*chunk).next = self.partial;
            if let Some(first) = self.partial.as_mut() {
                first.prev = chunk;
            }
        }
        self.partial = chunk;
    }

    /// # Safety
    /// `chunk` is in the list.
    unsafe fn unlink(&mut self, chunk: *mut Chunk) {
        // SAFETY: the caller's contract. Its neighbours are in the list, so they belong to the
        // depot.
        unsafe {
            match (*chunk).prev.as_mut() {
                Some(prev) => prev.next = (*chunk).next,
                None => self.partial = (*chunk).next,
            }
            if let Some(next) = (*chunk).next.as_mut() {
                next.prev = (*chunk).prev;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::alloc::Layout;

    use super::*;
    use crate::allocator::{
        BlockBytes, FREE_CHUNKS, FREE_PAGE_CHUNKS, LARGE_MAGAZINE_BLOCKS, LARGE_SPARE_MAGAZINES, LARGEST,
        LARGEST_CLASS, MAGAZINE_BLOCKS, class_of, tests::next,
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
}
