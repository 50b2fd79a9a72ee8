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
