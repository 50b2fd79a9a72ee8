//! Reclamation: what a reader without a lock holds on to, and what becomes of memory that was unlinked.
//!
//! A [`Guard`] says "I may be reading"; memory that is retired while a guard is alive is freed after that guard is
//! gone. The scheme is epoch-based (Fraser, *Practical lock-freedom*, 2004; the periods are RCU's, McKenney and Slingwine 1998): a guard
//! notes in its thread's own slot which grace period began last (`grace`), and slots are looked at when something waits to be
//! freed (`garbage`). So threads that only read write nothing in common. That is why it is no crate's: `crossbeam-epoch` goes
//! on to another epoch with every 128th guard of a thread, whether or not anything waits, and each time all other threads wait for
//! the line that says so. With two threads that cost `stat` an eighth of its rate, and it grows with their number.
//! `seize`'s batches end in a process-wide memory barrier: pin + retire 630 ns with two threads (150 ns with batches
//! of 256), where this takes some 90.
//!
//! Under the model checker the scheme is replaced by the *strictest* one that keeps the same contract: an object is
//! reclaimed the moment the last guard that was alive at its retirement is dropped, and every access checks that it
//! has not been (see `model` below). What passes there passes with any scheme that frees later. One thing it does not show: no
//! address is used twice before a model ends, so that an old pointer is never taken for a new one of the same address.
//!
//! Retired memory is accounted ([`retired_bytes`]), and whoever retires much calls [`back_pressure`] when it holds
//! neither guard nor lock: a reader that stalls delays writers, and never lets garbage grow without bound.

#[cfg(not(loom))]
pub(crate) use crate::garbage as scheme;
#[cfg(loom)]
pub(crate) use model as scheme;

use std::{cell::Cell, marker::PhantomData};

