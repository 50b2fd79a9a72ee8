//! All tuned numbers of this module, with the reason for each.
//!
//! Times are per entry or per call. Decisions 22, 23 and 29 have the measurements.

use std::time::Duration;

/// Rates within this factor count as the same. Fewer calls at once are kept if the rate is the
/// same. More threads of a scan are kept only if it is not. (A scan may try 62 threads and then 64,
/// which cannot bring more than 3 %.)
pub const SAME_RATE: f64 = 1.05;

// ---- By throughput.

/// The gain that twice as many calls at once must bring. With less, they mostly wait for one
/// another.
pub const MORE_GAIN: f64 = 1.1;
/// A helper of programs starts with so many. A directory that it opens to all threads has waited
/// already, and the program asks for the first names itself meanwhile.
pub const HELPER_FIRST: usize = 8;
/// A call that takes longer has waited for something: the kernel's caches answer in a few
/// microseconds.
pub const CALL_WAITED: Duration = Duration::from_micros(50);
/// A worker reports so many calls at once, if none has waited: one lock for many fast calls.
pub const UNREPORTED_CALLS: u32 = 64;
/// Calls of this mean, for each that is in flight, wait for a device or a server. Less may be a
/// wait for the other calls, as on XFS.
pub const WAITS_FOR_DEVICE: Duration = Duration::from_micros(100);
/// So many calls say that. The number must double quickly at first: at 4 ms a call, 32 are reached
/// after 50 calls.
pub const DEVICE_CALLS: u32 = 4;
/// The rate of the best number has fallen so far that nothing learnt holds: the caches are passed,
/// or a device is busy with something else.
pub const RESTART: f64 = 0.5;
/// A round is so many calls, or as many as complete in [`ROUND_TIME`].
pub const ROUND_CALLS: u32 = 512;
/// In that time, at least so many calls for each that is in flight: a few slow ones decide nothing.
pub const ROUND_CALLS_EACH: u32 = 2;
/// See [`ROUND_CALLS`].
pub const ROUND_TIME: Duration = Duration::from_millis(5);
/// More are tried only if one part in so many of the round's time went into calls that waited.
pub const WAITING_PART: u32 = 20;
/// Rounds before others are tried, when others were no better. Twice as many each time in a row, up
/// to so many times: at most 128 rounds, so trials then cost 1 % at most.
pub const SETTLED_ROUNDS: u32 = 4;
/// See [`SETTLED_ROUNDS`].
pub const SETTLED_DOUBLINGS: u32 = 5;

// ---- By delay.

/// Calls that waited whose mean is judged. A single one says little.
pub const DELAY_CALLS: u32 = 32;
/// Calls that take so many times as long as the best mean have met others in the queue.
pub const DELAY_CROWDED: u32 = 2;
