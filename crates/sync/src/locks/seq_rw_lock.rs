//! `SeqRwLock`: a sequence lock whose readers may also block.
//!
//! **Optimistic readers** write nothing: they load the sequence, read, and check that the sequence
//! has not changed. Writers make it odd while they write. Only a read that overlaps a write
//! retries: a thread that holds the lock without writing disturbs no reader.
//!
//! **A blocking reader** takes the lock. It excludes writers and other blocking readers. It does
//! not change the sequence, so it disturbs no optimistic reader. Linux has the same in
//! `read_seqlock_excl` and `read_seqbegin_or_lock` (Waiman Long and Al Viro, 2013), so that path
//! rendering never has to be a writer.
//!
//! The lock and the write are separate. A thread takes the lock, prepares, and then writes. A write
//! must not wait for anything, since readers may spin until it ends.
//!
//! The protected data must be atomics. Between [`SeqRwLock::read_begin`] and
//! [`SeqRwLock::read_retry`], and under the lock, `Relaxed` is enough for them: the fences here
//! order them (Hans Boehm, *Can seqlocks get along with programming language memory models?*,
//! 2012).
//!
//! [`SeqRwLock::lock`] and [`SeqRwLock::read`] do not starve. The lock lets newcomers pass a
//! waiting thread only a bounded number of times (`fair_lock`), and `read` takes it after a bounded
//! number of tries. `read_begin` has no bound: its caller limits its retries, and then takes the
//! lock.

use crate::tuning::{OPTIMISTIC_TRIES, READER_SPINS};
use crate::{
    base::padded::OwnLine,
    facade::{AtomicU64, Ordering, fence, thread},
    locks::{
        fair_lock::{FairGuard, FairLock},
        lock_order::{self, Held, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

/// A sequence lock with optimistic readers, blocking readers, and writers.
pub struct SeqRwLock {
    /// Odd while a writer writes. Written only by the holder of `lock`. On a cache line of its own,
    /// since many threads read it.
    seq: OwnLine<AtomicU64>,
    lock: FairLock,
    /// The only sequence lock of the namespace is the rename sequence.
    class: LockClass,
}

/// The mode in which [`SeqRwLock::read`] calls its closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writers may be writing. The values read may be inconsistent, and the result is then
    /// discarded.
    Optimistic,
    /// Writers are excluded.
    Blocking,
}

/// The lock is held while this lives. It excludes other holders, and optimistic readers do not
/// notice.
#[must_use = "the lock is held only while this lives"]
pub struct SeqGuard<'a> {
    seq: &'a AtomicU64,
    _lock: FairGuard<'a>,
    _held: Held,
}

/// The right to change the protected data. The sequence is odd while this lives.
#[must_use = "a write lasts only while this lives"]
pub struct WriteGuard<'a> {
    seq: &'a AtomicU64,
    /// The sequence before the write.
    before: u64,
}

impl std::fmt::Debug for SeqGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SeqGuard")
    }
}

impl std::fmt::Debug for WriteGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteGuard")
    }
}

impl std::fmt::Debug for SeqRwLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeqRwLock")
            .field("seq", &self.seq.0.load(Ordering::Relaxed))
            .field("class", &self.class)
            .finish()
    }
}

impl SeqRwLock {
    /// A lock of the class [`LockClass::RenameSeq`].
    #[must_use]
    pub fn new() -> Self {
        Self { seq: OwnLine(AtomicU64::new(0)), lock: FairLock::new(), class: LockClass::RenameSeq }
    }

    /// Starts an optimistic read and returns the sequence, an even number. Writes nothing.
    ///
    /// Waits while a write is in progress: it spins for a short time, then yields the CPU. It may
    /// be called under a reclamation guard, since a write waits for nothing.
    #[must_use]
    pub fn read_begin(&self) -> u64 {
        loop {
            if let Some(seq) = self.try_begin() {
                return seq;
            }
            thread::yield_now();
        }
    }

    /// Whether the read must be repeated. If false, no load since [`SeqRwLock::read_begin`]
    /// returned `seq` saw a store of a later write: the values belong together.
    #[must_use]
    pub fn read_retry(&self, seq: u64) -> bool {
        debug_assert!(seq.is_multiple_of(2), "an odd sequence begins no read");
        // Acquire fence: the reads before it are not moved after the load below, for which Relaxed
        // is then enough. If one of them saw a value that a writer stored after its release fence,
        // the load sees at least that writer's odd number.
        fence(Ordering::Acquire);
        self.seq.0.load(Ordering::Relaxed) != seq
    }

