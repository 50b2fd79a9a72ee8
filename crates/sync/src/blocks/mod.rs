//! Blocks: where small objects live that many threads make and free all the time.
//!
//! Memory that was retired is freed by whichever thread passes the grace period, so most blocks are freed by another
//! thread than the one that made them. A general allocator answers that with locks: measured with two threads that
//! create and unlink names, glibc's arenas cost thousands of waits a second, and two threads did less than one.
//!
//! So blocks of few sizes come from here. Each thread keeps some *magazines* of free blocks of each size and
//! exchanges whole magazines with a *depot* (Bonwick & Adams, *Magazines and Vmem: extending the slab allocator to many
//! CPUs and arbitrary resources*, 2001): a short lock once in [`ROUNDS`] calls, and none while a thread frees about as much
//! as it makes, whoever made it. What was retired is freed in gusts, so a thread has room for one ([`SPARES`]): a magazine
//! that goes through the depot takes its blocks from one core's cache to another's. The depot keeps a few full magazines.
//! Otherwise it cuts blocks from chunks, and gives a chunk back to the system (`system`) when all of its blocks are free,
//! but for a few; full magazines, the thread's too, are taken apart when they would keep chunks from that.
//!
//! Blocks begin on a cache line of their own (those of 32 bytes: on half a line), which glibc's do not: an object that is
//! laid out by lines is touched by lines. Blocks of up to a page are for what files contain: not for the sake of lines or
//! cores, but because their memory goes back to the system.

mod owned;
mod system;

