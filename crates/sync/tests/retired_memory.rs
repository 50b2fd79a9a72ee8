//! Retired memory when no other thread helps to free it: in a process of its own, one test at a
//! time.

#![cfg(not(loom))]

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::JoinHandle,
};

use pando_sync::{Counted, Object, back_pressure, collect, collect_all, flush_retired, pin, retired_bytes};

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A chain: each object is retired when the one before it is freed.
struct Probe {
    _next: Option<Counted<Probe>>,
}

impl Object for Probe {}

impl Drop for Probe {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

/// Retires so many generations, one after the other.
fn retire(generations: usize) {
    ALIVE.fetch_add(generations, SeqCst);
    drop((0..generations).fold(None, |next, _| Some(Counted::new(Probe { _next: next }))));
}

fn alive() -> usize {
    ALIVE.load(SeqCst)
}

/// No other test runs, and nothing waits to be freed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((alive(), retired_bytes()), (0, 0));
    alone
}

/// More generations than the rounds after which a thread that collects in vain returns.
const GENERATIONS: usize = 400;

/// A thread that goes on retiring keeps little retired memory. A thread that goes on reading keeps
/// none, however much it retired while it held a guard. Seen to fail: grace periods that begin only
/// for what other threads have left, only while the thread reads, or only when enough bags wait; a
/// thread that does not free its own objects, or one bag at a time, or a fixed number whatever
/// waits; a thread that takes itself for one that retires for ever; a run of the reclaimer that is
/// due within a guard, and is forgotten.
#[test]
fn thread_frees_its_own_retired_memory() {
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

/// One call frees all generations. Seen to fail: a call that ignores the bag, or the queue, or this
/// thread's list altogether, or returns although it makes progress; back-pressure that ignores what
/// was retired meanwhile, or does nothing; bytes that are not counted, or never subtracted.
#[test]
fn collect_frees_every_generation() {
    let _alone = alone();
    retire(GENERATIONS);
    assert!(retired_bytes() > 0);
    collect();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    retire(GENERATIONS);
    back_pressure(1);
    assert_eq!((alive(), retired_bytes()), (0, 0));
}

/// A thread that retires so many generations and sleeps until the sender is dropped.
fn sleeper(generations: usize) -> (JoinHandle<()>, mpsc::Sender<()>) {
    let (done, when_done) = mpsc::channel();
    let (end, when_to_end) = mpsc::channel::<()>();
    let idle = std::thread::spawn(move || {
        retire(generations);
        flush_retired();
        done.send(()).expect("the test waits");
        let _ = when_to_end.recv();
    });
    when_done.recv().expect("no panic");
    (idle, end)
}

/// Ends these threads.
fn wake(sleepers: impl IntoIterator<Item = (JoinHandle<()>, mpsc::Sender<()>)>) {
    for (idle, end) in sleepers {
        drop(end);
        idle.join().expect("no panic");
    }
}

/// The same for what another thread has retired, which sleeps. Seen to fail: with `collect`; a call
/// that returns although it makes progress.
#[test]
fn collect_all_frees_every_generation_of_a_sleeping_thread() {
    let _alone = alone();
    let sleeper = sleeper(GENERATIONS);
    collect_all();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    wake([sleeper]);
}

/// The same if there are more threads than retire lists, and some share one. Seen to fail: with the
/// shared list left out; with what a thread frees from the shared list left in its bag, or taken
/// for what it retires itself.
#[test]
fn collect_all_frees_every_generation_of_many_threads() {
    let _alone = alone();
    // This thread has a list of its own.
    retire(1);
    let sleepers = || (0..100).map(|thread| sleeper(if thread < 90 { 1 } else { GENERATIONS })).collect::<Vec<_>>();
    let asleep = sleepers();
    collect_all();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    wake(asleep);
    // Threads that have ended, too.
    wake(sleepers());
    collect_all();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    // A thread without a list of its own collects, or frees only the first of it and sleeps.
    let _asleep = (0..90).map(|_| sleeper(0)).collect::<Vec<_>>();
    std::thread::spawn(|| {
        retire(GENERATIONS);
        collect_all();
        assert_eq!((alive(), retired_bytes()), (0, 0));
    })
    .join()
    .expect("no panic");
    std::thread::spawn(|| retire(GENERATIONS)).join().expect("no panic");
    let (freed, when_freed) = mpsc::channel();
    let (end, when_to_end) = mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        while alive() == GENERATIONS {
            drop(pin());
        }
        freed.send(()).expect("the test waits");
        let _ = when_to_end.recv();
    });
    when_freed.recv().expect("no panic");
    collect_all();
    assert_eq!((alive(), retired_bytes()), (0, 0));
    drop(end);
    reader.join().expect("no panic");
}