    /// The current sequence. It is odd while a writer writes, and then differs from every result of
    /// [`SeqRwLock::read_begin`]. Does not wait.
    ///
    /// For caches: call this, and if the number is even, read a value and keep both. The value is
    /// current as long as this function returns the same number. The value must have been loaded
    /// with `Acquire`, or with an acquire fence after it: a thread that has loaded a value of a
    /// writer in this way finds a larger number here.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        // Acquire: if the number is even, later loads see all stores of the previous write.
        self.seq.0.load(Ordering::Acquire)
    }

    /// Takes the lock, to read with writers excluded, or to [write](SeqGuard::write). Waits for
    /// other holders.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a reclamation guard, or a lock of this class or a
    /// later one.
    pub fn lock(&self) -> SeqGuard<'_> {
        assert_unpinned("a sequence lock");
        let held = lock_order::enter(self.class);
        lock_stats::acquired(self.class);
        // The lock orders the writes of its holders.
        let lock = lock_stats::counted(self.class, || self.lock.try_lock(), || self.lock.lock());
        SeqGuard { seq: &self.seq.0, _lock: lock, _held: held }
    }

    /// Like [`SeqRwLock::lock`], if the lock is free. Does not wait, so it may be called under a
    /// guard.
    pub fn try_lock(&self) -> Option<SeqGuard<'_>> {
        let lock = self.lock.try_lock()?;
        lock_stats::acquired(self.class);
        Some(SeqGuard { seq: &self.seq.0, _lock: lock, _held: lock_order::entered_without_waiting(self.class) })
    }

    /// Reads with `f`: optimistically up to [`OPTIMISTIC_TRIES`] times, then with writers excluded.
    ///
    /// `f` may run several times. The result of the undisturbed run is returned. `f` takes its own
    /// reclamation guard, if it needs one.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a reclamation guard; and as [`SeqRwLock::lock`] if it
    /// takes the lock.
    pub fn read<R>(&self, mut f: impl FnMut(Mode) -> R) -> R {
        assert_unpinned("a sequence lock");
        for _ in 0..OPTIMISTIC_TRIES {
            let Some(seq) = self.try_begin() else { continue };
            let result = f(Mode::Optimistic);
            if !self.read_retry(seq) {
                return result;
            }
        }
        let _guard = self.lock();
        f(Mode::Blocking)
    }

    /// The sequence, if it is even now or after a few spins.
    fn try_begin(&self) -> Option<u64> {
        for spin in 0..=READER_SPINS {
            // Acquire: if the number is even, later loads see all stores of the previous write.
            let seq = self.seq.0.load(Ordering::Acquire);
            if seq.is_multiple_of(2) {
                return Some(seq);
            }
            if spin != READER_SPINS {
                std::hint::spin_loop();
            }
        }
        None
    }
}

impl Default for SeqRwLock {
    fn default() -> Self {
        Self::new()
    }
}

impl SeqGuard<'_> {
    /// Starts a write: optimistic readers that overlap it retry.
    ///
    /// If the thread panics, unwinding ends the write and releases the lock. Readers then accept
    /// what was written so far, so the caller must keep the data valid at each point.
    pub fn write(&mut self) -> WriteGuard<'_> {
        // Relaxed load: the previous writer has released the lock after its store, and this thread
        // has acquired it since. Relaxed store: the fence below orders it before the writes.
        let before = self.seq.load(Ordering::Relaxed);
        debug_assert!(before.is_multiple_of(2), "a writer left the sequence odd");
        self.seq.store(before + 1, Ordering::Relaxed);
        // Release fence, paired with the acquire fence in `read_retry`: a reader that has loaded a
        // store from after this fence then loads this odd number, or a later one, and retries.
        fence(Ordering::Release);
        WriteGuard { seq: self.seq, before }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: a thread that loads the even number with Acquire sees all stores of the write.
        self.seq.store(self.before + 2, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::stopper::Stopper;
    use std::sync::atomic::AtomicBool;

    #[derive(Default)]
    struct Pair(SeqRwLock, AtomicU64, AtomicU64);

    impl Pair {
        fn change(&self) {
            let mut lock = self.0.lock();
            let _write = lock.write();
            let n = self.1.load(Ordering::Relaxed) + 1;
            self.1.store(n, Ordering::Relaxed);
            self.2.store(n, Ordering::Relaxed);
        }
        fn get(&self) -> (u64, u64) {
            (self.1.load(Ordering::Relaxed), self.2.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn optimistic_and_blocking_readers_see_whole_writes() {
        let (pair, stop) = (Pair::default(), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        pair.change();
                    }
                });
            }
            let _stopper = Stopper(&stop);
            let mut last = 0;
            for i in 0..20_000 {
                let (a, b) = if i % 16 == 0 {
                    let _lock = pair.0.lock();
                    pair.get()
                } else {
                    pair.0.read(|_| pair.get())
                };
                assert_eq!(a, b);
                assert!(a >= last, "went back");
                last = a;
            }
        });
    }

    #[test]
    fn lock_without_write_does_not_disturb_optimistic_readers() {
        let pair = Pair::default();
        let _lock = pair.0.lock();
        let seq = pair.0.read_begin();
        assert!(!pair.0.read_retry(seq));
    }

    #[test]
    fn read_falls_back_to_blocking_after_writes() {
        let pair = Pair::default();
        let seq = pair.0.read_begin();
        pair.change();
        assert!(pair.0.read_retry(seq));
        let mut modes = Vec::new();
        pair.0.read(|mode| {
            modes.push(mode);
            if mode == Mode::Optimistic {
                pair.change();
            }
        });
        let mut expected = vec![Mode::Optimistic; OPTIMISTIC_TRIES];
        expected.push(Mode::Blocking);
        assert_eq!(modes, expected);
    }

    #[test]
    fn panic_leaves_the_sequence_even_and_the_lock_free() {
        let pair = Pair::default();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut lock = pair.0.lock();
            let _write = lock.write();
            panic!("on purpose");
        }));
        assert!(result.is_err());
        assert_eq!(pair.0.read_begin(), 2);
        pair.change();
        assert_eq!(pair.0.read(|_| pair.get()), (1, 1));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lock = pair.0.lock();
            panic!("on purpose");
        }));
        assert!(result.is_err());
        pair.change();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "RenameSeq was asked for while Data is held")]
    fn lock_order_is_asserted() {
        let _data = lock_order::enter(LockClass::Data);
        drop(Pair::default().0.lock());
    }
}

#[cfg(all(test, loom))]
mod loom_model;
