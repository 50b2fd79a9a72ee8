//! Memory for objects that many threads allocate and free all the time.
//!
//! Often another thread frees an object than the one that allocated it: retired memory is freed by
//! a thread that finds its grace period over. An allocator with locks is slow at that. Measured
//! with two threads that create and unlink names, glibc's caused thousands of waits a second, and
//! two threads did less than one. mimalloc keeps the free blocks of each thread apart, and frees
//! those of other threads without a lock (Leijen, Zorn & de Moura, *Mimalloc: Free List Sharding in
//! Action*, 2019). So this crate uses it, whatever the program's global allocator is. Decision 7 of
//! `docs/decisions` has the figures.
//!
//! An object begins on a cache line of its own (up to 32 bytes: on half a line). So an object that
//! is laid out by cache lines is accessed by cache lines.

mod owned;

use std::{alloc::Layout, ptr::NonNull};

use crate::facade;

pub use self::owned::{BlockBox, BlockBytes};

/// The size of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

/// The layout to request from the allocator: whole lines, or half a line. Never empty.
#[inline]
const fn padded(layout: Layout) -> Layout {
    assert!(layout.align() <= CACHE_LINE, "no object needs more than the alignment of a cache line");
    let small = CACHE_LINE / 2;
    let align = if layout.size() <= small && layout.align() <= small { small } else { CACHE_LINE };
    let size = if layout.size() == 0 { 1 } else { layout.size() };
    match Layout::from_size_align(size, align) {
        Ok(layout) => layout.pad_to_align(),
        Err(_) => panic!("no object is so large"),
    }
}

/// Memory for an object. The process aborts if there is none, as for a `Box`.
#[inline]
pub(crate) fn alloc(layout: Layout) -> NonNull<u8> {
    try_alloc(layout).unwrap_or_else(|| exhausted(layout))
}

/// Memory, or `None` if there is none.
#[inline]
fn try_alloc(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: `padded` is not empty.
    NonNull::new(unsafe { facade::alloc(padded(layout)) })
}

/// Zeroed memory, or `None` if there is none.
pub(crate) fn try_alloc_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: `padded` is not empty.
    NonNull::new(unsafe { facade::alloc_zeroed(padded(layout)) })
}

/// Frees memory, on any thread.
///
/// # Safety
/// `ptr` came from here with this layout, and is not used any more.
#[inline]
pub(crate) unsafe fn free(ptr: NonNull<u8>, layout: Layout) {
    // SAFETY: it came from there, with this layout.
    unsafe { facade::dealloc(ptr.as_ptr(), padded(layout)) };
}

/// Allocates a value in a block of its own.
#[inline]
pub(crate) fn place<T>(value: T) -> NonNull<T> {
    let ptr = alloc(Layout::new::<T>()).cast::<T>();
    // SAFETY: memory for it, just allocated.
    unsafe { ptr.write(value) };
    ptr
}

/// Drops a value and frees its block.
///
/// # Safety
/// `ptr` came from [`place`], and is not used any more.
#[inline]
pub(crate) unsafe fn discard<T>(ptr: NonNull<T>) {
    // SAFETY: the caller's contract. `place` allocated it with this layout.
    unsafe {
        ptr.drop_in_place();
        free(ptr.cast(), Layout::new::<T>());
    }
}

/// Returns memory to the system that this crate has freed.
///
/// While threads allocate and free, that happens by itself, a second after the memory has become
/// free: until then it is likely to be used again. A program that becomes idle calls this. It takes
/// from 0.1 ms to 50 ms, the longer the more memory is in use.
pub fn release_free_memory() {
    // On a thread that never allocated, mimalloc would do nothing.
    drop(BlockBox::new(0_u64));
    facade::release_free_memory();
}

#[cold]
fn exhausted(layout: Layout) -> NonNull<u8> {
    std::alloc::handle_alloc_error(layout)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{collections::BTreeMap, sync::mpsc};

    use super::*;

    /// Memory with a pattern, which shows whether another thread has written there.
    struct Held {
        ptr: NonNull<u8>,
        layout: Layout,
        pattern: u8,
    }

    // SAFETY: memory that no other thread uses.
    unsafe impl Send for Held {}

    impl Held {
        fn new(size: usize, pattern: u8) -> Self {
            let layout = Layout::from_size_align(size, 8).expect("a layout");
            let ptr = if pattern & 16 == 0 { alloc(layout) } else { Self::zeroed(layout) };
            // SAFETY: just allocated.
            unsafe { ptr.write_bytes(pattern, size) };
            Self { ptr, layout, pattern }
        }

        fn zeroed(layout: Layout) -> NonNull<u8> {
            let ptr = try_alloc_zeroed(layout).expect("memory");
            // SAFETY: just allocated with this size, and zeroes.
            let bytes = unsafe { std::slice::from_raw_parts(ptr.as_ptr(), layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            ptr
        }

        fn range(&self) -> (usize, usize) {
            (self.ptr.addr().get(), self.ptr.addr().get() + self.layout.size())
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // SAFETY: allocated with this size and filled.
            let bytes = unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) };
            assert!(bytes.iter().all(|&b| b == self.pattern), "another thread wrote into this block");
            // SAFETY: freed once, with its layout.
            unsafe { free(self.ptr, self.layout) };
        }
    }

    fn next(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize
    }

    #[test]
    fn blocks_do_not_overlap_and_are_aligned() {
        let (mut seed, mut held) = (7, BTreeMap::<usize, Held>::new());
        for step in 0..if cfg!(miri) { 500 } else { 50_000 } {
            if next(&mut seed).is_multiple_of(2) {
                let most = if step % 8 == 0 { 4096 } else { 512 };
                let new = Held::new(1 + next(&mut seed) % (most + 100), step as u8);
                let (start, end) = new.range();
                assert!(start.is_multiple_of(if new.layout.size() <= 32 { 32 } else { CACHE_LINE }));
                assert!(held.range(..end).next_back().is_none_or(|(_, below)| below.range().1 <= start));
                held.insert(start, new);
            } else if let Some(&key) = held.keys().nth(next(&mut seed) % held.len().max(1)) {
                held.remove(&key);
            }
        }
    }

    #[test]
    fn one_thread_allocates_and_another_frees() {
        let (send, receive) = mpsc::sync_channel::<Held>(100);
        let count = if cfg!(miri) { 200 } else { 20_000 };
        let other = std::thread::spawn(move || receive.into_iter().count());
        for n in 0..count {
            send.send(Held::new(40 + n % 400, n as u8)).expect("the other thread receives");
        }
        drop(send);
        assert_eq!(other.join().expect("no panic"), count);
    }
}
