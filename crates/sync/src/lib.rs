//! The concurrency primitives of pandofs, each in its own file. What threads share is model-checked by a test beside it, but
//! for `blocks` and the policy of `reclaim`, which the model checker does without, and for mutexes, which it brings along.
//!
//! | primitive | file | what it is for |
//! | --- | --- | --- |
//! | [`Guard`], [`pin`] | `reclaim` | readers that take no lock; freed memory waits for them |
//! | [`Counted`], [`Shared`], [`AtomicCounted`] | `counted` | reference-counted objects that a guard may read without counting |
//! | [`Weak`] | `weak` | what a cache remembers of a counted object, which it does not keep alive |
//! | `LockRef` | `lock_ref` | a count in one word, dead at zero: that of what is counted |
//! | [`PerCpuRefs`] | `proxies` | references to a hot object, counted on a line of each core |
//! | [`NameLocks`] | `name_locks` | locks for (directory, name), striped; held by whoever changes a name |
//! | [`LockGranularity`] | `lock_grain` | one lock for the names of a directory until threads contend, then one for each |
//! | [`Revocable`] | `revocable` | what is checked under a name's lock, and taken back: those who check write nothing |
//! | [`VersionedPair`] | `described` | a word and a record that goes with it, read together without a lock |
//! | [`SingleFlight`] | `flights` | what many ask at the same time is asked once |
//! | [`lock_order`], [`ClassMutex`] | `lock_order`, `class_mutex` | the order of locks, asserted in debug builds; a mutex with a place in it |
//! | [`lock`] | `facade` | a plain mutex, poisoned or not: one whose data a panic cannot leave half changed |
//! | [`lock_counts`] | `lock_stats` | how often locks are taken, and waited for |
//! | [`SeqRwLock`] | `seq_rw_lock`, `fair_lock` | optimistic readers that write nothing, and blocking ones that do not starve |
//! | [`BiasedRwLock`] | `biased_rw_lock` | readers who are many write to a line of their core only |
//! | [`Position`] | `position` | an open file's position: seeking takes no lock |
//! | [`Striped`] | `striped` | a value that is spread over the cores once they contend for it |
//! | [`Padded`], [`OwnLine`] | `padded` | a value on cache lines of its own |
//! | [`Counter`], [`Stamp`] | `tally` | what striped values are made of: exact counts, latest times |
//! | [`Quota`] | `quota` | a limit that is exact, and striped under contention |
//! | [`Op`], [`OpCell`], [`Life`] | `op` | many words that change at one instant; create against rmdir |
//! | [`BlockBox`], [`BlockBytes`] | `blocks` | memory that threads make and free for one another, and that goes back to the system |
//! | [`ring`](ring::ring) | `ring` | records from one thread to another that never make the writer wait: tracing |
//! | [`prefetch()`] | `prefetch` | memory asked for before it is wanted |
//! | [`siphash13`] | `siphash` | the keyed hash that such tables want |
//! | [`SplitTable`], [`IndexAddress`] | `split_table` | the hash table that is also an order which never changes: directories, inodes |
//!
//! This is the only crate of the file system's core with `unsafe` code: what it exports is safe. Inside, `std` or the
//! model checker [loom](https://docs.rs/loom) is chosen by the `facade` module (`RUSTFLAGS="--cfg loom"`).

mod allocator;
mod base;
mod counters;
mod facade;
mod locks;
pub mod op;
mod reclaim;
mod refcount;
pub mod ring;
mod split_table;
mod tuning;

pub use allocator::{BlockBox, BlockBytes};
pub use base::{
    padded::{OwnLine, Padded},
    prefetch::prefetch,
    siphash::siphash13,
};
pub use counters::{
    quota::{Quota, QuotaFull},
    striped::Striped,
    tally::{Counter, Stamp, Sum},
};
pub use facade::lock;
pub use locks::{
    biased_rw_lock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard},
    class_mutex::{ClassGuard, ClassMutex},
    lock_granularity::LockGranularity,
    lock_order,
    lock_stats::{LockCount, counted, lock_counted, lock_counts},
    name_locks::{MAX_NAMES, NameGuard, NameKey, NameLocks},
    position::{Io, Position},
    revocable::{Revocable, Revocation},
    seq_rw_lock::{Mode, SeqGuard, SeqRwLock, WriteGuard},
    single_flight::SingleFlight,
};
pub use op::{Creation, Enlisted, Life, LifeState, NotRemovable, Op, OpCell, OpState, Operation, Peek, Removal};
pub use reclaim::{Guard, assert_unpinned, back_pressure, collect, collect_all, flush_retired, pin, retired_bytes};
pub use refcount::{
    counted::{AtomicCounted, Counted, Object, Shared},
    percpu_ref::{CpuRef, PerCpuRefs},
    versioned_pair::VersionedPair,
    weak::Weak,
};
pub use split_table::{Detached, IndexAddress, Inserted, Node, Rejected, Removed, SplitTable};
pub use tuning::OPTIMISTIC_TRIES;

/// A small number that differs between threads that run at the same time, for choosing a stripe.
///
/// Threads get consecutive numbers as they first ask, so up to `n` of them spread evenly over `n` stripes.
#[inline]
#[must_use]
pub fn stripe_hint() -> usize {
    #[cfg(loom)]
    return facade::thread_number();
    #[cfg(not(loom))]
    {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        std::thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        MINE.try_with(|n| *n).unwrap_or(0)
    }
}
