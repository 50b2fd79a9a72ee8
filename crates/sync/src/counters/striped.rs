//! `Striped`: one value until threads contend for it, then one more for each core.
//!
//! A shared count is a cache line that all writers need. Striped over the cores it costs nothing to
//! share, but it takes 128 bytes for each core: too much for every directory and inode. So a
//! [`Striped`] begins as one inline value, and *inflates* when its users have reported contention
//! (a failed compare-and-swap) a few times: P2, protocol 7. To grow on contention is the idea of
//! Doug Lea's `Striped64` (java.util.concurrent, 2011).
//!
//! The inline value remains a part of the whole after inflation. A thread that saw it before
//! inflation may go on using it, and no update is lost. The user defines what the parts mean and
//! how they are merged: see [`Counter`](crate::Counter), [`Stamp`](crate::Stamp) and
//! [`Quota`](crate::Quota).

use crate::tuning::STRIPE_AFTER;
use std::marker::PhantomData;

use crate::{
    base::{padded::Padded, stripe_hint::stripe_hint},
    facade::{AtomicPtr, AtomicU64, Ordering},
};

/// The low bits of an array's address, which its alignment leaves free, hold the logarithm of its
/// length.
const LENGTH_BITS: usize = 0x7f;

/// There is no array and there never will be: see [`Striped::freeze`]. Not an address, since arrays
/// are aligned.
const FROZEN: usize = 1;

const _: () = assert!(align_of::<Padded<u8>>() > LENGTH_BITS);

/// One value, or, after contention, one more for each core.
pub struct Striped<T> {
    inline: T,
    /// Null, [`FROZEN`], or an array of `Padded<T>` with the logarithm of its length in
    /// [`LENGTH_BITS`]. Written once.
    stripes: AtomicPtr<()>,
    /// How often contention was reported while there was no array.
    reports: AtomicU64,
    _owns: PhantomData<Box<[T]>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Striped<u64>>() <= size_of::<u64>() + 24);

// SAFETY: the array behind the pointer is owned like a box of `T`s, and its `T`s move with it.
unsafe impl<T: Send> Send for Striped<T> {}
// SAFETY: a shared `Striped` gives out `&T` (Sync), and makes `T`s that another thread drops
// (Send).
unsafe impl<T: Send + Sync> Sync for Striped<T> {}

impl<T> Striped<T> {
    /// The value `inline`, without stripes.
    #[must_use]
    pub fn new(inline: T) -> Self {
        Self { inline, stripes: AtomicPtr::new(std::ptr::null_mut()), reports: AtomicU64::new(0), _owns: PhantomData }
    }

    /// The part that this thread should use now: the inline one, or its stripe. Two loads at most.
    #[inline]
    #[must_use]
    pub fn mine(&self) -> &T {
        self.stripe().unwrap_or(&self.inline)
    }

    /// This thread's stripe, if there are stripes.
    #[inline]
    #[must_use]
    pub fn stripe(&self) -> Option<&T> {
        let stripes = self.stripes();
        if stripes.is_empty() {
            return None;
        }
        Some(&mine(stripes).0)
    }

    /// The inline part.
    #[inline]
    #[must_use]
    pub fn inline(&self) -> &T {
        &self.inline
    }

    /// All parts: the inline one first, then the current stripes.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.inline).chain(self.stripes().iter().map(|padded| &padded.0))
    }

    /// Whether there are stripes.
    #[inline]
    #[must_use]
    pub fn is_inflated(&self) -> bool {
        !self.stripes().is_empty()
    }

    #[inline]
    fn stripes(&self) -> &[Padded<T>] {
        // Acquire: pairs with the release of the thread that made the array.
        let tagged = self.stripes.load(Ordering::Acquire);
        if tagged.addr() <= FROZEN {
            return &[];
        }
        // SAFETY: neither null nor frozen, so it is an array from `allocate`, which lives as long
        // as `self`.
        unsafe { &*untag(tagged) }
    }
}

impl<T: Default + Send + Sync> Striped<T> {
    /// Reports that this thread contended with another one. After a few reports the value inflates.
    ///
    /// It allocates then, and never waits. Without effect once inflated. Returns whether this call
    /// made the stripes.
    #[cold]
    pub fn note_contention(&self) -> bool {
        if !self.stripes.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // Relaxed: a heuristic.
        self.reports.fetch_add(1, Ordering::Relaxed) + 1 >= STRIPE_AFTER && self.inflate()
    }

    /// Makes the stripes now, unless there are some or the value is frozen. Without effect on a
    /// single core. Returns whether this call made them.
    pub fn inflate(&self) -> bool {
        let length = stripe_count();
        if length < 2 || !self.stripes.load(Ordering::Relaxed).is_null() {
            return false;
        }
        let tagged = allocate::<T>(length);
        // Release: publishes the array. Relaxed on failure: this thread frees its array, and does
        // not access the other one.
        let ours = self.stripes.compare_exchange(std::ptr::null_mut(), tagged, Ordering::Release, Ordering::Relaxed);
        if ours.is_err() {
            // SAFETY: just allocated, and not published.
            unsafe { free::<T>(tagged) };
        }
        ours.is_ok()
    }

