//! The concurrency primitives of pandofs. This is the only crate of the file system's core with
//! `unsafe` code: what it exports is safe.
//!
//! Each primitive has a file of its own. A folder is a floor, and imports point down
//! (`tests/floors.rs`). From the top:
//!
//! * `hash_table`: [`HashTable`]: a `SplitTable` that counts its elements, for inodes.
//! * `split_table`: [`SplitTable`], [`IndexAddress`]: a hash table whose order never changes, for
//!   directories.
//! * `op`: [`Op`], [`OpCell`], [`Life`]: several words that change at one instant; create against
//!   rmdir.
//! * `locks`:
//!   * `name_locks`: [`NameLocks`]: striped locks for (directory, name). A thread that changes a
//!     name holds its lock.
//!   * `lock_granularity`: [`LockGranularity`]: one lock for all names of a directory until threads
//!     contend, then one for each name.
//!   * `revocable`: [`Revocable`]: the result of a check, valid until it is revoked. A thread that
//!     relies on it writes nothing.
//!   * `seq_rw_lock`, `fair_lock`: [`SeqRwLock`]: optimistic readers that write nothing, and
//!     blocking readers that do not starve.
//!   * `biased_rw_lock`: [`BiasedRwLock`]: a read-write lock whose readers write only to a cache
//!     line of their core.
//!   * `class_mutex`, `lock_order`, `lock_stats`: [`ClassMutex`], [`lock_order`], [`lock_counts`]:
//!     the order of locks, asserted in debug builds, and how often threads acquire them and wait
//!     for them.
//!   * `departures`: [`Departures`]: which keys have left a cache since a moment.
//!   * `single_flight`: [`SingleFlight`]: concurrent requests for one key are made once.
//!   * `wait_group`: [`WaitGroup`]: threads at work, and threads that wait until none is.
//!   * `position`: [`Position`]: an open file's position. A seek takes no lock.
//! * `refcount`:
//!   * `lock_ref`: `LockRef`: the reference count itself, one word that is dead at zero.
//!   * `counted`: [`Counted`], [`Shared`], [`AtomicCounted`]: reference-counted objects that a
//!     thread may read under a guard without counting.
//!   * `weak`: [`Weak`]: a reference that does not keep its object alive, for caches.
//!   * `percpu_ref`: [`PerCpuRefs`]: per-CPU reference counts, for an object under contention.
//!   * `versioned_pair`: [`VersionedPair`]: a word and a record that belongs to it, read together
//!     without a lock.
//! * `counters`:
//!   * `striped`, `tally`: [`Striped`], [`Counter`], [`Stamp`]: exact counts and latest times,
//!     striped over the cores once they contend.
//!   * `quota`: [`Quota`]: a limit that is exact, and striped under contention.
//! * `reclaim`: [`Guard`], [`pin`]: readers that take no lock, and when retired memory is freed.
//! * `allocator`: [`BlockBox`], [`BlockBytes`], [`release_free_memory()`]: memory that one thread
//!   allocates and another frees, from mimalloc.
//! * `ring`: [`ring`](ring::ring): the records of a trace, from one thread to another. The writer
//!   never blocks.
//! * `base`: [`Padded`], [`OwnLine`], [`siphash13`], [`stripe_hint()`]: cache
//!   lines, prefetch, a keyed hash, the choice of a stripe.
//! * `facade`, `tuning`: [`lock`]: `std` or the model checker; every tuned constant.
//!
//! # Models
//!
//! `facade` chooses `std` or the model checker [loom](https://docs.rs/loom)
//! (`RUSTFLAGS="--cfg loom"`). The models of `x.rs` are in `x/loom_model.rs`, and long tests are in
//! `x/tests.rs`. Three things have no model: `allocator`, the policy of `reclaim` (when a thread
//! frees), and the mutexes, which loom brings along.

mod allocator;
mod base;
mod counters;
mod facade;
mod hash_table;
mod locks;
pub mod op;
mod reclaim;
mod refcount;
pub mod ring;
mod split_table;
mod tuning;

pub use allocator::{BlockBox, BlockBytes, release_free_memory};
pub use base::{
    padded::{OwnLine, Padded},
    prefetch::prefetch,
    siphash::siphash13,
    stripe_hint::stripe_hint,
};
pub use counters::{
    quota::{Quota, QuotaFull},
    striped::Striped,
    tally::{Counter, Stamp, Sum},
};
pub use facade::lock;
pub use hash_table::{Exists, HashTable};
pub use locks::{
    biased_rw_lock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard},
    class_mutex::{ClassGuard, ClassMutex},
    departures::{Departures, Leaving, Moment},
    lock_granularity::LockGranularity,
    lock_order,
    lock_stats::{LockCount, counted, lock_counted, lock_counts},
    name_locks::{MAX_NAMES, NameGuard, NameKey, NameLocks},
    position::{Io, Position},
    revocable::{Revocable, Revocation},
    seq_rw_lock::{Mode, SeqGuard, SeqRwLock, WriteGuard},
    single_flight::{Claim, SingleFlight},
    wait_group::{Member, WaitGroup},
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
