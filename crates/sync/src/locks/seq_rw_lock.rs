//! `SeqRwLock`: a sequence lock whose readers may also block.
//!
//! Optimistic readers write nothing: they note the sequence, read, and look whether it has moved. Writers make it odd
//! while they write. A reader that fails too often takes the lock itself: it keeps writers out, but leaves the sequence
//! alone, so that optimistic readers do not notice it (Linux's `read_seqlock_excl` and `read_seqbegin_or_lock`, Waiman
//! Long and Al Viro, 2013, made so that path rendering is a reader and never a writer).
//!
//! So the lock is one thing, and the write another: whoever holds the lock writes when all is prepared, and optimistic
//! readers are disturbed for as long as the write takes, not for as long as the lock is held.
//!
//! The fences are those of Hans Boehm, *Can seqlocks get along with programming language memory models?*, 2012. What
//! the lock protects are the caller's atomics; `Relaxed` is enough for them.
//!
//! Nobody starves: writers and blocking readers share a lock that lets newcomers pass a waiting thread a bounded number
//! of times only (`fair_lock`), and [`SeqRwLock::read`] is optimistic a bounded number of times.

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
    /// Odd while a writer works. Written by the holder of `lock` only; on a line of its own, since many read it.
    seq: OwnLine<AtomicU64>,
    lock: FairLock,
    class: LockClass,
}

/// How a reader of [`SeqRwLock::read`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writers may be at work: what is read may not fit together, and is then thrown away.
    Optimistic,
    /// Writers are kept out.
    Blocking,
}

/// The lock, held: others that would lock are kept out for as long as it lives, and optimistic readers do not notice.
#[must_use = "the lock is held only while this lives"]
pub struct SeqGuard<'a> {
    seq: &'a AtomicU64,
    _lock: FairGuard<'a>,
    _held: Held,
}

/// The right to change what the lock protects; the sequence is odd for as long as it lives.
#[must_use = "a write lasts only while this lives"]
pub struct WriteGuard<'a> {
    seq: &'a AtomicU64,
    /// What the sequence was before.
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

    /// Starts an optimistic read: the sequence, an even number. Writes nothing.
    ///
    /// A writer at work is waited for, spinning shortly, then yielding the processor.
    #[must_use]
    pub fn read_begin(&self) -> u64 {
        loop {
            if let Some(seq) = self.try_begin() {
                return seq;
            }
            thread::yield_now();
        }
    }

    /// Whether a writer was at work since [`SeqRwLock::read_begin`] gave `seq`: what has been read may not fit together.
    #[must_use]
    pub fn read_retry(&self, seq: u64) -> bool {
        // Acquire fence: the reads before it are not moved after the load below; if one of them saw what a writer
        // stored after its release fence, the load sees at least that writer's odd number.
        fence(Ordering::Acquire);
        self.seq.0.load(Ordering::Relaxed) != seq
    }

    /// The sequence now; odd while a writer works, so that it is none that [`SeqRwLock::read_begin`] could have given. Waits for
    /// nobody.
    ///
    /// What was read after an even number stands for as long as the number does: for caches, which remember both. A thread
    /// that has seen what a writer stored finds another number, here, from then on.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        // Acquire: what the writer before has stored is seen.
        self.seq.0.load(Ordering::Acquire)
    }

    /// Takes the lock: to read with writers kept out, or to [write](SeqGuard::write). Waits for others that have it.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a reclamation guard or a lock of this class or a later one.
    pub fn lock(&self) -> SeqGuard<'_> {
        assert_unpinned("a sequence lock");
        let held = lock_order::enter(self.class);
        lock_stats::acquired(self.class);
        let lock = lock_stats::counted(self.class, || self.lock.try_lock(), || self.lock.lock());
        SeqGuard { seq: &self.seq.0, _lock: lock, _held: held }
    }

    /// As [`SeqRwLock::lock`], if it is free; never waits, so it may be called under a guard.
    pub fn try_lock(&self) -> Option<SeqGuard<'_>> {
        let lock = self.lock.try_lock()?;
        lock_stats::acquired(self.class);
        Some(SeqGuard { seq: &self.seq.0, _lock: lock, _held: lock_order::entered_without_waiting(self.class) })
    }

    /// Reads with `f`: optimistically up to [`OPTIMISTIC_TRIES`] times, then with writers kept out.
    ///
    /// `f` may run several times; the result of the run that nobody disturbed is returned. It takes its own reclamation
    /// guard, if it needs one.
    ///
    /// # Panics
    /// In debug builds, as [`SeqRwLock::lock`]: it may wait.
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

    /// The sequence, if it is even now or soon.
    fn try_begin(&self) -> Option<u64> {
        for spin in 0..=READER_SPINS {
            // Acquire: what the writer before has stored is seen.
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
    /// A panic while it lasts ends the write: the sequence is even again, and nothing is poisoned.
    pub fn write(&mut self) -> WriteGuard<'_> {
        // Relaxed: only holders of the lock write it.
        let before = self.seq.load(Ordering::Relaxed);
        debug_assert!(before.is_multiple_of(2), "a writer has left the sequence odd");
        self.seq.store(before + 1, Ordering::Relaxed);
        // Release fence: whoever sees a store made after it, and has an acquire fence, sees the odd number too.
        fence(Ordering::Release);
        WriteGuard { seq: self.seq, before }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: whoever sees the even number sees all that was written.
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
    fn readers_of_both_kinds_see_whole_writes() {
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
    fn the_lock_alone_does_not_disturb_optimistic_readers() {
        let pair = Pair::default();
        let _lock = pair.0.lock();
        let seq = pair.0.read_begin();
        assert!(!pair.0.read_retry(seq));
    }

    #[test]
    fn a_write_is_noticed_and_read_falls_back_to_blocking() {
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
    fn a_panic_leaves_it_even_and_unlocked() {
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
    fn the_lock_order_is_asserted() {
        let _data = lock_order::enter(LockClass::Data);
        drop(Pair::default().0.lock());
    }
}

#[cfg(all(test, loom))]
mod loom_model;
