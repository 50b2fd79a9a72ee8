//! What threads share of free blocks: full magazines, and the chunks that blocks are cut from.

use crate::tuning::{CHUNK_BYTES, DEPOT_MAGAZINES};
use std::{
    ptr::{NonNull, null_mut},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    CLASSES, LINE, bytes_of, idle,
    magazines::{Free, Stack},
    rounds, system,
};
use crate::Padded;

/// Where the first chunk was, on a line that nothing is written to.
static NEAR: Padded<AtomicUsize> = Padded(AtomicUsize::new(0));

/// An address in whose neighbourhood blocks lie: the same for whoever has seen one.
#[inline]
pub(crate) fn vicinity() -> usize {
    NEAR.0.load(Ordering::Relaxed)
}

/// The head of a chunk; its blocks follow. Guarded by the depot's lock.
#[repr(C, align(64))]
struct Chunk {
    free: Stack,
    /// Blocks that were never used, and are not on the stack: they begin here.
    fresh: usize,
    /// Blocks that are out.
    used: usize,
    /// Neighbours among the chunks of the depot that have something to give.
    next: *mut Chunk,
    prev: *mut Chunk,
}

const _: () = assert!(size_of::<Chunk>() == LINE);

impl Chunk {
    /// How many blocks of a class there are in a chunk.
    const fn blocks(class: usize) -> usize {
        (CHUNK_BYTES - LINE) / bytes_of(class)
    }

    /// A chunk with nothing used; none when the system has no memory.
    fn cut() -> Option<NonNull<Self>> {
        let chunk = system::map()?.cast::<Self>();
        if vicinity() == 0 {
            // Relaxed: a number. If another thread was first, that stands.
            let _ = NEAR.0.compare_exchange(0, chunk.addr().get(), Ordering::Relaxed, Ordering::Relaxed);
        }
        // SAFETY: nobody's memory, large enough and aligned.
        unsafe { chunk.write(Self { free: Stack::EMPTY, fresh: 0, used: 0, next: null_mut(), prev: null_mut() }) };
        Some(chunk)
    }

    /// Gives it back to the system.
    ///
    /// # Safety
    /// The depot has let go of it, for the caller.
    unsafe fn give_back(chunk: *mut Self) {
        // SAFETY: not null; `cut` mapped it, and all its blocks are free.
        unsafe { system::unmap(NonNull::new_unchecked(chunk).cast()) };
    }

    /// The chunk that a block was cut from.
    fn of(block: NonNull<Free>) -> *mut Self {
        block.as_ptr().map_addr(|addr| addr & !(CHUNK_BYTES - 1)).cast()
    }
}

