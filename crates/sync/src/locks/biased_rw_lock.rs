//! `BiasedRwLock`: a read/write lock whose readers write to a line of their own core once they are many.
//!
//! A reader of a common lock writes to it twice, and so readers who need not wait for each other wait for the line that the
//! lock lies in. Here a lock may be *biased* towards readers: they take a lock of their core then, a *stripe*, and nothing in
//! common. A writer takes the lock proper, takes the bias away, and passes through all stripes, each of which it has for
//! an instant; so it has met every reader, and those who come later find no bias and go to the lock proper. This is
//! BRAVO (Dice and Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC 2019) with stripes that belong to
//! the lock, where theirs are a table of the process.
//!
//! What a bias costs a writer is about one line from each core. It is given after readers have been in one another's way
//! [`BIAS_AFTER`] times for each stripe, and so have lost a multiple of that. Until then there are no stripes: a lock that is
//! not fought for takes no memory for them.
//!
//! Why nobody reads what is written: a reader who shares the lock proper keeps writers out. One who has his stripe looks once
//! more whether the bias is there. If he sees it as it was before a writer took it away, he got the stripe before that writer
//! came by, who waits there for him. If he sees it as it was given later, by a reader who shared the lock proper,
//! he sees all that the writers before that one wrote.

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

/// The half of [`BiasedRwLock::met`] that says who came last.
const LAST: u64 = u32::MAX as u64;

/// One meeting, in the other half.
const MEETING: u64 = LAST + 1;

/// A value that is shared by readers, or had by one writer. A panic of who has it leaves it as it is then.
pub struct BiasedRwLock<T> {
    /// The lock proper, inline, and the stripes.
    gates: Striped<Gate>,
    /// Readers need their stripe only. Set by a reader who shares the lock proper, taken away by a writer who has it.
    biased: AtomicBool,
    /// The stripe of the reader who came last to the lock proper, and how often one found another's there as he left. Only a
    /// heuristic: stores may overtake each other.
    met: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: it owns the value, and nothing in it belongs to a thread.
unsafe impl<T: Send> Send for BiasedRwLock<T> {}
// SAFETY: readers on several threads share `&T` (Sync), and a writer on any has `&mut T` (Send). That nobody reads what is
// written is argued above, and model-checked.
unsafe impl<T: Send + Sync> Sync for BiasedRwLock<T> {}

/// Shares a [`BiasedRwLock`] with other readers.
#[must_use = "the value is shared only while this lives"]
pub struct BiasedReadGuard<'a, T> {
    lock: &'a BiasedRwLock<T>,
    /// As who came to the lock proper ([`my_stripe`]); 0 for who has a stripe.
    came: u64,
    _shared: RwLockReadGuard<'a, ()>,
}

/// Has a [`BiasedRwLock`] for itself.
#[must_use = "the value is had only while this lives"]
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
            met: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Shares the value. Waits for a writer.
    #[inline]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        match self.by_stripe(|stripe| Some(stripe.read())) {
            Some(guard) => guard,
            None => self.by_proper(self.gates.inline().read()),
        }
    }

    /// Shares the value, unless there is a writer to wait for.
    #[inline]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        self.by_stripe(Gate::try_read).or_else(|| Some(self.by_proper(self.gates.inline().try_read()?)))
    }

    /// Has the value. Waits for whoever has or shares it.
    #[inline]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        let had = self.gates.inline().write();
        // Relaxed: whoever set it shared the lock proper, which we have got since.
        if self.biased.load(Ordering::Relaxed) {
            self.unbias(|stripe| Some(stripe.write()));
        }
        BiasedWriteGuard { lock: self, _had: had }
    }

    /// Has the value, if nobody else has or shares it.
    #[inline]
    pub fn try_write(&self) -> Option<BiasedWriteGuard<'_, T>> {
        let had = self.gates.inline().try_write()?;
        // Relaxed: as in `write`.
        if self.biased.load(Ordering::Relaxed) && !self.unbias(Gate::try_write) {
            return None;
        }
        Some(BiasedWriteGuard { lock: self, _had: had })
    }

    /// What many readers at the same time bring about, at once; without effect on a single core.
    pub fn bias(&self) {
        let _shared = self.gates.inline().read();
        self.bias_shared();
    }

    #[inline]
    fn by_stripe<'a>(
        &'a self,
        share: impl FnOnce(&'a Gate) -> Option<RwLockReadGuard<'a, ()>>,
    ) -> Option<BiasedReadGuard<'a, T>> {
        // Relaxed: a first look. It counts for nothing before the stripe is ours.
        if !self.biased.load(Ordering::Relaxed) {
            return None;
        }
        let shared = share(self.gates.stripe()?)?;
        // Acquire: pairs with `bias_shared`; so we see what was written before the bias was given.
        let biased = self.biased.load(Ordering::Acquire);
        biased.then(|| BiasedReadGuard { lock: self, came: 0, _shared: shared })
    }

    #[inline]
    fn by_proper<'a>(&'a self, shared: RwLockReadGuard<'a, ()>) -> BiasedReadGuard<'a, T> {
        let (met, came) = (self.met.load(Ordering::Relaxed), my_stripe());
        if met & LAST != came {
            self.met.store(met & !LAST | came, Ordering::Relaxed);
        }
        BiasedReadGuard { lock: self, came, _shared: shared }
    }

    /// A reader found that another one came while he shared the lock proper, as he still does.
    #[cold]
    fn in_the_way(&self, met: u64) {
        let met = met.wrapping_add(MEETING);
        let patient = met / MEETING < BIAS_AFTER * stripe_count() as u64;
        self.met.store(if patient { met } else { 0 }, Ordering::Relaxed);
        if !patient {
            self.bias_shared();
        }
    }

    /// The caller shares the lock proper.
    fn bias_shared(&self) {
        self.gates.inflate();
        if self.gates.is_inflated() {
            // Release: what was written until now is seen by those who see the bias.
            self.biased.store(true, Ordering::Release);
        }
    }

    /// Takes the bias away and meets every reader, by `take`; false, and the bias stays, if it could not. The caller has the
    /// lock proper, so nobody gives it back meanwhile.
    #[cold]
    fn unbias<'a>(&'a self, take: impl Fn(&'a Gate) -> Option<RwLockWriteGuard<'a, ()>>) -> bool {
        // Relaxed: who gets a stripe after us synchronizes with us there.
        self.biased.store(false, Ordering::Relaxed);
        let met = self.gates.all().skip(1).all(|stripe| take(stripe).is_some());
        if !met {
            // Release: as in `bias_shared`.
            self.biased.store(true, Ordering::Release);
        }
        met
    }
}

