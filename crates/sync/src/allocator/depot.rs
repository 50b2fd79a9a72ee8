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
mod tests;
