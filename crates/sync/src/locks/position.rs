//! `Position`: where the next read or write of an open file starts.
//!
//! One word holds a 63-bit position and the bit [`IN_FLIGHT`]; beside it is the handle's mutex, which reads and writes
//! that use the shared position hold (P6). Linux took the inode's mutex for `lseek` until 2009, and the whole file's
//! position mutex (`f_pos_lock`) since 2014; here seeking takes no lock:
//!
//! | operation | on the word | its instant |
//! | --- | --- | --- |
//! | [`tell`](Position::tell) | load | the load |
//! | [`set`](Position::set) | one plain store, bit clear | the store |
//! | [`begin`](Position::begin) | under the mutex: set the bit, keep the position `p` | see below |
//! | [`Io::finish`] | compare-and-swap from (`p`, bit) to the new position | this, if it succeeds |
//! | [`seek_relative`](Position::seek_relative) | compare-and-swap from (`cur`, no bit) | this |
//!
//! **Linearizability.** Only the holder of the mutex sets the bit, and every other write clears it. So while an I/O is in
//! flight, (`p`, bit) stays in the word until the first `set`, and never comes back after one: `finish` fails exactly
//! if there was a `set` since `begin`, also one to `p` itself (no ABA). If it succeeds, the position was `p` throughout,
//! and the I/O takes effect as a whole at its compare-and-swap. If it fails, the I/O takes effect immediately before
//! that first `set`: the position it leaves is overwritten at once, and nobody has seen it. Every tell in
//! between has seen `p`, and comes before it.
//!
//! A relative seek must not read a position that an I/O is about to move: while the bit is set it waits for the
//! I/O. Once a `set` has cleared the bit, the I/O has already taken effect in the order above, the word is the position
//! that the `set` gave, and the seek goes on from there without waiting, though the I/O still holds the mutex. The next
//! `begin` does wait for the mutex: two I/Os are atomic against each other.
//!
//! The word is one atomic: it is never torn. The store of `set` is a release, not SeqCst, which would cost a locked
//! instruction: all operations on one handle are in one order that every thread agrees on, and that respects each
//! thread's own order and whatever synchronisation there is between threads. (It is *not* an order across two handles for
//! threads that do nothing else to synchronise.)

