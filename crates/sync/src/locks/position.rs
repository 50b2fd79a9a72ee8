//! `Position`: where the next read or write of an open file starts.
//!
//! One word holds a 63-bit position and the bit [`IN_FLIGHT`]. Beside it is the handle's mutex,
//! which reads and writes that use the shared position hold (P6). Linux took the inode's mutex for
//! `lseek` until 2009, and has taken the whole file's position mutex (`f_pos_lock`) since 2014.
//! Here a seek takes no lock:
//!
//! | operation | on the word | its instant |
//! | --- | --- | --- |
//! | [`tell`](Position::tell) | load | the load |
//! | [`set`](Position::set) | one plain store, bit clear | the store |
//! | [`begin`](Position::begin) | under the mutex: set the bit, keep the position `p` | see below |
//! | [`Io::finish`] | compare-and-swap from (`p`, bit) to the new position | this, if it succeeds |
//! | [`seek_relative`](Position::seek_relative) | compare-and-swap from (`cur`, no bit) | this |
//!
//! **Linearizability.** Only the holder of the mutex sets the bit, and every other write clears it.
//! So while an I/O is in flight, (`p`, bit) stays in the word until the first `set`, and never
//! returns after one. Therefore `finish` fails exactly if there was a `set` since `begin`, even one
//! to `p` itself (no ABA). If `finish` succeeds, the position was `p` throughout, and the I/O takes
//! effect as a whole at its compare-and-swap. If it fails, the I/O takes effect immediately before
//! that first `set`: the position that it leaves is overwritten at once, and no thread has seen it.
//! Every `tell` in between has seen `p`, and comes before the I/O.
//!
//! A relative seek must not read a position that an I/O is about to move, so while the bit is set
//! it waits for the I/O. When a `set` has cleared the bit, the I/O has already taken effect in the
//! order above, and the word is the position of the `set`. The seek continues from there without
//! waiting, though the I/O still holds the mutex. The next `begin` does wait for the mutex: two
//! I/Os are atomic with respect to each other.
//!
//! The word is one atomic, so it is never torn. The store of `set` is a release, not SeqCst, which
//! would cost an atomic read-modify-write. All operations on one handle are in one order that every
//! thread agrees on. It respects each thread's own order and all synchronization between threads.
//! (It is *not* an order across two handles for threads that do not synchronize otherwise.)

use crate::{
    facade::{AtomicU64, Mutex, MutexGuard, Ordering},
    locks::{
        lock_order::{self, Held, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

/// Set from the beginning of a read or write to its end, or to the first seek in between.
const IN_FLIGHT: u64 = 1 << 63;

/// The position of an open file, and the mutex of its reads and writes.
pub struct Position {
    word: AtomicU64,
    handle: Mutex<()>,
}

/// A read or write in flight that uses the shared position. If it is dropped without
/// [`Io::finish`], the position does not move.
#[must_use = "the I/O is in flight only while this lives"]
pub struct Io<'a> {
    owner: &'a Position,
    start: u64,
    // Dropped after the bit is clear.
    _handle: MutexGuard<'a, ()>,
    _held: Held,
}

impl std::fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").field("start", &self.start).finish()
    }
}

impl std::fmt::Debug for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Position")
            .field("position", &(word & !IN_FLIGHT))
            .field("in_flight", &(word & IN_FLIGHT != 0))
            .finish()
    }
}

impl Position {
    /// The greatest position: that of a signed 64-bit offset.
    pub const MAX: u64 = i64::MAX as u64;

    /// A position at `position`.
    ///
    /// # Panics
    /// When it is above [`Position::MAX`].
    #[must_use]
    pub fn new(position: u64) -> Self {
        Self { word: AtomicU64::new(checked(position)), handle: Mutex::new(()) }
    }

    /// The current position. Does not wait, and writes nothing.
    #[inline]
    #[must_use]
    pub fn tell(&self) -> u64 {
        // Acquire: a thread that sees a position sees what was done before it was set.
        self.word.load(Ordering::Acquire) & !IN_FLIGHT
    }

