//! How many calls at once.
//!
//! A call that waits for a disk or a server leaves a CPU free, so other calls should be in flight
//! meanwhile. The best number depends on what is waited for: a network store wants many, the
//! kernel's caches want one, and on XFS calls for names of one directory wait for one another.
//! Nothing in the system says which of these it is, so the number is found by trial:
//!
//! 1. *Measure* calls at a number: what they took, and how much of that was waiting.
//! 2. *Raise* the number while the calls wait and more complete with more of them in flight. If
//!    they wait so long that it cannot be for one another, the number is raised at once, without a
//!    comparison.
//! 3. *Fall back* when more in flight did not complete more. Fewer are kept if they complete as
//!    much: they cost less, and are less in the way of other programs.
//! 4. *Settle*, and try again after a while, more rarely each time that the trial changes nothing.
//!    What pays changes on the way.
//!
//! Two controllers do this, because calls that are in flight cost different things:
//!
//! * [`ByThroughput`] tries twice or half as many calls, and decides by the calls that complete in
//!   a second.
//! * [`ByDelay`], for read-ahead that yields to others, tries one more call, or half as many, and
//!   decides by the time that a call takes.
//!
//! `ByThroughput` may take some hundred calls to find the number. A scan of one directory cannot,
//! and it must not cost CPU time where nothing waits. So it has a controller of its own, `ByWaits`
//! of `pando-scan`. Decision 29 (`docs/decisions`) compares them.
//!
//! All tuned numbers are in `tuning`.

mod delay;
mod throughput;
mod tuning;

pub use delay::ByDelay;
pub use throughput::{ByThroughput, Calls, Queue};
pub use tuning::{CALL_WAITED, HELPER_FIRST, SAME_RATE};
