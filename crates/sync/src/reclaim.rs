//! Reclamation: which memory a reader without a lock may access, and when unlinked memory is freed.
//!
//! A [`Guard`] says "I may be reading". Memory that is retired while a guard is alive is freed
//! after that guard is dropped. The scheme is epoch-based (Fraser, *Practical lock-freedom*, 2004);
//! the periods are RCU's (McKenney and Slingwine 1998).
//!
//! | file | what it holds |
//! | --- | --- |
//! | `grace` | grace periods by number, and the slots where guards are announced |
//! | `guards` | the guards of a thread |
//! | `retire_list`, `filling` | objects that wait for a period, and the bag that a thread fills |
//! | `thread` | when a thread frees what has expired |
//! | `pressure` | accounting, back-pressure, and waiting until all is freed |
//! | `scheme` | the above put together, outside the model checker |
//! | `model` | the scheme that replaces it under the model checker |
//!
//! A guard notes in its thread's own slot which grace period began last. Slots are looked at only
//! when something waits to be freed. So threads that only read write no shared memory. This is why
//! no published crate is used. `crossbeam-epoch` advances the epoch with every 128th guard of a
//! thread, whether or not anything waits, and each time all other threads wait for the cache line
//! that says so. With two threads that cost `stat` an eighth of its rate, and the cost grows with
//! their number. `seize`'s batches end in a process-wide memory barrier: pin + retire takes 630 ns
//! with two threads (150 ns with batches of 256), where this takes some 90.
//!
//! Under the model checker the scheme is replaced by the *strictest* one that keeps the same
//! contract: an object is reclaimed the moment the last guard that was alive at its retirement is
//! dropped, and every access checks that it has not been reclaimed (`model`). A model that passes
//! there passes with any scheme that frees later. One thing it does not show: no address is used
//! twice before a model ends, so an old pointer is never taken for a new one of the same address.
//!
//! Retired memory is accounted ([`retired_bytes`]). A thread that retires much calls
//! [`back_pressure`] when it holds neither guard nor lock. So a reader that stalls delays writers,
//! and retired memory does not grow without bound.

#[cfg_attr(all(loom, not(test)), allow(dead_code))]
mod filling;
#[cfg_attr(all(loom, not(test)), allow(dead_code))]
mod grace;
#[cfg(not(loom))]
mod guards;
#[cfg(loom)]
pub(crate) mod model;
#[cfg(not(loom))]
mod pressure;
#[cfg_attr(all(loom, not(test)), allow(dead_code))]
mod retire_list;
#[cfg(not(loom))]
mod scheme;
#[cfg(not(loom))]
mod thread;

#[cfg(loom)]
use model as scheme;

use std::{cell::Cell, marker::PhantomData};

/// The right to read shared objects without a lock, for as long as it lives.
///
/// Tied to its thread. A thread does not wait (for a lock, a driver, a reply) while it holds one:
/// see [`assert_unpinned`].
pub struct Guard {
    _inner: scheme::Inner,
    _not_send: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

/// Takes a guard: from now on this thread may read. Takes 2 to 7 ns, depending on the CPU, and
/// writes no cache line but this thread's own. Guards nest.
#[inline]
#[must_use]
pub fn pin() -> Guard {
    debug_assert!(
        Depth::Releasing.now() == 0,
        "an object that is being released takes a guard: on a thread that ends, that can recurse"
    );
    Depth::Guards.enter();
    Guard { _inner: scheme::pin(), _not_send: PhantomData }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        Depth::Guards.leave();
    }
}

/// Asserts (in debug builds) that this thread holds no guard. Functions that may wait call it.
///
/// # Panics
/// In debug builds, when a guard is alive on this thread.
#[inline]
pub fn assert_unpinned(what: &str) {
    debug_assert!(Depth::Guards.now() == 0, "{what} may wait, and this thread holds a reclamation guard");
    let _ = what;
}

/// Bytes retired and not yet freed, in the whole process.
#[must_use]
pub fn retired_bytes() -> usize {
    scheme::retired_bytes()
}

/// Waits until fewer than `limit_bytes` (one at least) are retired and not yet freed. Helps freeing
/// meanwhile.
///
/// It does not wait for what other threads have not flushed ([`flush_retired`]): fewer than 20
/// objects of a thread, and less than 64 KiB. Returns at once in the common case. The caller holds
/// no guard and no lock. A caller that holds a guard all the same (an embedder's own) is let
/// through, since it would wait for itself.
pub fn back_pressure(limit_bytes: usize) {
    scheme::back_pressure(limit_bytes);
}

/// Frees what this thread has retired, what that retires in turn, and what else has expired. Best
/// effort.
/// Returns at once when this thread holds a guard.
pub fn collect() {
    scheme::collect();
}

/// Like [`collect`], and also frees what other threads have retired and flushed ([`flush_retired`])
/// before they became idle. It does not wait for threads that go on retiring.
pub fn collect_all() {
    scheme::collect_all();
}

/// Flushes what this thread has retired: from now on it waits for readers alone, and [`collect`] on
/// any thread can free it. Without this, a few small objects wait for more, or for the thread to go
/// on reading.
pub fn flush_retired() {
    scheme::flush();
}

/// Retires something that has been unlinked: `free(ptr)` is called after a grace period.
///
/// # Safety `ptr` is unreachable for guards made from now on, it is retired once, and `free(ptr)`
/// may be called on any thread.
pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    // SAFETY: the caller's contract is the callee's.
    unsafe { scheme::retire(ptr, bytes, free) }
}

/// Releases an object: runs what it does when its last reference is dropped, or when it is freed.
/// Neither may take a guard: that may free retired objects, which release more. (When the epoch
/// scheme freed objects itself, this overflowed the stack of a thread that ended.) Debug builds
/// assert it.
#[inline]
pub(crate) fn release<T>(what: impl FnOnce() -> T) -> T {
    /// Also if `what` panics.
    struct Left;
    impl Drop for Left {
        #[inline]
        fn drop(&mut self) {
            Depth::Releasing.leave();
        }
    }
    Depth::Releasing.enter();
    let _left = Left;
    what()
}

/// How many guards this thread holds, and how many releases are in progress. Counted in debug
/// builds only.
#[derive(Clone, Copy)]
enum Depth {
    Guards,
    Releasing,
}

impl Depth {
    #[inline]
    fn enter(self) {
        self.change(|depth| depth + 1);
    }

    #[inline]
    fn leave(self) {
        self.change(|depth| depth - 1);
    }

    #[inline]
    fn change(self, by: impl FnOnce(usize) -> usize) {
        if COUNTED {
            let _ = DEPTHS.try_with(|depths| depths[self as usize].set(by(depths[self as usize].get())));
        }
    }

    #[inline]
    fn now(self) -> usize {
        if COUNTED { DEPTHS.try_with(|depths| depths[self as usize].get()).unwrap_or(0) } else { 0 }
    }
}

const COUNTED: bool = cfg!(all(debug_assertions, not(loom)));
std::thread_local!(static DEPTHS: [Cell<usize>; 2] = const { [const { Cell::new(0) }; 2] });
