//! mimalloc, with the interface of `std::alloc`.

use std::alloc::Layout;

use libmimalloc_sys::{mi_collect, mi_free, mi_malloc_aligned, mi_zalloc_aligned};

/// # Safety
/// The layout has a size that is not 0.
#[inline]
pub(crate) unsafe fn alloc(layout: Layout) -> *mut u8 {
    // SAFETY: a layout's alignment is a power of two.
    unsafe { mi_malloc_aligned(layout.size(), layout.align()).cast() }
}

/// # Safety
/// The layout has a size that is not 0.
#[inline]
pub(crate) unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
    // SAFETY: as above.
    unsafe { mi_zalloc_aligned(layout.size(), layout.align()).cast() }
}

/// # Safety
/// `block` came from here, and is not used any more.
#[inline]
pub(crate) unsafe fn dealloc(block: *mut u8, _: Layout) {
    // SAFETY: the caller's contract.
    unsafe { mi_free(block.cast()) };
}

pub(crate) fn release_free_memory() {
    // SAFETY: it may be called at any time.
    unsafe { mi_collect(true) };
}
