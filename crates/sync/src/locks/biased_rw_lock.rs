//! `BiasedRwLock`: a read-write lock whose readers, if they contend, write only to a cache line of
//! their core.
//!
//! A reader of a common read-write lock writes to it twice. So readers that need not wait for each
//! other wait for the cache line of the lock. Here a lock may be *biased* towards readers. Then a
//! reader takes a lock of its core, a *stripe*, and writes nothing shared. A writer takes the
//! underlying lock, revokes the bias, and takes and releases each stripe. So it has waited for
//! every reader, and later readers find no bias and take the underlying lock. This is BRAVO (Dice
//! and Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC 2019), but the stripes
//! belong to the lock, and not to a table of the process.
//!
//! A bias costs a writer about one cache miss for each core. It is set after readers have contended
//! [`BIAS_AFTER`] times for each stripe, and so have lost a multiple of that. Until then there are
//! no stripes: a lock without contention needs no memory for them.
//!
//! Why no thread reads while another writes: a reader that holds the underlying lock excludes
//! writers. A reader that holds its stripe checks the bias again. If it sees the bias from before a
//! writer revoked it, it got the stripe before that writer reached the stripe, where the writer
//! waits. If it sees a bias that was set later, by a reader that held the underlying lock, it sees
//! all that the writers before that reader wrote.

use crate::tuning::BIAS_AFTER;
use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::PoisonError,
};

use crate::{
    counters::striped::{Striped, my_index, stripe_count},
    facade::{AtomicBool, AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, unless_waiting},
};

/// The half of [`BiasedRwLock::contention`] with the last reader's stripe.
const LAST: u64 = u32::MAX as u64;

/// One contention, in the other half.
const ONE_CONTENTION: u64 = LAST + 1;

/// A value that is shared by readers, or exclusive to one writer. A panic of a holder leaves the
/// value as it is.
pub struct BiasedRwLock<T> {
    /// The underlying lock, inline, and the stripes.
    gates: Striped<Gate>,
    /// Readers need only their stripe. Set by a reader that holds the underlying lock, revoked by a
    /// writer that holds it.
    biased: AtomicBool,
    /// The stripe of the last reader that took the underlying lock, and how often a reader found
    /// another's stripe there when it released the lock. Only a heuristic: stores may overwrite
    /// each other.
    contention: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: it owns the value, and nothing in it belongs to a thread.
unsafe impl<T: Send> Send for BiasedRwLock<T> {}
// SAFETY: readers on several threads share `&T` (Sync), and a writer on any thread has `&mut T`
// (Send). That no thread reads while another writes is argued above, and model-checked.
unsafe impl<T: Send + Sync> Sync for BiasedRwLock<T> {}

/// Shared access to the value of a [`BiasedRwLock`].
#[must_use = "the value is shared only while this lives"]
pub struct BiasedReadGuard<'a, T> {
    lock: &'a BiasedRwLock<T>,
    /// The number that the reader stored when it took the underlying lock ([`my_stripe`]); 0 if it
    /// holds a stripe.
    stripe_number: u64,
    _shared: RwLockReadGuard<'a, ()>,
}

/// Exclusive access to the value of a [`BiasedRwLock`].
#[must_use = "the value is exclusive only while this lives"]
pub struct BiasedWriteGuard<'a, T> {
    lock: &'a BiasedRwLock<T>,
    _had: RwLockWriteGuard<'a, ()>,
}