    /// Seeks to `position` (SET, END, DATA, HOLE). Does not wait: one plain store.
    ///
    /// # Panics
    /// When it is above [`Position::MAX`].
    #[inline]
    pub fn set(&self, position: u64) {
        let position = checked(position);
        // Release, and no read-modify-write: see the module's documentation.
        #[cfg(not(loom))]
        self.word.store(position, Ordering::Release);
        // loom knows the order of stores to one word only through causality, and lets a
        // compare-and-swap succeed on a store that a concurrent one has already overwritten. The
        // C++20 memory model, which is Rust's, does not (6.9.2.2: one total order for each word;
        // 33.5.4: a read-modify-write reads the last value in it). An exchange gives the model that
        // total order.
        #[cfg(loom)]
        self.word.swap(position, Ordering::Release);
    }

    /// Starts a read or write at the shared position. Waits for the previous one on this handle.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a reclamation guard or a lock that comes later in
    /// the order.
    pub fn begin(&self) -> Io<'_> {
        assert_unpinned("a read or write");
        let held = lock_order::enter(LockClass::Handle);
        let handle = lock_stats::lock(&self.handle, LockClass::Handle);
        let old = self.word.fetch_or(IN_FLIGHT, Ordering::AcqRel);
        debug_assert_eq!(old & IN_FLIGHT, 0, "two I/Os in flight");
        Io { owner: self, start: old & !IN_FLIGHT, _handle: handle, _held: held }
    }

    /// Seeks to `new(current position)`, or not at all if that is an error. Returns the new
    /// position.
    ///
    /// `new` may be called several times, and the last call counts. Waits only for reads and writes
    /// on this handle: for one in flight, and for others that get the mutex first.
    ///
    /// # Errors
    /// The error of `new` (EOVERFLOW, EINVAL) for the position at some instant of the call. The
    /// position is unchanged.
    ///
    /// # Panics
    /// When `new` returns a position above [`Position::MAX`]. In debug builds, as
    /// [`Position::begin`].
    pub fn seek_relative<E>(&self, mut new: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
        assert_unpinned("a relative seek");
        let held = lock_order::enter(LockClass::Handle);
        let mut _handle = None;
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & IN_FLIGHT != 0 {
                // Only the holder of the mutex has an I/O in flight, so the bit remains clear while
                // this thread holds it.
                debug_assert!(_handle.is_none(), "an I/O in flight without the mutex");
                _handle = Some(lock_stats::lock(&self.handle, LockClass::Handle));
                word = self.word.load(Ordering::Acquire);
                continue;
            }
            let position = checked(new(word)?);
            match self.word.compare_exchange(word, position, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    drop(_handle);
                    drop(held);
                    return Ok(position);
                }
                Err(now) => word = now,
            }
        }
    }
}

/// Panics unless `position` is within 63 bits.
#[inline]
fn checked(position: u64) -> u64 {
    assert!(position <= Position::MAX, "position {position:#x} does not fit 63 bits");
    position
}

impl Default for Position {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Io<'_> {
    /// The position at which this read or write starts.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.start
    }

    /// Ends the I/O and moves the position to `position`, unless a seek came after the begin: then
    /// the seek wins. Returns whether the position moved.
    ///
    /// # Panics
    /// When it is above [`Position::MAX`].
    pub fn finish(self, position: u64) -> bool {
        self.end(checked(position))
        // The drop that follows finds the bit clear.
    }

    /// Clears the bit, with the position at `position`, unless a seek came in between.
    fn end(&self, position: u64) -> bool {
        let in_flight = self.start | IN_FLIGHT;
        // AcqRel: a thread that sees the position sees the data written. Relaxed on failure: the
        // value is not used then.
        self.owner.word.compare_exchange(in_flight, position, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Io<'_> {
    fn drop(&mut self) {
        self.end(self.start);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
