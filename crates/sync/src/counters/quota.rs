//! `Quota`: a limit on what many threads use, exact at the limit.
//!
//! The unused part of the limit is *credit*. Without contention it is one word. With contention,
//! stripes hold batches of credit, so that charging and releasing write a cache line of the
//! thread's own (P2). An empty stripe fetches a batch, which is a fraction of the credit in the
//! inline word. So batches get smaller near the limit.
//!
//! **Refusing.** ENOSPC and EDQUOT are returned only if the quota was full at an instant of the
//! call (protocol 7). To visit one stripe after the other is not enough. Credit may be released to
//! a stripe already visited, while other credit is charged from a stripe not yet visited. Then it
//! is seen nowhere, although there was enough all the time. So a thread that is about to refuse
//! *closes* every stripe and takes its credit. A closed stripe can be released to, but not charged
//! from. From the instant when the last stripe is closed, nothing can be charged. A second visit
//! takes what has been released until then, and perhaps more. If all of it is too little, then it
//! was too little at that instant, and the refusal is right. Then the stripes are opened again.
//!
//! A mutex covers every move of credit between stripes, since that credit is in no stripe
//! meanwhile. It is held for a few visits to each stripe, and never while a thread waits for
//! anything. So charging is allowed under a reclamation guard and under any lock.

use crate::{
    counters::striped::Striped,
    facade::{self, AtomicU64, Mutex, Ordering},
};

/// Set in a stripe that cannot be charged from. The rest of the word is the credit.
const CLOSED: u64 = 1 << 63;

/// The word of a stripe: credit, and [`CLOSED`].
#[derive(Debug, Default)]
struct Credit(AtomicU64);

/// The result of an attempt to charge from one stripe.
#[must_use]
enum Taken {
    /// Charged.
    Yes,
    /// Not enough credit here, or closed.
    No,
}

impl Credit {
    /// Takes `n`, if the stripe is open and has as much. Sets `contended` if a compare-and-swap
    /// fails.
    #[inline]
    fn take(&self, n: u64, contended: &mut bool) -> Taken {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 || word < n {
                return Taken::No;
            }
            // SeqCst, here and below: all threads agree on one order of charges and releases in
            // different stripes.
            match self.0.compare_exchange(word, word - n, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Taken::Yes,
                Err(now) => {
                    *contended = true;
                    word = now;
                }
            }
        }
    }

    /// Takes all credit and leaves the stripe closed.
    fn close(&self) -> u64 {
        self.0.swap(CLOSED, Ordering::SeqCst) & !CLOSED
    }

    fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    fn put(&self, n: u64) {
        self.0.fetch_add(n, Ordering::SeqCst);
    }
}

/// A charge that would have exceeded the limit. The caller returns ENOSPC or EDQUOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaFull;

impl std::fmt::Display for QuotaFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("quota exceeded")
    }
}

impl std::error::Error for QuotaFull {}

/// A limit on what many threads use.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    credit: Striped<Credit>,
    /// Held by a thread that moves credit between stripes, has closed some, or makes them.
    moves: Mutex<()>,
}

impl Quota {
    /// The greatest limit. A greater one is reduced to it.
    pub(crate) const MAX_LIMIT: u64 = 1 << 62;

    /// A quota of `limit` units, all free.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let limit = limit.min(Self::MAX_LIMIT);
        Self { limit, credit: Striped::new(Credit(AtomicU64::new(limit))), moves: Mutex::new(()) }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Charges `n` units. Usually one compare-and-swap on a word of this thread's own.
    ///
    /// # Errors
    /// [`QuotaFull`], and nothing is charged, if fewer than `n` units were free at an instant of
    /// the call.
    #[inline]
    pub fn charge(&self, n: u64) -> Result<(), QuotaFull> {
        let mut contended = false;
        let taken = self.credit.mine().take(n, &mut contended);
        if contended {
            self.note_contention();
        }
        match taken {
            Taken::Yes => Ok(()),
            Taken::No => self.charge_slowly(n),
        }
    }

    /// Releases `n` units that were charged. Does not wait.
    #[inline]
    pub fn release(&self, n: u64) {
        let part = &self.credit.mine().0;
        let old = part.load(Ordering::Relaxed);
        debug_assert!((old & !CLOSED) + n <= self.limit, "more was released than charged");
        if part.compare_exchange(old, old + n, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            part.fetch_add(n, Ordering::SeqCst);
            self.note_contention();
        }
    }

    /// The units charged: exact if nothing is charged or released meanwhile, and never more than
    /// the limit.
    #[must_use]
    pub fn used(&self) -> u64 {
        let _moves = facade::lock(&self.moves);
        let free: u64 = self.credit.all().map(|part| part.0.load(Ordering::SeqCst) & !CLOSED).sum();
        self.limit.saturating_sub(free)
    }