use crate::{
    facade::{AtomicU64, Mutex, MutexGuard, Ordering},
    locks::{
        lock_order::{self, Held, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

/// Set while a read or write is between its begin and its end, and no seek has come in between.
const IN_FLIGHT: u64 = 1 << 63;

/// The position of an open file, and the mutex of its reads and writes.
pub struct Position {
    word: AtomicU64,
    handle: Mutex<()>,
}

/// A read or write in flight that uses the shared position. Dropped without [`Io::finish`], it does not move it.
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

    /// The position now. Never waits, writes nothing.
    #[inline]
    #[must_use]
    pub fn tell(&self) -> u64 {
        // Acquire: whoever sees a position sees what was done before it was set.
        self.word.load(Ordering::Acquire) & !IN_FLIGHT
    }

    /// Seeks to `position` (SET, END, DATA, HOLE). Never waits; one plain store.
    ///
    /// # Panics
    /// When it is above [`Position::MAX`].
    #[inline]
    pub fn set(&self, position: u64) {
        let position = checked(position);
        // Release, and no read-modify-write: see the module's documentation.
        #[cfg(not(loom))]
        self.word.store(position, Ordering::Release);
        // loom knows the order of stores to one word only as far as causality gives it, and lets a compare-and-swap
        // succeed on a store that a concurrent one has overwritten already. The C++20 memory model, which is Rust's,
        // does not (6.9.2.2: one total order for each word; 33.5.4: a read-modify-write reads the last in it). An exchange
        // gives the model that total order.
        #[cfg(loom)]
        self.word.swap(position, Ordering::Release);
    }

    /// Starts a read or write at the shared position. Waits for the one before it on this handle.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a reclamation guard or a lock that comes later in the order.
    pub fn begin(&self) -> Io<'_> {
        assert_unpinned("a read or write");
        let held = lock_order::enter(LockClass::Handle);
        let handle = lock_stats::lock(&self.handle, LockClass::Handle);
        let old = self.word.fetch_or(IN_FLIGHT, Ordering::AcqRel);
        debug_assert_eq!(old & IN_FLIGHT, 0, "two I/Os in flight");
        Io { owner: self, start: old & !IN_FLIGHT, _handle: handle, _held: held }
    }

    /// Seeks to what `new` makes of the current position, or not at all if it gives an error. Returns the new position.
    ///
    /// `new` may be called several times; the last call is the one that counts. Waits only for reads and writes on this
    /// handle: for one in flight, and for others that get their turn before it.
    ///
    /// # Errors
    /// The error of `new` (EOVERFLOW, EINVAL), for the position at some instant of the call; the position is unchanged.
    ///
    /// # Panics
    /// When `new` gives a position above [`Position::MAX`]. In debug builds, as [`Position::begin`].
    pub fn seek_relative<E>(&self, mut new: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
        assert_unpinned("a relative seek");
        let held = lock_order::enter(LockClass::Handle);
        let mut _handle = None;
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & IN_FLIGHT != 0 {
                // Who has the mutex has no I/O in flight beside him: the bit is clear from then on.
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
    /// Where this read or write starts.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.start
    }

    /// Ends it: moves the position to `position`, unless a seek came after the begin: then the seek stands.
    /// Returns whether it moved.
    ///
    /// # Panics
    /// When it is above [`Position::MAX`].
    pub fn finish(self, position: u64) -> bool {
        self.end(checked(position))
        // The drop that follows finds the bit clear.
    }

    /// Takes the I/O out of flight, with the position at `position` unless a seek has come.
    fn end(&self, position: u64) -> bool {
        let flying = self.start | IN_FLIGHT;
        // AcqRel: the data written is seen by whoever sees the position. Relaxed on failure: nothing is read then.
        self.owner.word.compare_exchange(flying, position, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Io<'_> {
    fn drop(&mut self) {
        self.end(self.start);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::stopper::Stopper;
    use std::convert::Infallible;

    fn by(delta: u64) -> impl FnMut(u64) -> Result<u64, Infallible> {
        move |cur| Ok(cur + delta)
    }

    #[test]
    fn seeks_and_tells() {
        let position = Position::new(5);
        assert_eq!(position.tell(), 5);
        position.set(Position::MAX);
        assert_eq!(position.tell(), Position::MAX);
        position.set(7);
        assert_eq!(position.seek_relative(by(3)), Ok(10));
        assert_eq!(position.seek_relative(Err), Err(10));
        assert_eq!(position.tell(), 10);
    }

    #[test]
    fn an_io_moves_the_position_when_it_finishes() {
        let position = Position::new(5);
        let io = position.begin();
        assert_eq!((io.position(), position.tell()), (5, 5));
        assert!(io.finish(9));
        assert_eq!(position.tell(), 9);
        drop(position.begin());
        assert_eq!(position.tell(), 9);
        assert_eq!(position.seek_relative(by(1)), Ok(10));
    }

    #[test]
    fn a_seek_during_an_io_stands() {
        let position = Position::new(5);
        let io = position.begin();
        position.set(50);
        // Not in flight any more, as far as the position goes: another thread's relative seek does not wait.
        std::thread::scope(|s| assert_eq!(s.spawn(|| position.seek_relative(by(1))).join().expect("ends"), Ok(51)));
        assert!(!io.finish(9));
        assert_eq!(position.tell(), 51);
    }

    /// A seek to the very place where the I/O started is a seek too.
    #[test]
    fn no_aba() {
        let position = Position::new(5);
        let io = position.begin();
        position.set(5);
        assert!(!io.finish(9));
        assert_eq!(position.tell(), 5);
        let io = position.begin();
        position.set(6);
        position.set(5);
        drop(io);
        assert_eq!(position.tell(), 5);
        assert!(position.begin().finish(6));
    }

    #[test]
    fn a_panic_ends_the_io() {
        let position = Position::new(5);
        let result = std::thread::scope(|s| {
            s.spawn(|| {
                let _io = position.begin();
                panic!("on purpose");
            })
            .join()
        });
        assert!(result.is_err());
        assert_eq!(position.seek_relative(by(1)), Ok(6));
        assert!(position.begin().finish(7));
    }

    #[test]
    #[should_panic(expected = "63 bits")]
    fn too_far() {
        Position::default().set(1 << 63);
    }

    /// The plain store against compare-and-swaps on the real machine, which the model has as an exchange.
    #[test]
    fn a_set_is_never_lost() {
        use std::sync::atomic::AtomicBool;
        const STEP: u64 = 1 << 32;
        let (position, stop) = (Position::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert!(position.seek_relative(by(1)).is_ok());
                    let io = position.begin();
                    let start = io.position();
                    io.finish(start + 1);
                }
            });
            let _stopper = Stopper(&stop);
            for i in 1..200_000 {
                position.set(i * STEP);
                assert_eq!(position.tell() / STEP, i, "a compare-and-swap undid a seek");
                assert!((i * STEP + 1..(i + 1) * STEP).contains(&position.seek_relative(by(1)).expect("no overflow")));
            }
        });
    }

    #[test]
    fn reads_and_writes_are_atomic_and_relative_seeks_are_not_lost() {
        let position = Position::new(0);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        let io = position.begin();
                        let start = io.position();
                        assert!(io.finish(start + 3), "nobody sets");
                    }
                });
                s.spawn(|| {
                    for _ in 0..10_000 {
                        assert!(position.seek_relative(by(1)).is_ok());
                    }
                });
            }
        });
        assert_eq!(position.tell(), 2 * 10_000 * (3 + 1));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