/// The right to read shared objects without a lock, for as long as it lives.
///
/// Tied to its thread. Nobody waits (for a lock, a driver, a reply) while holding one: see [`assert_unpinned`].
pub struct Guard {
    _inner: scheme::Inner,
    _not_send: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

/// Starts reading: 2 to 7 ns, by processor, and no line is written but this thread's own. Guards nest.
#[inline]
#[must_use]
pub fn pin() -> Guard {
    debug_assert!(
        Depth::LettingGo.now() == 0,
        "a guard is taken by what is let go of: on a thread that ends, that nests"
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

/// Asserts (in debug builds) that this thread holds no guard; called by whatever may wait.
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

/// Waits until less than `limit_bytes` (one at least) are retired and not yet freed, but not for what other threads have yet
/// to hand over ([`seal`]: less than 20 objects of a thread, and less than 64 KiB); helps freeing meanwhile.
///
/// Returns at once in the common case. The caller holds no guard and no lock; one that holds a guard all the same (an
/// embedder's own) is let through, since it would wait for itself.
pub fn back_pressure(limit_bytes: usize) {
    scheme::back_pressure(limit_bytes);
}

/// Frees what this thread has retired, what that frees in turn, and what else it comes to; best effort. Returns at once when
/// this thread holds a guard.
pub fn collect() {
    scheme::collect();
}

/// As [`collect`]; and so much of what other threads have retired and left ([`seal`]) before they fell idle. What threads that
/// go on retiring have retired is not waited for.
pub fn collect_all() {
    scheme::collect_all();
}

/// What this thread has retired waits for readers alone, from now on, and [`collect`] comes to it from any thread. (Without
/// this, a few small objects wait for more, or for the thread to go on reading.)
pub fn seal() {
    scheme::seal();
}

/// Something that has been unlinked: freed by `free(ptr)` after a grace period.
///
/// # Safety
/// `ptr` is unreachable for guards made from now on, it is retired once, and `free(ptr)` may be called on any thread.
pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    // SAFETY: the caller's contract is the callee's.
    unsafe { scheme::retire(ptr, bytes, free) }
}

/// Lets go of something: runs what it does when its last reference is put, or when it is freed. Neither may take a guard, which
/// may free garbage, which lets go of more. (With the epoch scheme itself freeing, on a thread that ended no stack was deep
/// enough for that.) Debug builds assert it.
#[inline]
pub(crate) fn let_go<T>(what: impl FnOnce() -> T) -> T {
    /// Also if `what` panics.
    struct Left;
    impl Drop for Left {
        #[inline]
        fn drop(&mut self) {
            Depth::LettingGo.leave();
        }
    }
    Depth::LettingGo.enter();
    let _left = Left;
    what()
}

/// What this thread is in the midst of, and how deep: counted in debug builds only.
#[derive(Clone, Copy)]
enum Depth {
    Guards,
    LettingGo,
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

#[cfg(loom)]
pub(crate) mod model {
    //! The strictest reclaimer, for the model checker.
    //!
    //! Its own state lives outside the model (plain `std`), so it adds no order between threads. What order the real
    //! scheme gives, and no more, is given by two fences: a guard that is made after an object was retired must not find
    //! a pointer to it. (One within another of its thread orders nothing.) That a guard is made before or after an object is
    //! retired is a choice of the search: without, a guard is always made right after what its thread did before.
    //!
    //! Nothing is freed before the model's execution ends (`end_of_execution`): a reclaimed object is *dropped late* but *marked dead at
    //! once*, and `check_access` fails the model when a dead one is touched.

    use crate::facade::{Readers, thread_number};
    use std::{
        cell::RefCell,
        collections::{BTreeMap, BTreeSet},
        rc::Rc,
    };

    /// The guards that an object waits for (none: it is reclaimed), its bytes, and what frees it.
    type Retired = (BTreeSet<u64>, usize, unsafe fn(*mut ()));

    #[derive(Default)]
    struct State {
        next_guard: u64,
        /// Each with the thread that made it.
        alive: BTreeMap<u64, usize>,
        /// By address.
        retired: BTreeMap<usize, Retired>,
        /// Those who make guards; those who retire are the writers.
        readers: Rc<Readers>,
    }
    // loom runs all threads of one execution on one OS thread.
    std::thread_local!(static STATE: RefCell<State> = RefCell::new(State::default()));

    pub(crate) struct Inner(u64);

    fn readers() -> Rc<Readers> {
        STATE.with_borrow(|s| s.readers.clone())
    }

    pub(crate) fn pin() -> Inner {
        let me = thread_number();
        if STATE.with_borrow(|s| s.alive.values().all(|&thread| thread != me)) {
            readers().before_load();
            loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        }
        STATE.with_borrow_mut(|s| {
            s.next_guard += 1;
            s.alive.insert(s.next_guard, me);
            Inner(s.next_guard)
        })
    }

    impl Drop for Inner {
        fn drop(&mut self) {
            STATE.with_borrow_mut(|s| {
                s.alive.remove(&self.0);
                for (waits, ..) in s.retired.values_mut() {
                    waits.remove(&self.0);
                }
            });
        }
    }

    pub(crate) fn retired_bytes() -> usize {
        STATE.with_borrow(|s| s.retired.values().map(|r| r.1).sum())
    }

    pub(crate) fn back_pressure(_limit_bytes: usize) {}

    pub(crate) fn collect() {}

    pub(crate) fn collect_all() {}

    pub(crate) fn seal() {}

    pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
        readers().before_write();
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        STATE.with_borrow_mut(|s| {
            let waits = s.alive.keys().copied().collect();
            let twice = s.retired.insert(ptr as usize, (waits, bytes, free));
            assert!(twice.is_none(), "an object was retired twice");
        });
    }

    /// Fails the model when the object at `ptr` has been reclaimed.
    pub(crate) fn check_access(ptr: *const ()) {
        STATE.with_borrow(|s| {
            if let Some((waits, ..)) = s.retired.get(&(ptr as usize)) {
                assert!(!waits.is_empty(), "an object was read after it had been reclaimed");
            }
        });
    }

    /// Frees everything: called at the end of each execution of a model, with no guard alive.
    #[cfg(test)]
    pub(crate) fn end_of_execution() {
        loop {
            let next = STATE.with_borrow_mut(|s| {
                assert!(s.alive.is_empty(), "a guard outlived its model");
                s.retired.pop_first()
            });
            let Some((ptr, (_, _, free))) = next else { break };
            // SAFETY: the contract of `retire`; no guard is alive.
            unsafe { free(ptr as *mut ()) };
        }
        // They belong to this execution.
        STATE.with_borrow_mut(|s| s.readers = Rc::default());
    }

    /// Runs a model to its end, with the reclaimer's state fresh in each execution.
    #[cfg(test)]
    pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
        check_with(&loom::model::Builder::new(), model);
    }

    /// The same with other bounds than the environment's.
    #[cfg(test)]
    pub(crate) fn check_with(builder: &loom::model::Builder, model: impl Fn() + Sync + Send + 'static) {
        builder.check(move || {
            // An execution that loom cut short leaves its objects: they belong to a world that is gone.
            STATE.with_borrow_mut(|s| *s = State::default());
            model();
            end_of_execution();
        });
    }

    /// A guard within another is no fence: two threads that write, take one and look may both have looked too early.
    /// Seen to fail: with fences in all guards.
    #[test]
    fn a_guard_within_a_guard_orders_nothing() {
        use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
        use std::sync::Arc;
        let both_early = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = both_early.clone();
        check(move || {
            let words = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let write_and_look = |words: &[AtomicBool; 2], mine: usize| {
                let _outer = pin();
                words[mine].store(true, Relaxed);
                let _inner = pin();
                words[1 - mine].load(Relaxed)
            };
            let theirs = words.clone();
            let other = loom::thread::spawn(move || write_and_look(&theirs, 1));
            let saw = write_and_look(&words, 0);
            if !saw & !other.join().expect("it ends") {
                seen.store(true, Relaxed);
            }
        });
        assert!(both_early.load(Relaxed));
    }
}
