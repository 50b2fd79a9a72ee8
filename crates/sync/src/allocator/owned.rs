//! Owners of a block: [`BlockBox`] for a value, [`BlockBytes`] for bytes.

use std::{
    alloc::Layout,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use super::{discard, free, place, try_alloc};

/// A `Box` whose value begins on a cache line, and is freed without a lock on any thread.
pub struct BlockBox<T> {
    value: NonNull<T>,
    _owns: PhantomData<T>,
}

// SAFETY: it owns its value, as a `Box` does.
unsafe impl<T: Send> Send for BlockBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for BlockBox<T> {}

impl<T> BlockBox<T> {
    /// A value in a block of its own. The process aborts if there is no memory, as for a `Box`. A
    /// type with more alignment than a cache line does not compile.
    #[must_use]
    pub fn new(value: T) -> Self {
        const { assert!(align_of::<T>() <= super::CACHE_LINE) };
        Self { value: place(value), _owns: PhantomData }
    }
}

impl<T> Deref for BlockBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this owns the value until it is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for BlockBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for BlockBox<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` placed it, and it is not used after this.
        unsafe { discard(self.value) };
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for BlockBox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        T::fmt(self, f)
    }
}

/// A boxed slice of bytes that is freed without a lock on any thread.
pub struct BlockBytes {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes.
unsafe impl Send for BlockBytes {}
// SAFETY: when shared, they are only read.
unsafe impl Sync for BlockBytes {}

impl BlockBytes {
    /// `len` bytes: those of `base`, overwritten from `at` on by those of `patch`; zeros elsewhere.
    /// Each byte is written once. Returns `None` if there is no memory.
    ///
    /// # Panics
    /// When either does not fit.
    #[must_use]
    pub fn patched(len: usize, base: &[u8], at: usize, patch: &[u8]) -> Option<Self> {
        let fits = base.len() <= len && at <= len && patch.len() <= len - at;
        assert!(fits, "{} bytes, and from {at} on {}, into {len}", base.len(), patch.len());
        let end = at + patch.len();
        if len == 0 {
            return Some(Self::default());
        }
        let first = try_alloc(Self::layout(len))?;
        let (head, tail) = (base.len().min(at), base.len().max(end));
        // SAFETY: fresh memory for `len` bytes. The five parts fill it from the first to the last
        // byte: `base` up to the beginning of `patch`, zeros in between, `patch`, the bytes of
        // `base` behind it, zeros.
        unsafe {
            let to = |offset: usize| first.as_ptr().add(offset);
            to(0).copy_from_nonoverlapping(base.as_ptr(), head);
            to(head).write_bytes(0, at - head);
            to(at).copy_from_nonoverlapping(patch.as_ptr(), patch.len());
            to(end).copy_from_nonoverlapping(base.as_ptr().add(end.min(base.len())), tail - end);
            to(tail).write_bytes(0, len - tail);
        }
        Some(Self { first, len })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 1).expect("as long as a slice may be")
    }
}

impl Default for BlockBytes {
    /// No bytes, and no block.
    fn default() -> Self {
        Self { first: NonNull::dangling(), len: 0 }
    }
}

impl Deref for BlockBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this owns the bytes, which `patched` wrote. For an empty slice any address will
        // do.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl DerefMut for BlockBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl Drop for BlockBytes {
    #[inline]
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `patched` allocated it with this layout, and it is not used after this.
            unsafe { free(self.first, Self::layout(self.len)) };
        }
    }
}

impl std::fmt::Debug for BlockBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockBytes({} bytes)", self.len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{collections::HashSet, sync::Arc};

    #[test]
    fn box_owns_its_value() {
        let told = Arc::new(());
        let mut boxed = BlockBox::new((told.clone(), 1));
        boxed.1 += 1;
        assert_eq!((boxed.1, Arc::strong_count(&told)), (2, 2));
        let moved = std::thread::spawn(move || boxed.1).join().expect("no panic");
        assert_eq!((moved, Arc::strong_count(&told)), (2, 1));
    }

    /// Seen to fail: a box, or a single byte, that is not freed.
    #[test]
    fn freed_blocks_are_reused() {
        let times = if cfg!(miri) { 1000 } else { 100_000 };
        let addresses = |make: &dyn Fn() -> usize| (0..times).map(|_| make()).collect::<HashSet<_>>().len();
        let boxed = addresses(&|| std::ptr::from_ref(&*BlockBox::new([0_u8; 100])).addr());
        let byte = addresses(&|| BlockBytes::patched(1, &[], 0, &[]).expect("memory").as_ptr().addr());
        if !cfg!(miri) {
            assert!(boxed < times / 10 && byte < times / 10, "{boxed} and {byte} addresses in {times} calls");
        }
    }

    /// Compared with the same by a `Vec`.
    #[test]
    fn bytes_are_patched() {
        let bytes = |n: usize, seed: usize| (0..n).map(|i| (i * 7 + seed) as u8 | 1).collect::<Vec<_>>();
        for len in [0, 1, 2, 63, 64, 100, 512, 513, 1024, 3500, 5000] {
            for base in [0, 1, len / 3, len].map(|n| n.min(len)) {
                for at in [0, 1, base, len / 2, len].map(|n| n.min(len)) {
                    for patch in [0, 1, len - at].map(|n| n.min(len - at)) {
                        let (base, patch) = (bytes(base, 1), bytes(patch, 5));
                        let mut expected = vec![0; len];
                        expected[..base.len()].copy_from_slice(&base);
                        expected[at..at + patch.len()].copy_from_slice(&patch);
                        let mut found = BlockBytes::patched(len, &base, at, &patch).expect("memory");
                        assert_eq!(*found, *expected);
                        found.fill(3);
                        assert!(found.iter().all(|&byte| byte == 3));
                    }
                }
            }
        }
    }

    /// Seen to fail: each of the three conditions left out, and a sum that overflows.
    #[test]
    fn patch_that_does_not_fit_panics() {
        for (base, at, patch) in [(5, 0, 0), (0, 2, 3), (0, 5, 0), (0, usize::MAX, 2)] {
            let patched = || BlockBytes::patched(4, &[1; 5][..base], at, &[2; 3][..patch]);
            let refusal = std::panic::catch_unwind(patched).expect_err("it does not fit");
            // And nothing was written before.
            let why = refusal.downcast_ref::<String>().expect("a message");
            assert!(why.ends_with("into 4"), "{base}, {at}, {patch}: {why}");
        }
    }

    #[test]
    fn zero_sized_value_is_aligned() {
        #[repr(align(64))]
        struct Nothing;
        for _ in 0..10 {
            let boxes = [BlockBox::new(Nothing), BlockBox::new(Nothing)];
            assert!(boxes.iter().all(|boxed| std::ptr::from_ref::<Nothing>(boxed).addr().is_multiple_of(64)));
        }
    }
}
