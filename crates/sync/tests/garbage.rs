//! What becomes of garbage where nobody else helps: in a process of its own, one test at a time.

#![cfg(not(loom))]

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
    mpsc,
};

use pando_sync::{Counted, Object, back_pressure, collect, collect_all, flush_retired, pin, retired_bytes};

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Holds the next: each is retired when the one before it is freed.
struct Probe {
    _next: Option<Counted<Probe>>,
}

impl Object for Probe {}

impl Drop for Probe {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

/// So many generations begin to wait, one after the other.
fn retire(generations: usize) {
    ALIVE.fetch_add(generations, SeqCst);
    drop((0..generations).fold(None, |next, _| Some(Counted::new(Probe { _next: next }))));
}

fn alive() -> usize {
    ALIVE.load(SeqCst)
}

/// Nobody else is about, and nothing waits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((alive(), retired_bytes()), (0, 0));
    alone
}

/// More than fit into the rounds after which who collects in vain gives up.
const GENERATIONS: usize = 400;

/// A thread that goes on making garbage keeps little of it; one that goes on reading keeps none, however much came together
/// while it held a guard.
/// Seen to fail: grace periods that begin for what others have left only, only while it reads, or only for what is worth one;
/// a thread that does not free its own, or one bag at a time, or so many whatever waits; that takes itself for one that
/// retires for ever; a turn that comes within a guard, and is forgotten.
#[test]
fn of_one_thread() {
    const OBJECTS: usize = if cfg!(miri) { 2_000 } else { 100_000 };
    let _alone = alone();
    let read = |most: usize| {
        let reads = (0..most).take_while(|_| alive() > 0).inspect(|_| drop(pin())).count();
        assert_eq!(alive(), 0, "after {reads} guards");
    };
    for _ in 0..OBJECTS {
        drop(pin());
        retire(1);
        assert!(alive() < 2_000, "{} wait", alive());
    }
    read(20_000);
    let guard = pin();
    for _ in 0..OBJECTS {
        retire(1);
        drop(pin());
    }
    assert_eq!(alive(), OBJECTS);
    drop(guard);
    read(100_000);
}

/// One call goes to the last generation.
/// Seen to fail: a call that does not look at the bag, or at the queue, or at its own at all, or gives up although it gets on;
/// back pressure that does not see what was retired meanwhile, or does nothing; bytes that are not counted, or never less.
#[test]
fn to_the_last_generation() {
    let _alone = alone();
    retire(GENERATIONS);
    assert!(retired_bytes() > 0);
    collect();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    retire(GENERATIONS);
    back_pressure(1);
    assert_eq!((alive(), retired_bytes()), (0, 0));
}

/// The same of what another thread has left, which sleeps.
/// Seen to fail: with `collect`; giving up although it gets on.
#[test]
fn of_the_idle_to_the_last_generation() {
    let _alone = alone();
    let (done, when_done) = mpsc::channel();
    let (end, when_to_end) = mpsc::channel::<()>();
    let idle = std::thread::spawn(move || {
        retire(GENERATIONS);
        flush_retired();
        done.send(()).expect("somebody waits");
        let _ = when_to_end.recv();
    });
    when_done.recv().expect("no panic");
    collect_all();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    drop(end);
    idle.join().expect("no panic");
}
