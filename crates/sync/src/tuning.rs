//! Every tuned constant of this crate, with the reason for its value.
//!
//! The values were chosen on small machines (2 to 16 cores) with the benchmarks of `pando bench`. Most
//! of them are flat: half or twice the value costs little. A constant that says what a structure *is*
//! (bits of a state word, the size of a cache line) stays in the file of that structure. Under the
//! model checker the thresholds are as small as they can be, so that a model reaches both sides.
#![cfg_attr(loom, allow(dead_code, reason = "the models do without the reclaimer's policy"))]

use std::time::Duration;

// Reclamation (`reclaim`). A grace period costs every reading thread a cache miss or two, some hundred
// nanoseconds each. So a period begins only when several bags wait, and a thread that only reads does
// not look often. On the other side, retired memory is cold when it is freed late, and reused memory is
// not. The batches are as large as what the magazines of `blocks` have room for: memory that is freed
// is then allocated again by the same core, without the depot.

/// Objects in a full bag.
pub(crate) const BAG: usize = if cfg!(loom) { 2 } else { 20 };
/// A bag of this many bytes is flushed before it is full.
pub(crate) const HEAVY_BYTES: usize = 64 << 10;
/// After so many full bags a thread runs the reclaimer.
pub(crate) const RUN_BAGS: u32 = 4;
/// A run frees so many bags, so that what is freed fits into the magazines. It frees more if very many
/// bags wait.
pub(crate) const FREE_BATCH: usize = 2 * RUN_BAGS as usize;
/// So many waiting bags are worth a grace period.
pub(crate) const ENOUGH_BAGS: usize = 8;
/// A thread that retires nothing runs the reclaimer after so many outermost guards, while something of
/// its own waits.
pub(crate) const READS: u32 = 512;
/// And after so many while nothing of its own waits, for the sake of other threads.
pub(crate) const IDLE_READS: u32 = 2048;
/// One run in so many visits another thread's list. So does each run of a thread of whose own nothing
/// waits.
pub(crate) const VISIT: u32 = 16;
/// A visitor leaves what expired in so many last grace periods to its owner, if there is one.
pub(crate) const FRESH_PERIODS: u64 = 100;
/// Retire lists that a thread can own. Further threads share one list.
pub(crate) const RETIRE_LISTS: usize = if cfg!(loom) { 1 } else { 64 };
/// `collect` gives up after so many rounds in a row in which nothing of this thread's was freed and no
/// other thread was freeing it: some thread reads.
pub(crate) const COLLECT_ROUNDS: usize = 32;
/// Rounds besides. Objects that own objects are freed one generation after the other. And while other
/// threads free what was retired here, the contents of a file may take them long.
pub(crate) const COLLECT_MORE: usize = 100_000;
/// Back-pressure yields so many times before it sleeps,
pub(crate) const PRESSURE_YIELDS: u32 = 64;
/// for so long each time.
pub(crate) const PRESSURE_SLEEP: Duration = Duration::from_micros(100);

// Locks (`seq_rw_lock`, `fair_lock`, `biased_rw_lock`). Waiting by spinning is cheaper than a context
// switch only while it is shorter than one. Barging keeps a lock busy while a woken thread gets ready,
// and a bound on it keeps the head of the queue from starving.

/// How often [`SeqRwLock::read`](crate::SeqRwLock::read) is optimistic before it blocks.
pub const OPTIMISTIC_TRIES: usize = if cfg!(loom) { 1 } else { 4 };

/// How often a reader that meets a writer looks again before it yields the CPU.
pub(crate) const READER_SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

/// How many newcomers may pass the head of the queue.
pub(crate) const BARGES: u32 = if cfg!(loom) { 1 } else { 16 };

/// Condition variables of a fair lock, used one after the other, so that a wake-up for the head of
/// the queue wakes few other threads.
pub(crate) const WAKE_GROUPS: u64 = if cfg!(loom) { 2 } else { 8 };

