//! Every tuned constant of this crate, with the reason for its value.
//!
//! The values are choices, made on small machines (2 to 16 cores) for the reason beside each. They
//! were not measured one by one, so half or twice a value may do as well. A constant that says what
//! a structure *is* (bits of a state word, the size of a cache line) is in the file of that
//! structure. Under the model checker the thresholds are as small as they can be, so that a model
//! reaches both sides.
#![cfg_attr(loom, allow(dead_code, reason = "the models do without the reclaimer's policy"))]

use std::time::Duration;

// Reclamation (`reclaim`). A grace period costs every reading thread a cache miss or two, some
// hundred nanoseconds each. So a period begins only when several bags wait, and a thread that only
// reads does not look often. On the other side, retired memory is cold when it is freed late, and
// reused memory is not.

/// Objects in a full bag.
pub(crate) const BAG: usize = if cfg!(loom) { 2 } else { 20 };
/// A bag of this many bytes is flushed before it is full.
pub(crate) const HEAVY_BYTES: usize = 64 << 10;
/// After so many full bags a thread runs the reclaimer.
pub(crate) const RUN_BAGS: u32 = 4;
/// A run frees so many bags: twice as many as were filled since the last run, so that the list gets
/// shorter.
pub(crate) const FREE_BATCH: usize = 2 * RUN_BAGS as usize;
/// If very many bags wait, a run frees one in so many of them instead. So a list that became long
/// while a reader stalled shrinks by a sixteenth with each run, and no single run frees all of it.
pub(crate) const FREE_FRACTION: usize = 16;
/// So many waiting bags are worth a grace period.
pub(crate) const ENOUGH_BAGS: usize = 8;
/// A thread that retires nothing runs the reclaimer after so many outermost guards, while something
/// of its own waits.
pub(crate) const READS: u32 = 512;
/// And after so many while nothing of its own waits, for the sake of other threads.
pub(crate) const IDLE_READS: u32 = 2048;
/// One run in so many visits another thread's list. So does each run of a thread that has nothing
/// waiting.
pub(crate) const VISIT: u32 = 16;
/// A visitor leaves what expired in so many last grace periods to its owner, if there is one.
pub(crate) const FRESH_PERIODS: u64 = 100;
/// Retire lists that a thread can own. Further threads share one list.
pub(crate) const RETIRE_LISTS: usize = if cfg!(loom) { 1 } else { 64 };
/// `collect` returns after so many rounds in a row in which nothing of this thread's was freed and
/// no other thread was freeing it: some thread reads.
pub(crate) const COLLECT_ROUNDS: usize = 32;
/// Rounds besides. Objects that own objects are freed one generation after the other. And while
/// other threads free objects that were retired here, the contents of a file may take them long.
pub(crate) const COLLECT_MORE: usize = 100_000;
/// Back-pressure yields so many times before it sleeps,
pub(crate) const PRESSURE_YIELDS: u32 = 64;
/// for so long each time.
pub(crate) const PRESSURE_SLEEP: Duration = Duration::from_micros(100);

// Locks (`seq_rw_lock`, `fair_lock`, `biased_rw_lock`, `lock_stats`). Waiting by spinning is
// cheaper than a context switch only while it is shorter than one. Barging keeps a lock busy while
// a woken thread gets ready, and a bound on it keeps the head of the queue from starving.

/// How often [`SeqRwLock::read`](crate::SeqRwLock::read) is optimistic before it blocks.
pub const OPTIMISTIC_TRIES: usize = if cfg!(loom) { 1 } else { 4 };

/// How often a reader that finds a writer at work looks again before it yields the CPU.
pub(crate) const READER_SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

/// How many newcomers may pass the head of the queue.
pub(crate) const BARGES: u32 = if cfg!(loom) { 1 } else { 16 };

/// Condition variables of a fair lock, used one after the other, so that a wake-up for the head of
/// the queue wakes few other threads.
pub(crate) const WAKE_GROUPS: u64 = if cfg!(loom) { 2 } else { 8 };