/// This thread's stripe, and never 0.
fn my_stripe() -> u64 {
    my_index(stripe_count()) as u64 + 1
}

impl<T> Drop for BiasedReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.came != 0 {
            let met = self.lock.met.load(Ordering::Relaxed);
            if met & LAST != self.came {
                self.lock.in_the_way(met);
            }
        }
    }
}

impl<T> Deref for BiasedReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_shared` is the lock proper, which keeps writers out, or a stripe, and the bias was seen after that was got
        // (`by_stripe`): a writer takes the bias away, and waits for us in that stripe (`unbias`), before there is his guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for BiasedWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_had` is the lock proper, and if there was a bias we have met every stripe since we took it away (`unbias`).
        // Who gets a stripe now finds none: to give one, a reader shares the lock proper.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` says that we do not share it either.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> std::fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BiasedRwLock").field("biased", &self.biased).finish_non_exhaustive()
    }
}

/// The lock proper, or a stripe. It guards no value of its own, so that a panic spoils nothing.
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

    /// Readers who are in the lock at the same time, `times` times over.
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
    fn readers_share_and_a_writer_does_not() {
        for biased in [false, true] {
            let lock = BiasedRwLock::new(1);
            if biased {
                lock.bias();
            }
            let (first, second) = (lock.read(), lock.try_read().expect("it is shared"));
            assert_eq!((*first, *second), (1, 1));
            assert!(lock.try_write().is_none());
            assert_eq!(is_biased(&lock), biased && stripe_count() > 1, "who could not get it changes nothing");
            assert_eq!(*lock.try_read().expect("nor keeps others out"), 1);
            drop((first, second));
            *lock.write() += 1;
            assert!(!is_biased(&lock));
            let mut had = lock.try_write().expect("nobody has it");
            *had += 1;
            assert!(lock.try_read().is_none() && lock.try_write().is_none());
            drop(had);
            assert_eq!(*lock.read(), 3);
        }
    }

    #[test]
    fn one_reader_after_the_other_is_no_reason_for_a_bias() {
        let lock = BiasedRwLock::new(0);
        for _ in 0..10 * BIAS_AFTER * stripe_count() as u64 {
            thread::scope(|scope| scope.spawn(|| drop(lock.read())).join().expect("no panic"));
            drop(lock.read());
        }
        assert!(!is_biased(&lock) && !lock.gates.is_inflated());
    }

    #[test]
    fn readers_who_meet_get_a_bias_again_after_each_writer() {
        let lock = BiasedRwLock::new(0);
        // Of two that meet one at least notices, unless both have the same stripe.
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
    fn a_writer_waits_for_a_reader_in_a_stripe() {
        let lock = BiasedRwLock::new(0);
        lock.bias();
        let (entered, inside) = mpsc::channel();
        thread::scope(|scope| {
            let shared = lock.read();
            scope.spawn(|| {
                entered.send(()).expect("somebody listens");
                *lock.write() = 1;
            });
            inside.recv().expect("it is about to write");
            // It may not have come so far yet; then this shows less, and nothing wrong.
            (0..100).for_each(|_| thread::yield_now());
            assert_eq!(*shared, 0);
            drop(shared);
        });
        assert_eq!(*lock.read(), 1);
    }

    #[test]
    fn a_panic_of_a_writer_leaves_it_usable() {
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

    /// Two words that a writer changes one after the other, beside readers that give the bias again and again.
    #[test]
    fn nobody_sees_a_half_of_a_change() {
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