    /// Makes the stripes now, as contention would.
    pub fn spread(&self) {
        let _moves = facade::lock(&self.moves);
        self.credit.inflate();
    }

    #[cold]
    fn note_contention(&self) {
        // Under the mutex, since a thread that closes stripes must know all of them. If it is
        // taken, a later report will do.
        if let Some(_moves) = facade::try_lock(&self.moves) {
            self.credit.note_contention();
        }
    }

    /// Charges when this thread's stripe has fewer than `n` units: from the inline word, with a
    /// batch, or from all.
    #[cold]
    fn charge_slowly(&self, n: u64) -> Result<(), QuotaFull> {
        let _moves = facade::lock(&self.moves);
        let inline = self.credit.inline();
        let mut contended = false;
        if let Some(mine) = self.credit.stripe() {
            // While this thread waited for the mutex, another one may have released here.
            if let Taken::Yes = mine.take(n, &mut contended) {
                return Ok(());
            }
            let stripes = self.credit.all().count() as u64 - 1;
            let left = inline.0.load(Ordering::Relaxed).saturating_sub(n);
            // A fraction that shrinks with the credit that is left: stripes never hold most of it,
            // and near the limit they hold nothing.
            let batch = left / (4 * stripes);
            if let Taken::Yes = inline.take(n + batch, &mut contended) {
                mine.put(batch);
                return Ok(());
            }
        }
        if let Taken::Yes = inline.take(n, &mut contended) {
            return Ok(());
        }
        self.collect(n)
    }

    /// Charges from all credit, or refuses. The caller holds `moves`.
    fn collect(&self, n: u64) -> Result<(), QuotaFull> {
        let closed: u64 = self.credit.all().map(Credit::close).sum();
        // All stripes are closed now: this is the instant of a refusal. Credit released until then
        // is taken too.
        let free = closed + self.credit.all().map(Credit::close).sum::<u64>();
        let result = if free >= n { Ok(free - n) } else { Err(free) };
        let (Ok(rest) | Err(rest)) = result;
        self.credit.inline().put(rest);
        self.credit.all().for_each(Credit::open);
        result.map(drop).map_err(|_| QuotaFull)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64 as Count, Ordering::SeqCst};

    #[test]
    fn charges_are_exact_at_the_limit() {
        let quota = Quota::new(10);
        assert_eq!(quota.charge(11), Err(QuotaFull));
        assert_eq!(quota.charge(10), Ok(()));
        assert_eq!((quota.charge(1), quota.charge(0), quota.used()), (Err(QuotaFull), Ok(()), 10));
        quota.release(3);
        assert_eq!((quota.charge(4), quota.charge(3), quota.used()), (Err(QuotaFull), Ok(()), 10));
        let quota = Quota::new(u64::MAX);
        assert_eq!((quota.limit(), quota.charge(u64::MAX)), (Quota::MAX_LIMIT, Err(QuotaFull)));
        assert_eq!((quota.charge(Quota::MAX_LIMIT), quota.charge(1)), (Ok(()), Err(QuotaFull)));
    }

    #[test]
    fn charges_are_exact_at_the_limit_when_striped() {
        let quota = Quota::new(1000);
        quota.credit.inflate();
        let charged = Count::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while quota.charge(3).is_ok() {
                        charged.fetch_add(3, SeqCst);
                    }
                    while quota.charge(1).is_ok() {
                        charged.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!((charged.load(SeqCst), quota.used()), (1000, 1000));
        assert!(quota.credit.all().all(|part| part.0.load(SeqCst) == 0), "no stripe stays closed");
        quota.release(1000);
        assert_eq!((quota.charge(1000), quota.charge(1)), (Ok(()), Err(QuotaFull)));
    }

    /// Each thread holds one unit at most, and there is one for each, so no thread is ever refused.
    #[test]
    fn no_refusal_unless_full() {
        let quota = Quota::new(4);
        quota.credit.inflate();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        quota.charge(1).expect("never full");
                        quota.release(1);
                    }
                });
            }
        });
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn charges_of_mixed_sizes_never_exceed_the_limit() {
        let (quota, used) = (Quota::new(500), Count::new(0));
        std::thread::scope(|s| {
            for t in 1..5_u64 {
                let (quota, used) = (&quota, &used);
                s.spawn(move || {
                    for i in 0..10_000 {
                        let n = (i * t) % 173;
                        if quota.charge(n).is_ok() {
                            let now = used.fetch_add(n, SeqCst) + n;
                            assert!(now <= 500, "{now} charged");
                            assert!(quota.used() <= 500);
                            used.fetch_sub(n, SeqCst);
                            quota.release(n);
                        }
                    }
                });
            }
        });
        assert_eq!(quota.used(), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_model;