/// Stripes of the lock statistics, 128 bytes each: enough for the threads of a large machine, so
/// that counting causes little contention. They exist only with the feature `lock-stats`.
#[cfg(all(feature = "lock-stats", not(loom)))]
pub(crate) const LOCK_STAT_STRIPES: usize = 64;

// Adaptive structures (`striped`, `biased_rw_lock`, `single_flight`, `tally`, `weak`). A value
// stays on one cache line until threads were seen to contend for it several times, since a single
// meeting is chance. By estimate, the contention until then costs a small multiple of what the
// change costs.

/// How much contention is reported before a value is striped.
pub(crate) const STRIPE_AFTER: u64 = if cfg!(loom) { 1 } else { 8 };

/// How often readers contend, for each stripe, before the lock is biased.
pub(crate) const BIAS_AFTER: u64 = if cfg!(loom) { 1 } else { 8 };

/// Tables of running calls, so that different keys seldom contend. A call costs far more than the
/// lock of its table.
pub(crate) const CALL_TABLES: usize = if cfg!(loom) { 1 } else { 16 };

/// The number of classes of keys whose departures from a cache are told apart. A load that meets a
/// departure of its class asks once more under a lock, so the more classes the fewer second
/// requests. 8 KiB for each tree.
pub(crate) const DEPARTURE_CLASSES: usize = if cfg!(loom) { 1 } else { 1024 };

/// How often a sum collects the stripes before it stops trying to find two collections equal.
pub(crate) const COUNTER_COLLECTIONS: usize = if cfg!(loom) { 2 } else { 8 };

/// Deaths of counted objects are counted by address, in so many stripes.
pub(crate) const DEATH_STRIPES: usize = if cfg!(loom) { 2 } else { 512 };

// Hash tables (`split_table`). Most directories are small, so a short list has no buckets.
// Contention requests buckets before the number of elements does. An empty table without contention
// frees them, more slowly, so that it does not grow and shrink all the time. Counting is sampled,
// so that the count is not itself a contended cache line.

/// A list of so few elements has no buckets unless there is contention.
pub(crate) const LIST_MAX: usize = 8;

/// One call makes a table so many times larger at most, as a power of two: the length that it is
/// given may be wrong.
pub(crate) const GROWTH_BITS: u32 = 4;

/// So many reports of contention request more buckets.
pub(crate) const CONTENDED_AFTER: usize = if cfg!(loom) { 1 } else { 8 };

/// The first contention requests `2^CONTENDED_BITS` buckets, more of it requests more.
pub(crate) const CONTENDED_BITS: u32 = if cfg!(loom) { 1 } else { 7 };

/// So many samples of an empty table without contention free the buckets that contention requested.
pub(crate) const DECAY_SAMPLES: usize = if cfg!(loom) { 1 } else { 64 };

/// So many neighbouring bucket heads are linked together.
pub(crate) const LINKED_TOGETHER: usize = if cfg!(loom) { 2 } else { 16 };

/// One in so many calls is a sample.
pub(crate) const SAMPLE_EVERY: u32 = 64;

/// Cache lines of an element that a look-up prefetches: that of the name, and two of the object.
pub(crate) const PREFETCHED: usize = 3;

/// A resized table of up to so many buckets, as a power of two, indexes all its elements at once,
/// one walk of the list. In a larger table that walk would be a long pause for one thread, and most
/// elements are indexed when further bucket heads are linked.
pub(crate) const INDEX_AT_ONCE_BITS: u32 = 10;

/// So many buckets, as a power of two, share a group of 16 slots in the index. With one to two
/// elements for each bucket, 8 buckets have 8 to 16 elements, so a group is mostly not full.
pub(crate) const INDEX_GROUP_BITS: u32 = 3;

/// A place in the index counts units of this size, as a power of two: cache lines. With the 26 bits
/// of a slot that is a reach of 4 GiB. Elements further away are not indexed.
pub(crate) const INDEX_PLACE_BITS: u32 = if cfg!(loom) { 3 } else { 6 };