/// What the threads share of one class: its chunks that have something to give, in a list.
pub(super) struct Depot {
    partial: *mut Chunk,
    /// Chunks of the list that are all free.
    idle: usize,
    /// All chunks of the class.
    chunks: usize,
    /// Blocks that are out of their chunks.
    out: usize,
    /// The first `full` of these are magazines, full or nearly so; the others are empty.
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

// SAFETY: the chunks are the depot's alone, which is used under its lock.
unsafe impl Send for Depot {}

static DEPOTS: [Padded<Mutex<Depot>>; CLASSES] = [const { Padded(Mutex::new(Depot::EMPTY)) }; CLASSES];

/// What `take` finds in the depot, if need be with another chunk in it. None when the system has no memory.
pub(super) fn from_depot<T>(class: usize, take: impl Fn(&mut Depot) -> Option<T>) -> Option<T> {
    let depot = &DEPOTS[class].0;
    if let Some(taken) = take(&mut locked(depot)) {
        return Some(taken);
    }
    // Nobody waits while the system is asked.
    let chunk = Chunk::cut()?;
    let mut depot = locked(depot);
    // SAFETY: just cut.
    unsafe { depot.add(chunk) };
    take(&mut depot)
}

/// Gives blocks to the depot, and to the system what it does not keep; answers whether magazines would keep chunks from the
/// system.
///
/// # Safety
/// The blocks are of this class, and the caller's to give.
pub(super) unsafe fn to_depot(class: usize, stack: Stack) -> bool {
    // SAFETY: the caller's.
    let (mut empty, hoarded) = unsafe { locked(&DEPOTS[class].0).give_many(class, stack) };
    while !empty.is_null() {
        // SAFETY: ours since the depot let go of it: all its blocks are free and nobody can come to it.
        let next = unsafe { (*empty).next };
        // SAFETY: as above.
        unsafe { Chunk::give_back(empty) };
        empty = next;
    }
    hoarded
}

fn locked(depot: &Mutex<Depot>) -> std::sync::MutexGuard<'_, Depot> {
    // A panic inside is an assertion that failed; the lists are as good as they were.
    depot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Depot {
    /// A magazine's worth of blocks, or as many as there are; none if there are none.
    pub fn take_many(&mut self, class: usize) -> Option<Stack> {
        if let Some(full) = self.full.checked_sub(1) {
            self.full = full;
            return Some(std::mem::replace(&mut self.magazines[full], Stack::EMPTY));
        }
        let mut stack = Stack::EMPTY;
        while stack.len < rounds(class) {
            let Some(block) = self.take(class) else { break };
            // SAFETY: the depot has given it to us.
            unsafe { stack.push(block) };
        }
        (stack.len > 0).then_some(stack)
    }

    /// Takes blocks back; returns chunks, linked by `next`, that the caller gives to the system, and whether magazines
    /// would keep more from it.
    ///
    /// # Safety
    /// The blocks came from this depot with this class, and are the caller's to give.
    unsafe fn give_many(&mut self, class: usize, stack: Stack) -> (*mut Chunk, bool) {
        let mut empty = null_mut();
        if self.full < DEPOT_MAGAZINES && stack.len * 2 > rounds(class) {
            self.magazines[self.full] = stack;
            self.full += 1;
        } else {
            // SAFETY: the caller's.
            unsafe { self.take_apart(class, stack, &mut empty) };
        }
        let kept: usize = self.magazines[..self.full].iter().map(|magazine| magazine.len as usize).sum();
        // Mostly free, and not few: it may be these that keep them.
        let hoarded = self.chunks > 2 * idle(class) && (self.out - kept) * 8 < self.chunks * Chunk::blocks(class);
        if hoarded {
            while let Some(full) = self.full.checked_sub(1) {
                self.full = full;
                let magazine = std::mem::replace(&mut self.magazines[full], Stack::EMPTY);
                // SAFETY: its blocks were given to us.
                unsafe { self.take_apart(class, magazine, &mut empty) };
            }
        }
        (empty, hoarded)
    }

    /// Gives each block to its chunk, and puts chunks that the system is to have onto `empty`.
    ///
    /// # Safety
    /// As for [`Depot::give_many`].
    unsafe fn take_apart(&mut self, class: usize, mut stack: Stack, empty: &mut *mut Chunk) {
        while let Some(block) = stack.pop() {
            // SAFETY: the caller's.
            if let Some(chunk) = unsafe { self.give(class, block) } {
                // SAFETY: the depot has let go of it, for us.
                unsafe { (*chunk).next = *empty };
                *empty = chunk;
            }
        }
    }

    /// Another chunk.
    ///
    /// # Safety
    /// It was just cut, and is the caller's to give.
    unsafe fn add(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the caller's; so it is in no list.
        unsafe { self.link(chunk.as_ptr()) };
        self.idle += 1;
        self.chunks += 1;
    }

    /// A block for the caller; none if no chunk has any.
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
                let place = LINE + (*chunk).fresh * bytes_of(class);
                (*chunk).fresh += 1;
                assert!(place + bytes_of(class) <= CHUNK_BYTES, "a chunk in the list has something to give");
                NonNull::new_unchecked(chunk.byte_add(place).cast())
            });
            if (*chunk).used == Chunk::blocks(class) {
                self.unlink(chunk);
            }
            Some(block)
        }
    }

    /// Takes a block back; returns its chunk if all of it is free and so are others: the caller gives that to the system.
    ///
    /// # Safety
    /// `block` came from `take` with this class, and is the caller's to give.
    unsafe fn give(&mut self, class: usize, block: NonNull<Free>) -> Option<*mut Chunk> {
        let chunk = Chunk::of(block);
        // SAFETY: a block is out, so its chunk is allocated, and only used under the lock that `self` stands for.
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
            if self.idle < idle(class) {
                self.idle += 1;
                return None;
            }
            self.unlink(chunk);
            self.chunks -= 1;
        }
        Some(chunk)
    }

    /// # Safety
    /// `chunk` is the depot's, and in no list.
    unsafe fn link(&mut self, chunk: *mut Chunk) {
        // SAFETY: the caller's; the first of the list is the depot's too.
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
        // SAFETY: the caller's; its neighbours are in the list, hence the depot's.
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

        /// So many blocks.
        fn stack(&mut self, class: usize, blocks: u32) -> Stack {
            let mut stack = Stack::EMPTY;
            // SAFETY: just taken.
            (0..blocks).for_each(|_| unsafe { stack.push(self.take(class).expect("a block")) });
            stack
        }

        /// Gives the system the chunks of the list: blocks that are out are forgotten.
        fn forget(mut self) {
            while !self.partial.is_null() {
                let chunk = self.partial;
                // SAFETY: in the list; nobody uses a block of it any more.
                unsafe {
                    self.unlink(chunk);
                    Chunk::give_back(chunk);
                }
            }
        }

        /// Blocks that threads have, whether they use them or keep them.
        fn with_threads(&self) -> usize {
            self.out - self.magazines[..self.full].iter().map(|magazine| magazine.len as usize).sum::<usize>()
        }
    }

    /// A magazine is handed on as it came, unless it is rather empty, or most of many chunks is free.
    /// Seen to fail: magazines that are never kept, or never handed on; kept if rather empty; taken apart however few the
    /// chunks are, or however much is out; and counted as full ones.
    #[test]
    fn magazines_are_handed_on() {
        let class = 3;
        // SAFETY: all that is given was taken from this depot, and is given once.
        let give = |depot: &mut Depot, stack| unsafe { depot.give_many(class, stack) };
        let mut few = Depot::stocked(2 * FREE_CHUNKS);
        let stack = few.stack(class, MAGAZINE_BLOCKS);
        let block = stack.top();
        assert_eq!((give(&mut few, stack), few.full), ((null_mut(), false), 1), "kept");
        let stack = few.take_many(class).expect("the one that was given");
        assert_eq!((stack.top(), stack.len, few.full), (block, MAGAZINE_BLOCKS, 0), "handed on");
        give(&mut few, stack);
        let stack = few.stack(class, MAGAZINE_BLOCKS / 2);
        assert_eq!(
            (give(&mut few, stack), few.full, few.out),
            ((null_mut(), false), 1, MAGAZINE_BLOCKS as usize),
            "taken apart"
        );
        few.forget();

        let mut many = Depot::stocked(2 * FREE_CHUNKS + 1);
        let used = many.stack(class, (Chunk::blocks(class) * 2) as u32);
        let stack = many.stack(class, MAGAZINE_BLOCKS / 2 + 1);
        assert_eq!((give(&mut many, stack), many.full), ((null_mut(), false), 1), "much is out");
        let (mut empty, hoarded) = give(&mut many, used);
        assert_eq!((hoarded, many.full, many.out, many.chunks), (true, 0, 0, FREE_CHUNKS), "nothing is out");
        for _ in FREE_CHUNKS..2 * FREE_CHUNKS + 1 {
            // SAFETY: the depot has let go of it, and has linked so many.
            unsafe {
                let chunk = empty;
                empty = (*chunk).next;
                Chunk::give_back(chunk);
            }
        }
        assert!(empty.is_null());
        many.forget();
    }

    std::thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });

    /// Makes and frees a block as the thread ends.
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

    /// What a thread keeps for itself: some magazines, and a few blocks only when these may keep chunks from the system; when it
    /// has ended, nothing.
    /// Seen to fail: a thread that keeps nothing, or one magazine less, or without end, or does not come back to what it
    /// keeps; that keeps as many large blocks as small ones; that does not hear of hoarding, or of its end; that does not give
    /// the magazine in use, or the others, as it ends, or what is freed after that; bytes that are not freed; as few idle
    /// chunks of pages as of small blocks.
    #[test]
    fn a_thread_keeps_some_and_leaves_none() {
        let class = class_of(Layout::new::<[u8; LARGEST]>()).expect("a class");
        let depot = move || locked(&DEPOTS[class].0);
        let kept = move || depot().with_threads();
        let (spares, rounds) = (LARGE_SPARE_MAGAZINES * LARGE_MAGAZINE_BLOCKS as usize, LARGE_MAGAZINE_BLOCKS as usize);
        let keeps = move || {
            // First, so that it goes last, after this thread's cache.
            LATE.with_borrow_mut(|late| *late = Some(Late));
            drop(many_bytes(100));
            let before = kept();
            assert!((spares + 1..=spares + rounds).contains(&before), "{before} blocks are kept");
            let again = many_bytes(spares + 1);
            assert_eq!(kept(), before, "those that were kept");
            drop(again);
            // Of each of many chunks something stays, and nearly all goes.
            let all = many_bytes((2 * FREE_PAGE_CHUNKS + 8) * Chunk::blocks(class));
            let (stays, goes): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(n, _)| n % 64 == 0);
            drop(goes);
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

    /// Whole magazines come and go; what they keep is let go of when the rest is free.
    #[test]
    fn magazines_do_not_keep_chunks() {
        let (class, mut seed) = (3, 5);
        let mut depot = Depot::stocked(20);
        let mut out: Vec<Stack> = std::iter::from_fn(|| depot.take_many(class)).collect();
        // What does not make a magazine goes back.
        while let Some(last) = out.pop_if(|last| last.len < MAGAZINE_BLOCKS) {
            // SAFETY: just taken.
            assert!(unsafe { depot.give_many(class, last) }.0.is_null());
        }
        assert!(out.iter().all(|stack| stack.len == MAGAZINE_BLOCKS));
        assert_eq!(depot.chunks, 20);
        let mut given_back = 0;
        // Shuffled, so that each magazine is of many chunks.
        let mut free: Vec<_> = out.iter_mut().flat_map(|stack| std::iter::from_fn(|| stack.pop())).collect();
        while !free.is_empty() {
            let mut stack = Stack::EMPTY;
            for _ in 0..MAGAZINE_BLOCKS.min(free.len() as u32) {
                let block = free.swap_remove(next(&mut seed) % free.len());
                // SAFETY: taken from this depot, and given once.
                unsafe { stack.push(block) };
            }
            // SAFETY: as above.
            let (mut empty, _) = unsafe { depot.give_many(class, stack) };
            while !empty.is_null() {
                // SAFETY: the depot has let go of it.
                unsafe {
                    let chunk = empty;
                    empty = (*chunk).next;
                    Chunk::give_back(chunk);
                }
                given_back += 1;
            }
        }
        assert!(depot.chunks <= 2 * FREE_CHUNKS, "{} chunks are kept", depot.chunks);
        assert_eq!(given_back + depot.chunks, 20, "none is lost");
        depot.forget();
    }

    /// Seen to fail: as many idle chunks of blocks that are large, but no pages.
    #[test]
    fn chunks_go_back_to_the_system() {
        for class in [5, LARGEST_CLASS - 1] {
            let mut seed = 3;
            let mut depot = Depot::stocked(5);
            let mut out: Vec<_> = (0..5 * Chunk::blocks(class)).map(|_| depot.take(class).expect("a block")).collect();
            assert!(depot.partial.is_null(), "five chunks are full");
            // SAFETY: taken from this depot, and given once.
            assert!(out.pop().is_some_and(|last| unsafe { depot.give(class, last) }.is_none()));
            out.push(depot.take(class).expect("the one that was given"));
            let mut given_back = 0;
            while !out.is_empty() {
                let block = out.swap_remove(next(&mut seed) % out.len());
                // SAFETY: taken from this depot, and given once.
                if let Some(chunk) = unsafe { depot.give(class, block) } {
                    given_back += 1;
                    // SAFETY: the depot has let go of it, and all its blocks are free.
                    unsafe { Chunk::give_back(chunk) };
                }
            }
            assert_eq!(given_back, 5 - FREE_CHUNKS);
            for _ in 0..FREE_CHUNKS {
                let chunk = depot.partial;
                // SAFETY: in the list, and nothing is out.
                unsafe {
                    assert_eq!((*chunk).used, 0);
                    depot.unlink(chunk);
                    Chunk::give_back(chunk);
                }
            }
            assert!(depot.partial.is_null());
        }
    }
}