use std::{
    alloc::Layout,
    cell::Cell,
    ptr::{NonNull, null_mut},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

pub use self::owned::{BlockBox, BlockBytes};

/// A cache line.
pub(crate) const LINE: usize = 64;
/// Up to here, blocks are of any number of lines.
const LINED: usize = 512;
/// Larger objects than this come from the global allocator.
const LARGEST: usize = 4096;
/// Half a line; one to eight lines; twice, four times, eight times that.
const CLASSES: usize = LARGEST_LINED + 4;
/// The class of [`LINED`] bytes.
const LARGEST_LINED: usize = LINED / LINE;
/// How many blocks a magazine holds.
const ROUNDS: u32 = 32;
/// How many full magazines a thread keeps besides the one in use.
const SPARES: usize = 16;
/// So many chunks of a size are kept although all of their blocks are free: what was retired is freed in gusts.
const IDLE: usize = 2;
/// The same three for blocks that are larger than [`LINED`]: 96 KiB of pages in a thread, and 4 MiB for the next file.
const LARGE_ROUNDS: u32 = 8;
/// How many blocks a thread keeps when the depot would rather have them: each may be the last of a chunk.
const LEAN_ROUNDS: u32 = 4;
const LARGE_SPARES: usize = 2;
const LARGE_IDLE: usize = 16;
/// How many full magazines a depot keeps.
const MAGAZINES: usize = 16;
/// A chunk begins at a multiple of this.
const CHUNK: usize = 256 << 10;

/// Which class serves a layout; none: the global allocator.
#[inline]
const fn class_of(layout: Layout) -> Option<usize> {
    assert!(layout.align() <= LINE, "no object wants more than a line's alignment");
    match layout.size() {
        // The model checker frees nothing before its end, and wants each object's memory apart.
        _ if cfg!(loom) => None,
        0..=32 if layout.align() <= 32 => Some(0),
        0..=LINE => Some(1),
        size if size <= LINED => Some(size.div_ceil(LINE)),
        _ => None,
    }
}

/// Which class serves so many bytes of a file; none: the global allocator.
#[inline]
const fn class_of_bytes(layout: Layout) -> Option<usize> {
    match layout.size() {
        size if size <= LINED || cfg!(loom) => class_of(layout),
        size if size <= LARGEST => Some(LARGEST_LINED + (size.next_power_of_two() / LINED).ilog2() as usize),
        _ => None,
    }
}

const fn bytes_of(class: usize) -> usize {
    match class {
        0 => LINE / 2,
        1..=LARGEST_LINED => class * LINE,
        _ => LINED << (class - LARGEST_LINED),
    }
}

const fn rounds(class: usize) -> u32 {
    if class <= LARGEST_LINED { ROUNDS } else { LARGE_ROUNDS }
}

const fn spares(class: usize) -> usize {
    if class <= LARGEST_LINED { SPARES } else { LARGE_SPARES }
}

const fn idle(class: usize) -> usize {
    if class <= LARGEST_LINED { IDLE } else { LARGE_IDLE }
}

/// What a layout becomes in the global allocator.
#[inline]
fn padded(layout: Layout) -> Layout {
    layout.align_to(LINE).expect("a line's alignment is fine").pad_to_align()
}

/// Memory for an object; the process ends when there is none, as for a `Box`.
#[inline]
pub(crate) fn alloc(layout: Layout) -> NonNull<u8> {
    try_alloc(layout, class_of(layout)).unwrap_or_else(|| exhausted(layout))
}

/// Memory, if there is any: from a class, or, of no class, from the global allocator.
#[inline]
fn try_alloc(layout: Layout, class: Option<usize>) -> Option<NonNull<u8>> {
    let Some(class) = class else { return global(layout) };
    let cached = CACHE.try_with(|cache| cache.classes[class].pop(class));
    // The thread is ending, and its cache is gone.
    Some(cached.unwrap_or_else(|_| from_depot(class, |depot| depot.take(class)))?.cast())
}

/// Gives an object's memory back, on any thread.
///
/// # Safety
/// `ptr` came from [`alloc`] with this layout, and nobody uses it any more.
#[inline]
pub(crate) unsafe fn free(ptr: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's; `alloc` took this class.
    unsafe { give(ptr, layout, class_of(layout)) };
}

/// # Safety
/// `ptr` came from [`try_alloc`] with this layout and this class, and nobody uses it any more.
#[inline]
unsafe fn give(ptr: NonNull<u8>, layout: Layout, class: Option<usize>) {
    let Some(class) = class else {
        // SAFETY: `global` made it, with this layout.
        return unsafe { std::alloc::dealloc(ptr.as_ptr(), padded(layout)) };
    };
    let block = ptr.cast::<Free>();
    // SAFETY: a block of this class that is the caller's to give.
    let kept = CACHE.try_with(|cache| unsafe { cache.classes[class].push(class, block) });
    if kept.is_err() {
        let mut stack = Stack::EMPTY;
        // SAFETY: as above; the thread's cache is gone.
        unsafe { stack.push(block) };
        stack.flush(class);
    }
}

/// A value in a block of its own.
#[inline]
pub(crate) fn place<T>(value: T) -> NonNull<T> {
    let ptr = alloc(Layout::new::<T>()).cast::<T>();
    // SAFETY: memory for it, just allocated.
    unsafe { ptr.write(value) };
    ptr
}

/// Drops a value and gives its block back.
///
/// # Safety
/// `ptr` came from [`place`], and nobody uses it any more.
#[inline]
pub(crate) unsafe fn discard<T>(ptr: NonNull<T>) {
    // SAFETY: the caller's; `place` allocated it with this layout.
    unsafe {
        ptr.drop_in_place();
        free(ptr.cast(), Layout::new::<T>());
    }
}

#[cold]
fn global(layout: Layout) -> Option<NonNull<u8>> {
    let layout = padded(layout);
    assert!(layout.size() > 0, "objects have a size");
    // SAFETY: not empty.
    NonNull::new(unsafe { std::alloc::alloc(layout) })
}

#[cold]
fn exhausted(layout: Layout) -> NonNull<u8> {
    std::alloc::handle_alloc_error(layout)
}

/// Where the first chunk was, on a line that nothing is written to.
static NEAR: Padded<AtomicUsize> = Padded(AtomicUsize::new(0));

/// An address in whose neighbourhood blocks lie.
#[inline]
pub(crate) fn vicinity() -> usize {
    NEAR.0.load(Ordering::Relaxed)
}

/// What a free block holds.
struct Free {
    next: *mut Free,
}

/// Free blocks of one class, the last one freed on top: its line is the likeliest to be in this core's cache.
struct Stack {
    top: *mut Free,
    len: u32,
}

impl Stack {
    const EMPTY: Self = Self { top: null_mut(), len: 0 };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Free>> {
        let top = NonNull::new(self.top)?;
        // SAFETY: on a stack, so free, and written by `push`.
        self.top = unsafe { top.read() }.next;
        self.len -= 1;
        Some(top)
    }

    /// # Safety
    /// `block` is a block of the stack's class, and the caller's to give.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<Free>) {
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

    /// Gives all of it to the depot; answers whether magazines would keep chunks from the system.
    #[cold]
    fn flush(self, class: usize) -> bool {
        if self.len == 0 {
            return false;
        }
        // SAFETY: a stack's blocks are its owner's to give.
        let (mut empty, hoarded) = unsafe { locked(&DEPOTS[class].0).give_many(class, self) };
        while !empty.is_null() {
            // SAFETY: ours since the depot let go of it: all its blocks are free and nobody can come to it.
            let next = unsafe { (*empty).next };
            // SAFETY: as above.
            unsafe { Chunk::give_back(empty) };
            empty = next;
        }
        hoarded
    }
}

/// A thread's free blocks of one class: the magazine in use, and full ones.
struct Magazines {
    loaded: Cell<Stack>,
    spares: [Cell<Stack>; SPARES],
    full: Cell<usize>,
    /// The depot would rather have what is free.
    lean: Cell<bool>,
}

impl Magazines {
    const fn new() -> Self {
        Self {
            loaded: Cell::new(Stack::EMPTY),
            spares: [const { Cell::new(Stack::EMPTY) }; SPARES],
            full: Cell::new(0),
            lean: Cell::new(false),
        }
    }

    #[inline]
    fn pop(&self, class: usize) -> Option<NonNull<Free>> {
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
    unsafe fn push(&self, class: usize, block: NonNull<Free>) {
        let mut loaded = self.loaded.replace(Stack::EMPTY);
        if loaded.len >= if self.lean.get() { LEAN_ROUNDS } else { rounds(class) } {
            self.keep(class, loaded);
            loaded = Stack::EMPTY;
        }
        // SAFETY: the caller's.
        unsafe { loaded.push(block) };
        self.loaded.set(loaded);
    }
}

struct Cache {
    classes: [Magazines; CLASSES],
}

impl Drop for Cache {
    fn drop(&mut self) {
        for (class, magazines) in self.classes.iter().enumerate() {
            magazines.loaded.replace(Stack::EMPTY).flush(class);
            magazines.flush_spares(class);
        }
    }
}

std::thread_local!(static CACHE: Cache = const { Cache { classes: [const { Magazines::new() }; CLASSES] } });

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
    const LAYOUT: Layout = match Layout::from_size_align(CHUNK, CHUNK) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// How many blocks of a class there are in a chunk.
    const fn blocks(class: usize) -> usize {
        (CHUNK - LINE) / bytes_of(class)
    }

    /// A chunk with nothing used; none when the system has no memory.
    fn cut() -> Option<NonNull<Self>> {
        let chunk = system::map(Self::LAYOUT)?.cast::<Self>();
        // Relaxed: a hint.
        if NEAR.0.load(Ordering::Relaxed) == 0 {
            NEAR.0.store(chunk.addr().get(), Ordering::Relaxed);
        }
        // SAFETY: fresh memory, large enough and aligned.
        unsafe { chunk.write(Self { free: Stack::EMPTY, fresh: 0, used: 0, next: null_mut(), prev: null_mut() }) };
        Some(chunk)
    }

    /// Gives it back to the system.
    ///
    /// # Safety
    /// The depot has let go of it, for the caller.
    unsafe fn give_back(chunk: *mut Self) {
        // SAFETY: not null; `cut` mapped it, and all its blocks are free.
        unsafe { system::unmap(NonNull::new_unchecked(chunk).cast(), Self::LAYOUT) };
    }

    /// The chunk that a block was cut from.
    fn of(block: NonNull<Free>) -> *mut Self {
        block.as_ptr().map_addr(|addr| addr & !(CHUNK - 1)).cast()
    }
}

/// What the threads share of one class: its chunks that have something to give, in a list.
struct Depot {
    partial: *mut Chunk,
    /// Chunks of the list that are all free.
    idle: usize,
    /// All chunks of the class.
    chunks: usize,
    /// Blocks that are out of their chunks.
    out: usize,
    /// The first `full` of these are magazines, full or nearly so; the others are empty.
    magazines: [Stack; MAGAZINES],
    full: usize,
}

impl Depot {
    const EMPTY: Self = Self {
        partial: null_mut(),
        idle: 0,
        chunks: 0,
        out: 0,
        magazines: [const { Stack::EMPTY }; MAGAZINES],
        full: 0,
    };
}

// SAFETY: the chunks are the depot's alone, which is used under its lock.
unsafe impl Send for Depot {}

#[repr(align(128))]
struct Padded<T>(T);

static DEPOTS: [Padded<Mutex<Depot>>; CLASSES] = [const { Padded(Mutex::new(Depot::EMPTY)) }; CLASSES];

/// What `take` finds in the depot, if need be with another chunk in it. None when the system has no memory.
fn from_depot<T>(class: usize, take: impl Fn(&mut Depot) -> Option<T>) -> Option<T> {
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

fn locked(depot: &Mutex<Depot>) -> std::sync::MutexGuard<'_, Depot> {
    // A panic inside is an assertion that failed; the lists are as good as they were.
    depot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Depot {
    /// A magazine's worth of blocks, or as many as there are; none if there are none.
    fn take_many(&mut self, class: usize) -> Option<Stack> {
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
        if self.full < MAGAZINES && stack.len * 2 > rounds(class) {
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
    fn take(&mut self, class: usize) -> Option<NonNull<Free>> {
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
                assert!(place + bytes_of(class) <= CHUNK, "a chunk in the list has something to give");
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
    use std::{collections::BTreeMap, sync::mpsc};

    use super::*;

    /// Memory with a pattern in it, which tells when somebody else has written there.
    struct Held {
        ptr: NonNull<u8>,
        layout: Layout,
        pattern: u8,
    }

    // SAFETY: memory that nobody else uses.
    unsafe impl Send for Held {}

    impl Held {
        fn new(size: usize, pattern: u8) -> Self {
            let layout = Layout::from_size_align(size, 8).expect("a layout");
            let ptr = alloc(layout);
            // SAFETY: just allocated.
            unsafe { ptr.write_bytes(pattern, size) };
            Self { ptr, layout, pattern }
        }

        fn range(&self) -> (usize, usize) {
            (self.ptr.addr().get(), self.ptr.addr().get() + self.layout.size())
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // SAFETY: allocated with this size and filled.
            let bytes = unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) };
            assert!(bytes.iter().all(|&b| b == self.pattern), "somebody wrote into a block that is ours");
            // SAFETY: given once, with its layout.
            unsafe { free(self.ptr, self.layout) };
        }
    }

    impl Depot {
        /// With so many chunks.
        fn stocked(chunks: usize) -> Self {
            let mut depot = Self::EMPTY;
            // SAFETY: just cut.
            (0..chunks).for_each(|_| unsafe { depot.add(Chunk::cut().expect("memory")) });
            depot
        }
    }

    /// A generator of numbers, good enough to choose by.
    fn next(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize
    }

    #[test]
    fn blocks_are_apart_and_aligned() {
        let (mut seed, mut held) = (7, BTreeMap::<usize, Held>::new());
        for step in 0..if cfg!(miri) { 500 } else { 50_000 } {
            if next(&mut seed).is_multiple_of(2) {
                let most = if step % 8 == 0 { LARGEST } else { LINED };
                let new = Held::new(1 + next(&mut seed) % (most + 100), step as u8);
                let (start, end) = new.range();
                assert!(start.is_multiple_of(if new.layout.size() <= 32 { 32 } else { LINE }));
                assert!(held.range(..end).next_back().is_none_or(|(_, below)| below.range().1 <= start));
                held.insert(start, new);
            } else if let Some(&key) = held.keys().nth(next(&mut seed) % held.len().max(1)) {
                held.remove(&key);
            }
        }
    }

    #[test]
    fn one_thread_makes_and_another_frees() {
        let (send, receive) = mpsc::sync_channel::<Held>(100);
        let count = if cfg!(miri) { 200 } else { 20_000 };
        let other = std::thread::spawn(move || receive.into_iter().count());
        for n in 0..count {
            send.send(Held::new(40 + n % 400, n as u8)).expect("the other thread receives");
        }
        drop(send);
        assert_eq!(other.join().expect("no panic"), count);
    }

    /// Whole magazines come and go; what they keep is let go of when the rest is free.
    #[test]
    fn magazines_do_not_keep_chunks() {
        let (class, mut seed) = (3, 5);
        let mut depot = Depot::stocked(20);
        let mut out: Vec<Stack> = std::iter::from_fn(|| depot.take_many(class)).collect();
        // What does not make a magazine goes back.
        while let Some(last) = out.pop_if(|last| last.len < ROUNDS) {
            // SAFETY: just taken.
            assert!(unsafe { depot.give_many(class, last) }.0.is_null());
        }
        assert!(out.iter().all(|stack| stack.len == ROUNDS));
        assert!(depot.chunks >= 20);
        // Shuffled, so that each magazine is of many chunks.
        let mut free: Vec<_> = out.iter_mut().flat_map(|stack| std::iter::from_fn(|| stack.pop())).collect();
        while !free.is_empty() {
            let mut stack = Stack::EMPTY;
            for _ in 0..ROUNDS.min(free.len() as u32) {
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
            }
        }
        assert!(depot.chunks <= 2 * IDLE, "{} chunks are kept", depot.chunks);
        while !depot.partial.is_null() {
            let chunk = depot.partial;
            // SAFETY: in the list; the blocks in magazines are forgotten with their depot.
            unsafe {
                depot.unlink(chunk);
                Chunk::give_back(chunk);
            }
        }
    }

    #[test]
    fn chunks_go_back_to_the_system() {
        let (class, mut seed) = (5, 3);
        let mut depot = Depot::stocked(5);
        let mut out: Vec<_> = (0..5 * Chunk::blocks(class)).map(|_| depot.take(class).expect("a block")).collect();
        assert!(depot.partial.is_null(), "five chunks are full");
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
        assert_eq!(given_back, 5 - IDLE);
        for _ in 0..IDLE {
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
