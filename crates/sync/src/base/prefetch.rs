//! Prefetch: several cache misses are waited for at the same time.

/// Asks the CPU to load the cache line at `place`, which may be any address, mapped or not. It
/// reads nothing and does not wait.
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
