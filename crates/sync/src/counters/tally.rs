//! The parts of striped values: [`Counter`], a count in two monotonic halves, and [`Stamp`], a
//! time.

use crate::facade::{AtomicI64, AtomicU64, Ordering};
use crate::tuning::COUNTER_COLLECTIONS;

/// A count that goes up and down, as two numbers that only grow.
///
/// Each stripe of a [`Striped`](crate::Striped) holds one, alone or as a field of a larger type.
/// The two halves make a sum over stripes exact. If two collections, one after the other, find the
/// same totals, then no half of any stripe has changed in between, and the sum was the count at an
/// instant between them. (A single number for each stripe might go up and down again unnoticed.)
/// Protocol 7.
#[derive(Debug, Default)]
pub struct Counter {
    up: AtomicU64,
    down: AtomicU64,
}

/// The result of [`Counter::sum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// All additions less all subtractions.
    pub value: u64,
    /// Whether `value` was the count at one instant of the call. If not, the count kept changing.
    /// Then `value` is at least the minimum of the count during the call. It exceeds the maximum by
    /// at most the additions during one collection, the one with the fewest.
    pub exact: bool,
}

impl Counter {
    /// A count of `n`, as the inline part of a [`Striped`](crate::Striped).
    #[must_use]
    pub fn new(n: u64) -> Self {
        Self { up: AtomicU64::new(n), down: AtomicU64::new(0) }
    }

    /// Adds `n`. Returns whether it contended with another thread: a hint for
    /// [`note_contention`](crate::Striped::note_contention).
    #[inline]
    #[must_use = "contention should be reported to the striped value"]
    pub fn add(&self, n: u64) -> bool {
        grow(&self.up, n)
    }

    /// Subtracts `n`, which has been added before, to any stripe. Returns as [`Counter::add`].
    #[inline]
    #[must_use = "contention should be reported to the striped value"]
    pub fn sub(&self, n: u64) -> bool {
        grow(&self.down, n)
    }

    /// The sum of all additions to this part, for work that is done once in so many of them.
    #[inline]
    #[must_use]
    pub fn added(&self) -> u64 {
        // Relaxed: a hint.
        self.up.load(Ordering::Relaxed)
    }

    /// How often this part has changed, up or down: for work that is done once in so many changes.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        // Relaxed: a hint.
        self.up.load(Ordering::Relaxed).wrapping_add(self.down.load(Ordering::Relaxed))
    }

    /// About the sum over `parts`, from one load of each: for statistics. Never below zero.
    #[inline]
    #[must_use]
    pub fn estimate<'a>(parts: impl Iterator<Item = &'a Counter>) -> u64 {
        // Relaxed: an estimate, ordered with nothing.
        let difference = parts.fold(0_i64, |sum, c| {
            let (down, up) = (c.down.load(Ordering::Relaxed), c.up.load(Ordering::Relaxed));
            sum.wrapping_add(up.wrapping_sub(down) as i64)
        });
        difference.max(0) as u64
    }

    /// The sum over the parts that `parts` returns, each time that it is called: `||
    /// striped.all().map(|t| &t.links)`.
    ///
    /// Writes nothing and does not wait. The number of collections is bounded, and is two if
    /// nothing changes.
    #[must_use]
    pub fn sum<'a, I: Iterator<Item = &'a Counter>>(parts: impl Fn() -> I) -> Sum {
        let collect = || {
            // All `down` halves before all `up` halves: each subtraction comes after its addition,
            // which is then seen. So the difference is never below zero, nor below the minimum of
            // the count. SeqCst here and in `grow`: readers agree on the order of changes in
            // different stripes.
            let down = parts().fold(0_u64, |sum, c| sum.wrapping_add(c.down.load(Ordering::SeqCst)));
            let up = parts().fold(0_u64, |sum, c| sum.wrapping_add(c.up.load(Ordering::SeqCst)));
            (up, down)
        };
        let difference = |(up, down): (u64, u64)| up.wrapping_sub(down);
        let mut last = collect();
        let mut least = difference(last);
        for _ in 1..COUNTER_COLLECTIONS {
            let now = collect();
            if now == last {
                return Sum { value: difference(now), exact: true };
            }
            last = now;
            least = least.min(difference(now));
        }
        Sum { value: least, exact: false }
    }
}

/// Adds without waiting. Returns whether a compare-and-swap failed.
#[inline]
fn grow(half: &AtomicU64, n: u64) -> bool {
    let old = half.load(Ordering::Relaxed);
    if half.compare_exchange(old, old.wrapping_add(n), Ordering::SeqCst, Ordering::Relaxed).is_ok() {
        return false;
    }
    half.fetch_add(n, Ordering::SeqCst);
    true
}

/// A time in nanoseconds since 1970 that only grows: the latest of all stamps.
///
/// Readers merge the parts with [`Stamp::latest`]. To set a time explicitly, the user keeps a
/// generation beside it (protocol 7).
#[derive(Debug)]
pub struct Stamp {
    ns: AtomicI64,
}

impl Stamp {
    /// Earlier than every time: no stamp yet.
    pub const NEVER: i64 = i64::MIN;

    /// A first stamp of `ns`.
    #[must_use]
    pub fn new(ns: i64) -> Self {
        Self { ns: AtomicI64::new(ns) }
    }

    /// Raises the time to `ns`, unless it is as late already (then nothing is written). Returns
    /// whether it contended with another thread: a hint for
    /// [`note_contention`](crate::Striped::note_contention).
    #[inline]
    #[must_use = "contention should be reported to the striped value"]
    pub fn raise(&self, ns: i64) -> bool {
        let mut contended = false;
        let mut old = self.ns.load(Ordering::Relaxed);
        // Terminates: each failure means that the time has grown.
        while old < ns {
            // Release: a thread that sees the time sees the change that was stamped.
            match self.ns.compare_exchange(old, ns, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => {
                    contended = true;
                    old = now;
                }
            }
        }
        contended
    }

    /// The time, or [`Stamp::NEVER`].
    #[inline]
    #[must_use]
    pub fn get(&self) -> i64 {
        self.ns.load(Ordering::Acquire)
    }

    /// The latest of several, [`Stamp::NEVER`] for none:
    /// `Stamp::latest(striped.all().map(|t| &t.mtime))`.
    #[must_use]
    pub fn latest<'a>(parts: impl Iterator<Item = &'a Stamp>) -> i64 {
        parts.map(Stamp::get).max().unwrap_or(Self::NEVER)
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::new(Self::NEVER)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