// Adaptive structures (`striped`, `biased_rw_lock`, `single_flight`, `tally`, `weak`). A value stays on one
// cache line until threads were seen to contend for it several times: one meeting is chance. What has
// been lost by then is a small multiple of what the change costs.

/// How much contention is reported before a value is striped.
pub(crate) const STRIPE_AFTER: u64 = if cfg!(loom) { 1 } else { 8 };

/// How often readers contend, for each stripe, before the lock is biased.
pub(crate) const BIAS_AFTER: u64 = if cfg!(loom) { 1 } else { 8 };

/// Tables of requests, so that different keys seldom meet. A request costs far more than the lock of
/// its table.
pub(crate) const CALL_TABLES: usize = if cfg!(loom) { 1 } else { 16 };

/// How often a sum collects the stripes before it stops trying to find two collections equal.
pub(crate) const COUNTER_COLLECTIONS: usize = if cfg!(loom) { 2 } else { 8 };

/// Deaths of counted objects are counted by address, in so many places.
pub(crate) const DEATH_STRIPES: usize = if cfg!(loom) { 2 } else { 512 };

// Memory blocks (`blocks`). The magazines of a thread hold what one batch of the reclaimer frees, so
// that most blocks are allocated again by the thread that freed them. Of blocks larger than 512 bytes a
// thread keeps little: 96 KiB of pages, and at most 450 KiB of all smaller ones.

/// How many full magazines a depot keeps.
pub(crate) const DEPOT_MAGAZINES: usize = 16;

/// How many blocks a magazine holds.
pub(crate) const MAGAZINE_BLOCKS: u32 = 32;

/// How many full magazines a thread keeps besides the one in use.
pub(crate) const SPARE_MAGAZINES: usize = 16;

/// So many chunks of a size are kept although all of their blocks are free: retired objects are freed
/// in batches.
pub(crate) const FREE_CHUNKS: usize = 2;

/// As [`MAGAZINE_BLOCKS`], for blocks that are larger than 512 bytes.
pub(crate) const LARGE_MAGAZINE_BLOCKS: u32 = 8;

/// As [`SPARE_MAGAZINES`], for blocks that are larger than 512 bytes.
pub(crate) const LARGE_SPARE_MAGAZINES: usize = 2;

/// As [`FREE_CHUNKS`], for pages: 4 MiB for the next file.
pub(crate) const FREE_PAGE_CHUNKS: usize = 16;

// Hash tables (`split_table`). Most directories are small, so a short list has no buckets. Contention
// asks for buckets before the number of elements does, and an empty table without contention gives
// them back, more slowly, so that it does not go back and forth. Counting is sampled, so that the
// count is not itself a contended cache line.

/// A list of so few elements has no buckets unless there is contention.
pub(crate) const LIST_MAX: usize = 8;

/// One call makes a table so many times larger at most, as a power of two: the length that it is
/// told may be wrong.
pub(crate) const GROWTH_BITS: u32 = 4;

/// So many reports of contention ask for more buckets.
pub(crate) const CONTENDED_AFTER: usize = if cfg!(loom) { 1 } else { 8 };

/// The first contention asks for `2^CONTENDED_BITS` buckets, more of it for more.
pub(crate) const CONTENDED_BITS: u32 = if cfg!(loom) { 1 } else { 7 };

/// So many samples of an empty table without contention free the buckets that contention asked for.
pub(crate) const DECAY_SAMPLES: usize = if cfg!(loom) { 1 } else { 64 };

/// So many neighbouring bucket heads are linked together.
pub(crate) const LINKED_TOGETHER: usize = if cfg!(loom) { 2 } else { 16 };

/// One in so many calls is a sample.
pub(crate) const SAMPLE_EVERY: u32 = 64;

/// Cache lines of an element that a look-up prefetches: that of the name, and two of the object.
pub(crate) const PREFETCHED: usize = 3;