impl<T> BiasedRwLock<T> {
    /// Without a bias, and without stripes.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            gates: Striped::default(),
            biased: AtomicBool::new(false),
            contention: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Shared access. Waits for a writer.
    #[inline]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        match self.read_fast(|stripe| Some(stripe.read())) {
            Some(guard) => guard,
            None => self.read_slow(self.gates.inline().read()),
        }
    }

    /// Shared access, unless a writer would have to be waited for.
    #[inline]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        self.read_fast(Gate::try_read).or_else(|| Some(self.read_slow(self.gates.inline().try_read()?)))
    }

    /// Exclusive access. Waits for readers and writers.
    #[inline]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        let had = self.gates.inline().write();
        // Relaxed: the reader that set it held the underlying lock, which this thread holds now.
        if self.biased.load(Ordering::Relaxed) {
            self.revoke(|stripe| Some(stripe.write()));
        }
        BiasedWriteGuard { lock: self, _had: had }
    }

    /// Exclusive access, if there is no reader or writer.
    #[inline]
    pub fn try_write(&self) -> Option<BiasedWriteGuard<'_, T>> {
        let had = self.gates.inline().try_write()?;
        // Relaxed: as in `write`.
        if self.biased.load(Ordering::Relaxed) && !self.revoke(Gate::try_write) {
            return None;
        }
        Some(BiasedWriteGuard { lock: self, _had: had })
    }

    /// Sets the bias now, as contention would. Without effect on a single core.
    pub fn bias(&self) {
        let _shared = self.gates.inline().read();
        self.bias_shared();
    }

    #[inline]
    fn read_fast<'a>(
        &'a self,
        share: impl FnOnce(&'a Gate) -> Option<RwLockReadGuard<'a, ()>>,
    ) -> Option<BiasedReadGuard<'a, T>> {
        // Relaxed: a first check. It decides nothing before this thread holds the stripe.
        if !self.biased.load(Ordering::Relaxed) {
            return None;
        }
        let shared = share(self.gates.stripe()?)?;
        // Acquire: pairs with `bias_shared`, so this thread sees what was written before the bias
        // was set.
        let biased = self.biased.load(Ordering::Acquire);
        biased.then(|| BiasedReadGuard { lock: self, stripe_number: 0, _shared: shared })
    }

    #[inline]
    fn read_slow<'a>(&'a self, shared: RwLockReadGuard<'a, ()>) -> BiasedReadGuard<'a, T> {
        let (contention, stripe_number) = (self.contention.load(Ordering::Relaxed), my_stripe());
        if contention & LAST != stripe_number {
            self.contention.store(contention & !LAST | stripe_number, Ordering::Relaxed);
        }
        BiasedReadGuard { lock: self, stripe_number, _shared: shared }
    }

    /// A reader found that another reader came while it held the underlying lock, as it still does.
    #[cold]
    fn note_contention(&self, contention: u64) {
        let contention = contention.wrapping_add(ONE_CONTENTION);
        let is_rare = contention / ONE_CONTENTION < BIAS_AFTER * stripe_count() as u64;
        self.contention.store(if is_rare { contention } else { 0 }, Ordering::Relaxed);
        if !is_rare {
            self.bias_shared();
        }
    }

    /// The caller holds the underlying lock as a reader.
    fn bias_shared(&self) {
        self.gates.inflate();
        if self.gates.is_inflated() {
            // Release: threads that see the bias see what was written until now.
            self.biased.store(true, Ordering::Release);
        }
    }

    /// Revokes the bias and waits for every reader, by `take`. Returns false, and the bias remains,
    /// if `take` fails. The caller holds the underlying lock, so no thread sets the bias meanwhile.
    #[cold]
    fn revoke<'a>(&'a self, take: impl Fn(&'a Gate) -> Option<RwLockWriteGuard<'a, ()>>) -> bool {
        // Relaxed: a thread that gets a stripe after this synchronizes with this thread there.
        self.biased.store(false, Ordering::Relaxed);
        let all_taken = self.gates.all().skip(1).all(|stripe| take(stripe).is_some());
        if !all_taken {
            // Release: as in `bias_shared`.
            self.biased.store(true, Ordering::Release);
        }
        all_taken
    }
}

/// This thread's stripe, never 0.
fn my_stripe() -> u64 {
    my_index(stripe_count()) as u64 + 1
}

impl<T> Drop for BiasedReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.stripe_number != 0 {
            let contention = self.lock.contention.load(Ordering::Relaxed);
            if contention & LAST != self.stripe_number {
                self.lock.note_contention(contention);
            }
        }
    }
}

impl<T> Deref for BiasedReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_shared` is the underlying lock, which excludes writers, or a stripe, and the
        // bias was seen after the stripe was taken (`read_fast`). A writer revokes the bias, and
        // waits for this thread in that stripe (`revoke`), before it has its guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for BiasedWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_had` is the underlying lock. If there was a bias, this thread has taken and
        // released every stripe since it revoked the bias (`revoke`). A thread that gets a stripe
        // now finds no bias, since a reader that sets it holds the underlying lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` says that this thread does not share it either.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> std::fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BiasedRwLock").field("biased", &self.biased).finish_non_exhaustive()
    }
}