    /// Prevents inflation, unless the value is inflated already: from now on `all` gives the same
    /// parts.
    pub fn freeze(&self) {
        let frozen = std::ptr::without_provenance_mut(FROZEN);
        // An error means that there is an array, or that the value was frozen before. Relaxed:
        // nothing is published, and a thread that reads the array loads it again in `stripes`.
        let _ = self.stripes.compare_exchange(std::ptr::null_mut(), frozen, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// This thread's element of an array with one element for each stripe.
#[inline]
pub(crate) fn mine<T>(stripes: &[T]) -> &T {
    &stripes[my_index(stripes.len())]
}

/// The index of this thread's element, if there are `count` (a power of two).
#[inline]
pub(crate) fn my_index(count: usize) -> usize {
    stripe_hint() & (count - 1)
}

/// How many stripes an inflated value has: the number of cores, rounded up to a power of two.
pub(crate) fn stripe_count() -> usize {
    #[cfg(loom)]
    return 2;
    #[cfg(not(loom))]
    {
        static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).next_power_of_two())
    }
}

/// A new array of `length` (a power of two) defaults. The low bits of its address hold the length.
fn allocate<T: Default>(length: usize) -> *mut () {
    let array: Box<[Padded<T>]> = (0..length).map(|_| Padded(T::default())).collect();
    let array = Box::into_raw(array).cast::<()>();
    debug_assert_eq!(array.addr() & LENGTH_BITS, 0, "misaligned");
    array.map_addr(|address| address | length.trailing_zeros() as usize)
}

/// The array behind a tagged address.
fn untag<T>(tagged: *mut ()) -> *mut [Padded<T>] {
    let first = tagged.map_addr(|address| address & !LENGTH_BITS).cast::<Padded<T>>();
    std::ptr::slice_from_raw_parts_mut(first, 1 << (tagged.addr() & LENGTH_BITS))
}

/// # Safety
/// `tagged` came from `allocate::<T>`, is not used any more, and is freed once.
unsafe fn free<T>(tagged: *mut ()) {
    // SAFETY: the caller's contract. `allocate` made it as a box of exactly this slice.
    drop(unsafe { Box::from_raw(untag::<T>(tagged)) });
}

impl<T> Drop for Striped<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` orders everything.
        let tagged = self.stripes.load(Ordering::Relaxed);
        if tagged.addr() > FROZEN {
            // SAFETY: an array from `allocate`, and `&mut self` excludes other users.
            unsafe { free::<T>(tagged) };
        }
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Striped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    fn sum(striped: &Striped<AtomicU64>) -> u64 {
        striped.all().map(|part| part.load(SeqCst)).sum()
    }

    #[test]
    fn inflates_after_some_contention_and_keeps_the_inline_part() {
        let striped = Striped::<AtomicU64>::default();
        striped.mine().fetch_add(5, SeqCst);
        assert!((1..STRIPE_AFTER).all(|_| !striped.note_contention()));
        assert!(!striped.is_inflated());
        let seen_alone = striped.mine();
        assert_eq!((striped.note_contention(), striped.is_inflated()), (stripe_count() > 1, stripe_count() > 1));
        assert!(!striped.note_contention() && !striped.inflate(), "inflates once");
        striped.mine().fetch_add(7, SeqCst);
        seen_alone.fetch_add(1, SeqCst);
        assert_eq!(sum(&striped), 13);
    }

    #[test]
    fn inflation_loses_nothing() {
        for _ in 0..50 {
            let striped = Striped::<AtomicU64>::default();
            std::thread::scope(|s| {
                for t in 0..4 {
                    let striped = &striped;
                    s.spawn(move || {
                        for i in 0..1000 {
                            striped.mine().fetch_add(1, SeqCst);
                            if i == 300 + t * 100 {
                                striped.inflate();
                            }
                        }
                    });
                }
            });
            assert_eq!(sum(&striped), 4000);
        }
    }

    #[test]
    fn all_parts_are_dropped_once() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Probe;
        impl Default for Probe {
            fn default() -> Self {
                MADE.fetch_add(1, SeqCst);
                Self
            }
        }
        impl Drop for Probe {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, SeqCst);
            }
        }
        for _ in 0..20 {
            let striped = Arc::new(Striped::<Probe>::default());
            std::thread::scope(|s| (0..3).for_each(|_| drop(s.spawn(|| striped.inflate()))));
            assert_eq!(striped.all().count(), if stripe_count() > 1 { 1 + stripe_count() } else { 1 });
        }
        assert_eq!(MADE.load(SeqCst), DROPPED.load(SeqCst));
    }

    #[test]
    fn frozen_value_does_not_inflate() {
        let striped = Striped::<AtomicU64>::default();
        striped.freeze();
        striped.inflate();
        striped.mine().fetch_add(1, SeqCst);
        assert!(!striped.is_inflated());
        assert_eq!(striped.all().count(), 1);
        let striped = Striped::<AtomicU64>::default();
        striped.inflate();
        let parts = striped.all().count();
        striped.freeze();
        assert_eq!(striped.all().count(), parts);
    }

    #[test]
    fn tag_holds_every_length() {
        for shift in 0..10 {
            let tagged = allocate::<u32>(1 << shift);
            let array = untag::<u32>(tagged);
            assert_eq!(array.len(), 1 << shift);
            // SAFETY: just allocated, not shared, freed once.
            unsafe {
                assert!((&*array).iter().all(|padded| padded.0 == 0 && (&raw const padded.0).addr() % 128 == 0));
                free::<u32>(tagged);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
