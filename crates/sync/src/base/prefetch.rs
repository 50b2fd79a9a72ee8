//! Asking for memory before it is wanted, so that several waits are one.

/// Asks for the cache line at `place`, whatever is there, if anything. Reads nothing, and waits for nothing.
#[inline]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    let _ = place;
}
