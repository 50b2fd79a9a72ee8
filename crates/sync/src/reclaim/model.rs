//! The strictest reclaimer, for the model checker.
//!
//! Its own state lives outside the model (plain `std`), so it adds no order between threads. Two
//! fences give exactly the order that the real scheme gives: a guard that is taken after an object
//! was retired must not find a pointer to it. A guard within another guard of its thread orders
//! nothing. The search decides whether a guard is taken before or after an object is retired.
//! Otherwise a guard would always be taken right after the previous step of its thread.
//!
//! Nothing is freed before an execution of the model ends (`end_of_execution`). A reclaimed object
//! is *dropped late* but *marked dead at once*, and `check_access` fails the model when a dead
//! object is accessed.

use crate::facade::{Readers, thread_number};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// The guards that an object waits for (none: it is reclaimed), its bytes, and the function that
/// frees it.
type Retired = (BTreeSet<u64>, usize, unsafe fn(*mut ()));

#[derive(Default)]
struct State {
    next_guard: u64,
    /// Each guard, with the thread that took it.
    alive: BTreeMap<u64, usize>,
    /// By address.
    retired: BTreeMap<usize, Retired>,
    /// Threads that take guards count as readers, threads that retire as writers.
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

pub(crate) fn flush() {}

pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    readers().before_write();
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    STATE.with_borrow_mut(|s| {
        let waits = s.alive.keys().copied().collect();
        let twice = s.retired.insert(ptr as usize, (waits, bytes, free));
        assert!(twice.is_none(), "an object was retired twice");
    });
}

/// Fails the model if the object at `ptr` has been reclaimed.
pub(crate) fn check_access(ptr: *const ()) {
    STATE.with_borrow(|s| {
        if let Some((waits, ..)) = s.retired.get(&(ptr as usize)) {
            assert!(!waits.is_empty(), "an object was read after it had been reclaimed");
        }
    });
}

/// Frees everything: called at the end of each execution of a model, when no guard is alive.
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
    // The readers belong to this execution.
    STATE.with_borrow_mut(|s| s.readers = Rc::default());
}

/// Checks a model, with a fresh state of the reclaimer in each execution.
#[cfg(test)]
pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
    check_with(&loom::model::Builder::new(), model);
}

/// The same, with other bounds than those of the environment.
#[cfg(test)]
pub(crate) fn check_with(builder: &loom::model::Builder, model: impl Fn() + Sync + Send + 'static) {
    builder.check(move || {
        // An execution that loom cut short leaves its objects behind. loom has discarded them.
        STATE.with_borrow_mut(|s| *s = State::default());
        model();
        end_of_execution();
    });
}

/// A guard within another is no fence. Two threads that write, take an inner guard and look may
/// both have looked too early. Seen to fail: with fences in all guards.
#[test]
fn nested_guard_orders_nothing() {
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
