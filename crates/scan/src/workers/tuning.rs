//! The tuned numbers of [`ByWaits`](super::waits::ByWaits), with the reason for each.
//!
//! Times are per entry. Decisions 22 and 29 have the measurements.

/// An entry that waits this long is worth a thread.
pub const WAIT_PAYS_NS: u64 = 5_000;
/// Threads continue until an entry waits less than this. Lower than [`WAIT_PAYS_NS`], so that the
/// two do not alternate.
pub const WAIT_IS_OVER_NS: u64 = 2_000;
/// A call for many entries that waits less has waited for the server to run, and not for entries.
pub const CALL_WAITS_NS: u64 = 1_000_000;
/// If calls for many entries wait this long for each entry, threads with single calls are faster:
/// the server waits for one entry after the other. In the caches of a mount an entry takes less
/// than 1 µs by such a call, from a store 10 µs, and from a disk up to 100 µs. By single calls of
/// many threads it takes at least 30 µs of two cores; in a directory of 10,000,000 files on ext4 it
/// took 157 µs, and 49 µs by calls for many.
pub const WHOLE_WAITS_NS: u64 = 200_000;
/// Waits in a sum of less than this are not judged: one wait alone may be chance.
pub const WAITED_AT_LEAST_NS: u64 = 100_000;
/// The CPU time of an entry counts as at most this. Eight entries on a slow server took 342 µs
/// each, since the first ones touch everything for the first time.
pub const CPU_AT_MOST_NS: u64 = 20_000;
/// An entry with so much CPU time is not in the kernel's caches, nor is the block's content made
/// into inodes and names: another CPU halves that.
pub const WORK_PAYS_NS: u64 = 5_000;
/// Fewer entries do not distinguish that from memory that is touched for the first time.
pub const WORK_ENTRIES: u64 = 64;
/// More CPUs than this have not been seen to help with it.
pub const WORKING_CPUS: usize = 4;
/// Jobs for which more threads, which brought nothing, are not tried again.
pub const CAPPED_JOBS: u32 = 16;

/// An entry that waits longer than this, for each thread, waits for a device. Less may be a wait
/// for the other threads. The CPU time is not in it.
pub const WAITS_FOR_DEVICE_NS: u64 = 50_000;
/// Entries that threads must have done to be compared with the caller alone.
pub const TOGETHER_ENTRIES: u64 = 1024;
/// Entries that the caller must have done alone.
pub const ALONE_ENTRIES: u64 = 256;
/// So few, if the caller was many times slower.
pub const ALONE_ENTRIES_HOPELESS: u64 = 32;
/// The caller is hopeless if it takes so many times as long as the threads.
pub const HOPELESS: f64 = 4.0;
/// Threads that need so many times the CPU time of the caller alone are in one another's way. The
/// caller may then be slower by [`IN_THE_WAY_SLOWER`] and is still preferred: CPU time that threads
/// lose shows first, while speed varies from one moment to the next.
pub const IN_THE_WAY_CPU: f64 = 1.25;
/// See [`IN_THE_WAY_CPU`].
pub const IN_THE_WAY_SLOWER: f64 = 1.3;
/// Measurements of the caller, once it was found to do as well alone, before threads are tried
/// again. Twice as many each time in a row, up to so many times.
pub const ALONE_LOOKS: u32 = 2048;
/// See [`ALONE_LOOKS`].
pub const ALONE_DOUBLINGS: u32 = 4;
/// A measurement with waits as for a device counts as so many, so threads are tried much sooner.
pub const WAITED_LOOKS: u32 = 64;
/// Measurements with too few entries to compare (all directories are small), after which threads
/// continue.
pub const TRIAL_LOOKS: u32 = 64;
/// Jobs of threads that do better before the caller tries again alone.
pub const TOGETHER_JOBS: u32 = 4;
