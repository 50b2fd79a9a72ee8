//! An allocator that counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counts of the whole process. So a test binary that uses it has one
/// test:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: pandofs_testkit::Counting = pandofs_testkit::Counting;
///
/// let calls = pandofs_testkit::Counting::calls();
/// drop(Box::new(1));
/// assert_eq!(pandofs_testkit::Counting::calls() - calls, 1);
/// ```
#[derive(Debug)]
pub struct Counting;

impl Counting {
    /// How often memory was allocated.
    #[must_use]
    pub fn calls() -> usize {
        CALLS.load(Ordering::Relaxed)
    }

    /// The bytes that are allocated. From now on [`Counting::peak`] is the most of them.
    #[must_use]
    pub fn live() -> usize {
        let live = LIVE.load(Ordering::Relaxed);
        PEAK.store(live, Ordering::Relaxed);
        live
    }

    /// The most bytes that were allocated at a time since [`Counting::live`].
    #[must_use]
    pub fn peak() -> usize {
        PEAK.load(Ordering::Relaxed)
    }
}

fn grew(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        grew(new_size);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