/// The underlying lock, or a stripe. It guards no value of its own, so a panic leaves nothing
/// inconsistent.
struct Gate(RwLock<()>);

impl Default for Gate {
    fn default() -> Self {
        Self(RwLock::new(()))
    }
}

impl Gate {
    fn read(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        unless_waiting(self.0.try_read())
    }

    fn try_write(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        unless_waiting(self.0.try_write())
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{
        sync::{Barrier, mpsc},
        thread,
    };

    fn is_biased<T>(lock: &BiasedRwLock<T>) -> bool {
        lock.biased.load(Ordering::Relaxed)
    }

    /// Readers are in the lock at the same time, `times` times.
    fn meet(lock: &BiasedRwLock<u64>, times: u64) {
        let inside = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..times {
                        let guard = lock.read();
                        inside.wait();
                        drop(guard);
                        inside.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn readers_share_and_writers_are_exclusive() {
        for biased in [false, true] {
            let lock = BiasedRwLock::new(1);
            if biased {
                lock.bias();
            }
            let (first, second) = (lock.read(), lock.try_read().expect("readers share"));
            assert_eq!((*first, *second), (1, 1));
            assert!(lock.try_write().is_none());
            assert_eq!(is_biased(&lock), biased && stripe_count() > 1, "a failed attempt changes nothing");
            assert_eq!(*lock.try_read().expect("a failed attempt excludes no reader"), 1);
            drop((first, second));
            *lock.write() += 1;
            assert!(!is_biased(&lock));
            let mut had = lock.try_write().expect("the lock is free");
            *had += 1;
            assert!(lock.try_read().is_none() && lock.try_write().is_none());
            drop(had);
            assert_eq!(*lock.read(), 3);
        }
    }

    #[test]
    fn sequential_readers_set_no_bias() {
        let lock = BiasedRwLock::new(0);
        for _ in 0..10 * BIAS_AFTER * stripe_count() as u64 {
            thread::scope(|scope| scope.spawn(|| drop(lock.read())).join().expect("no panic"));
            drop(lock.read());
        }
        assert!(!is_biased(&lock) && !lock.gates.is_inflated());
    }

    #[test]
    fn contending_readers_set_the_bias_again_after_each_writer() {
        let lock = BiasedRwLock::new(0);
        // Of two readers that contend at least one notices, unless both have the same stripe.
        let enough = |lock: &_| {
            (0..100).any(|_| {
                meet(lock, BIAS_AFTER * stripe_count() as u64);
                is_biased(lock)
            })
        };
        for _ in 0..3 {
            assert_eq!(enough(&lock), stripe_count() > 1);
            *lock.write() += 1;
            assert!(!is_biased(&lock));
        }
    }

    #[test]
    fn writer_waits_for_a_reader_in_a_stripe() {
        let lock = BiasedRwLock::new(0);
        lock.bias();
        let (entered, inside) = mpsc::channel();
        thread::scope(|scope| {
            let shared = lock.read();
            scope.spawn(|| {
                entered.send(()).expect("the test waits");
                *lock.write() = 1;
            });
            inside.recv().expect("it is about to write");
            // The writer may not have come so far yet. Then the test shows less, and nothing wrong.
            (0..100).for_each(|_| thread::yield_now());
            assert_eq!(*shared, 0);
            drop(shared);
        });
        assert_eq!(*lock.read(), 1);
    }

    #[test]
    fn panic_of_a_writer_leaves_the_lock_usable() {
        let lock = BiasedRwLock::new(0);
        lock.bias();
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let mut had = lock.write();
                *had = 1;
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!((*lock.read(), lock.try_read().map(|shared| *shared)), (1, Some(1)));
        *lock.try_write().expect("it is free") = 2;
        lock.bias();
        assert_eq!(*lock.read(), 2);
    }

    /// Two words that a writer changes one after the other, while readers set the bias again and
    /// again.
    #[test]
    fn readers_see_whole_changes() {
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let lock = BiasedRwLock::new((0_u64, 0_u64));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let both = lock.read();
                        assert_eq!(both.0, both.1);
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..rounds {
                    if round % 4 == 0 {
                        lock.bias();
                    }
                    let mut both = lock.write();
                    both.0 += 1;
                    both.1 += 1;
                }
            });
        });
        assert_eq!(*lock.read(), (rounds, rounds));
    }
}
