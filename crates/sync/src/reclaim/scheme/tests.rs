//! Tests of retired memory: when it is freed, by which thread, and what no thread waits for.

use std::{
    cell::{Cell, RefCell},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{
    super::{
        guards::is_pinned,
        pressure::{Idle, advance_periods},
        retire_list::{Bag, RetireList, Retired, SHARED},
        thread::{account, free_expired, number},
    },
    GRACE_PERIODS, LISTS,
};
use crate::{
    Counted, Object,
    tuning::{BAG, FRESH_PERIODS, HEAVY_BYTES, IDLE_READS, RETIRE_LISTS},
};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A chain: each object is retired when the one before it is freed.
struct Chain {
    _next: Option<Counted<Chain>>,
}

impl Object for Chain {}

impl Drop for Chain {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

std::thread_local!(static LAST: RefCell<Option<Counted<Chain>>> = const { RefCell::new(None) });

/// A thread retires objects and ends. They are freed although the other threads only read. Seen to
/// fail: without visits; with visits that begin no grace period.
#[test]
fn readers_free_retired_objects_of_ended_threads() {
    const OBJECTS: usize = 100;
    static FREED: AtomicUsize = AtomicUsize::new(0);
    std::thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
    struct Left;
    impl Object for Left {}
    impl Drop for Left {
        fn drop(&mut self) {
            FREED.fetch_add(1, Ordering::SeqCst);
            HERE.set(true);
        }
    }
    // This thread has a retire list already, and does not claim the list of the other.
    drop(super::pin());
    // Threads of other tests free these objects too. So the test goes on until this thread freed
    // the last one.
    for round in 1.. {
        std::thread::spawn(|| (0..OBJECTS).for_each(|_| drop(Counted::new(Left)))).join().expect("no panic");
        while FREED.load(Ordering::SeqCst) < round * OBJECTS {
            (0..=IDLE_READS).for_each(|_| drop(super::pin()));
            std::thread::yield_now();
        }
        if HERE.get() {
            break;
        }
    }
}

/// A reader visits the shared list and the list of a thread that sleeps, and frees what other
/// threads put there. Seen to fail: without the shared list, or with the first list alone; visits
/// that never free from the list of a sleeping thread.
#[test]
fn readers_free_from_shared_and_sleeping_lists() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    std::thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
    fn free(_: *mut ()) {
        FREED.fetch_add(1, Ordering::SeqCst);
        HERE.set(true);
    }
    drop(super::pin());
    let (tell_number, sleeper) = std::sync::mpsc::channel();
    let (end, when_to_end) = std::sync::mpsc::channel::<()>();
    let asleep = std::thread::spawn(move || {
        tell_number.send(number()).expect("the test waits");
        let _ = when_to_end.recv();
    });
    let mut freed = 0;
    for list in [SHARED, sleeper.recv().expect("no panic")] {
        HERE.set(false);
        // Threads of other tests free these objects too. So the test goes on until this thread
        // freed one.
        while !HERE.get() {
            LISTS.get(list).push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
            freed += 1;
            while FREED.load(Ordering::SeqCst) < freed {
                // Visitors leave what expired lately to its owner.
                for _ in 0..FRESH_PERIODS / 4 {
                    advance_periods();
                }
                (0..=IDLE_READS).for_each(|_| drop(super::pin()));
                std::thread::yield_now();
            }
        }
    }
    drop(end);
    asleep.join().expect("no panic");
}

/// A thread that holds a guard frees nothing, whatever has expired, and does not wait. Seen to
/// fail: running the reclaimer, or collecting, within a guard. Seen to hang: back-pressure within a
/// guard.
#[test]
fn nothing_is_freed_within_a_guard() {
    std::thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
    fn free(_: *mut ()) {
        HERE.set(true);
    }
    let guard = super::pin();
    let expired = Bag { period: 0, items: vec![Retired(std::ptr::null_mut(), 0, free)] };
    crate::lock(&LISTS.get(number()).queue).push_front(expired);
    account(1);
    (0..=IDLE_READS).for_each(|_| drop(super::pin()));
    super::collect();
    super::collect_all();
    super::back_pressure(1);
    assert!(!HERE.get());
    account(-1);
    drop(guard);
}

/// An object that is retired while another thread reads waits for that thread, though others
/// collect. Seen to fail: with the grace period that is over, or the one that began last, in place
/// of the next; with periods ignored.
#[test]
fn object_under_a_guard_is_not_freed() {
    const OBJECTS: usize = 10;
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(_: *mut ()) {
        FREED.fetch_add(1, Ordering::SeqCst);
    }
    let guard = super::pin();
    let retires = || {
        for _ in 0..OBJECTS {
            // SAFETY: `free` touches nothing.
            unsafe { super::retire(std::ptr::null_mut(), 0, free) };
            super::collect();
        }
    };
    std::thread::spawn(retires).join().expect("no panic");
    assert_eq!(FREED.load(Ordering::SeqCst), 0);
    drop(guard);
    while FREED.load(Ordering::SeqCst) < OBJECTS {
        super::collect();
        std::thread::yield_now();
    }
}

/// A thread that retires is not idle, and no other thread waits for all that it will retire. Seen
/// to fail: without the count of full bags; with all threads taken for idle, or none.
#[test]
fn retiring_thread_is_not_idle() {
    fn free(_: *mut ()) {}
    let number = number();
    if number == SHARED {
        // The shared list belongs to no thread.
        return;
    }
    let idle = Idle::now();
    let is_idle = || idle.lists().any(|list| std::ptr::eq(list, LISTS.get(number)));
    assert!(is_idle());
    // SAFETY: `free` touches nothing.
    unsafe { super::retire(std::ptr::null_mut(), 0, free) };
    super::flush();
    assert!(!is_idle());
}

/// Any thread can free what a thread has retired and flushed. A bag that is not full is flushed
/// when its thread only reads, when it is heavy, and when it holds an object that is awaited. (The
/// sleeping thread retires fewer objects than make a bag full.) Seen to fail: each case without its
/// flush; with a larger bag.
#[test]
fn flushed_bag_is_freed_by_any_thread() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    /// Counts as so many bytes.
    struct Held<const AWAITED: bool>(usize);
    impl<const AWAITED: bool> Object for Held<AWAITED> {
        fn held_bytes(&self) -> usize {
            self.0
        }
        fn is_awaited(&self) -> bool {
            AWAITED
        }
    }
    impl<const AWAITED: bool> Drop for Held<AWAITED> {
        fn drop(&mut self) {
            FREED.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn reads() {
        (0..=2 * IDLE_READS).for_each(|_| drop(super::pin()));
    }
    let cases: [(usize, fn()); 4] = [
        (1, || drop(Counted::new(Held::<true>(0)))),
        (1, || {
            drop(Counted::new(Held::<false>(0)));
            reads();
        }),
        // Heavy enough together with the object beside it.
        (2, || (0..2).for_each(|_| drop(Counted::new(Held::<false>(HEAVY_BYTES / 2))))),
        (BAG, || (0..BAG).for_each(|_| drop(Counted::new(Held::<false>(0))))),
    ];
    for (objects, retires) in cases {
        let (done, when_done) = std::sync::mpsc::channel();
        let (end, when_to_end) = std::sync::mpsc::channel::<()>();
        let idle = std::thread::spawn(move || {
            retires();
            done.send(()).expect("the test waits");
            let _ = when_to_end.recv();
        });
        when_done.recv().expect("no panic");
        while FREED.load(Ordering::SeqCst) < objects {
            super::collect();
            std::thread::yield_now();
        }
        FREED.store(0, Ordering::SeqCst);
        drop(end);
        idle.join().expect("no panic");
    }
}

/// No thread waits for what a sleeping thread has in its open bag. Seen to hang: without the check
/// that the lists are empty.
#[test]
fn open_bag_of_a_sleeping_thread_is_not_waited_for() {
    struct Small;
    impl Object for Small {}
    let (done, when_done) = std::sync::mpsc::channel();
    let (end, when_to_end) = std::sync::mpsc::channel::<()>();
    let asleep = std::thread::spawn(move || {
        drop(Counted::new(Small));
        done.send(()).expect("the test waits");
        let _ = when_to_end.recv();
    });
    when_done.recv().expect("no panic");
    super::back_pressure(1);
    drop(end);
    asleep.join().expect("no panic");
}

/// A bag that is being freed is not done: a thread that needs its memory waits for it. Seen to
/// fail: with the queue alone.
#[test]
fn list_is_not_done_while_it_is_freed() {
    static LIST: RetireList = RetireList::new();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(_: *mut ()) {
        assert!(LIST.waiting() == 0 && !LIST.is_done());
        FREED.fetch_add(1, Ordering::SeqCst);
    }
    LIST.push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
    while FREED.load(Ordering::SeqCst) == 0 {
        assert!(!LIST.is_done());
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
        std::thread::yield_now();
    }
    assert!(LIST.is_done());
}

/// A thread without a list of its own does not wait for a thread that is freeing from the shared
/// list: some thread may always be doing so. Seen to hang: if it waits for the shared list as for
/// its own.
#[test]
fn collect_does_not_wait_for_the_shared_list() {
    static FREEING: AtomicBool = AtomicBool::new(false);
    static FREED: AtomicBool = AtomicBool::new(false);
    fn free(_: *mut ()) {
        FREEING.store(true, Ordering::SeqCst);
        while !FREED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    struct Small;
    impl Object for Small {}
    LISTS.get(SHARED).push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
    // Any thread may be the first to free it.
    let frees = std::thread::spawn(|| {
        while !FREEING.load(Ordering::SeqCst) {
            super::collect();
            std::thread::yield_now();
        }
    });
    while !FREEING.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let collects = || {
        drop(Counted::new(Small));
        super::collect();
        number()
    };
    let claim = |list: &&RetireList| !list.owned.swap(true, Ordering::Acquire);
    let mut claimed = Vec::new();
    loop {
        claimed.extend((0..RETIRE_LISTS).map(|number| LISTS.get(number)).filter(claim));
        // A thread of another test may just have released a list.
        if std::thread::spawn(collects).join().expect("no panic") == SHARED {
            break;
        }
    }
    FREED.store(true, Ordering::SeqCst);
    frees.join().expect("no panic");
    claimed.into_iter().for_each(|list| list.owned.store(false, Ordering::Release));
}

/// A thread that collects frees without a guard: what it frees may retire further objects that it
/// waits for, and a guard would be in their way. Seen to fail: with a guard taken to advance the
/// period.
#[test]
fn collect_frees_without_a_guard() {
    std::thread_local!(static PINNED: Cell<Option<bool>> = const { Cell::new(None) });
    fn free(_: *mut ()) {
        PINNED.set(Some(is_pinned()));
    }
    // Threads of other tests free it too. So the test goes on until this thread did.
    while PINNED.get().is_none() {
        LISTS.get(number()).push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
        super::collect();
    }
    assert_eq!(PINNED.get(), Some(false));
}

/// A thread that frees from another list leaves there what that retires. Seen to fail: without
/// `Redirected` (the thread that frees gets it).
#[test]
fn objects_retired_while_freeing_wait_in_the_same_list() {
    static LIST: RetireList = RetireList::new();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn child(_: *mut ()) {
        FREED.fetch_add(1, Ordering::SeqCst);
    }
    fn parent(_: *mut ()) {
        // SAFETY: `child` touches nothing.
        unsafe { super::retire(std::ptr::null_mut(), 0, child) };
        FREED.fetch_add(1, Ordering::SeqCst);
    }
    LIST.push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, parent)]);
    while FREED.load(Ordering::SeqCst) == 0 {
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
    }
    assert_eq!((LIST.waiting(), LIST.is_done()), (1, false), "no other thread frees from it");
    while !LIST.is_done() {
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
    }
    assert_eq!(FREED.load(Ordering::SeqCst), 2);
}

/// A panic while an object is freed loses no other retired object. Seen to fail: without the drop
/// of `Expired`.
#[test]
fn panic_loses_no_retired_object() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(touchy: *mut ()) {
        FREED.fetch_add(1, Ordering::SeqCst);
        assert!(touchy.is_null(), "the test makes this one panic");
    }
    let other = Retired(std::ptr::null_mut(), 0, free);
    let touchy = Retired(std::ptr::dangling_mut(), 0, free);
    // No other thread frees from this list.
    static LIST: RetireList = RetireList::new();
    let list = &LIST;
    list.push(GRACE_PERIODS.next(), vec![other, touchy, other]);
    list.push(GRACE_PERIODS.next(), vec![other]);
    let free = || free_expired(list, 0, usize::MAX);
    let expire = || {
        super::collect();
        std::thread::yield_now();
    };
    while std::panic::catch_unwind(std::panic::AssertUnwindSafe(free)).is_ok() {
        expire();
    }
    while list.waiting() > 0 {
        free();
        expire();
    }
    assert_eq!(FREED.load(Ordering::SeqCst), 4);
    assert!(list.is_done());
}

/// Threads drop counted objects as their last act, after their other locals, while much has expired
/// that retires more when it is freed. No stack grows with the amount of retired memory. Seen to
/// fail (a stack overflow) when ending threads pass what they retire to an epoch scheme that frees;
/// and when they free an expired bag for each object that they retire.
#[test]
fn ending_threads_do_not_overflow_the_stack() {
    const CHAINS: usize = if cfg!(miri) { 100 } else { 50_000 };
    const THREADS: usize = 4;
    let chain = || Counted::new(Chain { _next: Some(Counted::new(Chain { _next: None })) });
    let guard = super::pin();
    (0..CHAINS).for_each(|_| drop(chain()));
    drop(guard);
    // Most of it has expired, and is not freed.
    for _ in 0..8 {
        advance_periods();
    }
    let end = move || {
        // Dropped after the locals of this module, since it is made before them.
        LAST.with_borrow_mut(|last| *last = Some(chain()));
        drop(super::pin());
        drop(chain());
    };
    for _ in 0..THREADS {
        let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(end);
        thread.expect("a thread").join().expect("no panic");
    }
    while DROPPED.load(Ordering::SeqCst) < 2 * (CHAINS + 2 * THREADS) {
        super::collect();
        std::thread::yield_now();
    }
}

/// A thread that needs what idle threads have retired waits until it is freed, however many
/// generations that takes. Seen to fail: with [`super::collect`].
#[test]
fn collect_all_frees_every_generation_of_idle_threads() {
    const LINKS: usize = 40;
    static FREED: AtomicUsize = AtomicUsize::new(0);
    struct Link {
        _next: Option<Counted<Link>>,
    }
    impl Object for Link {}
    impl Drop for Link {
        fn drop(&mut self) {
            FREED.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (done, when_done) = std::sync::mpsc::channel();
    let (end, when_to_end) = std::sync::mpsc::channel::<()>();
    let idle = std::thread::spawn(move || {
        // Only then does the list belong to that thread alone.
        let has_list = number() != SHARED;
        drop((0..LINKS).fold(None, |next, _| Some(Counted::new(Link { _next: next }))));
        super::flush();
        done.send(has_list).expect("the test waits");
        let _ = when_to_end.recv();
    });
    if when_done.recv().expect("no panic") {
        // One call would suffice, if no thread of another test held a guard for long.
        let mut calls = 0;
        while FREED.load(Ordering::SeqCst) < LINKS {
            let before = FREED.load(Ordering::SeqCst);
            super::collect_all();
            calls += usize::from(FREED.load(Ordering::SeqCst) > before);
        }
        assert!(calls < LINKS / 4, "{calls} calls, with a few generations each");
    }
    drop(end);
    idle.join().expect("no panic");
}

/// Threads that end leave their slots to later threads, also if their last act is to read. Seen to
/// fail: if the slot is not released when the locals are dropped, or not after that.
#[test]
fn ended_threads_release_their_slots() {
    const THREADS: usize = if cfg!(miri) { 100 } else { 1000 };
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            drop(super::pin());
        }
    }
    std::thread_local!(static LATE: Last = const { Last });
    let reads = || drop(super::pin());
    let reads_last = || {
        // Dropped after the locals of this module, since it is made before them.
        LATE.with(|_| ());
        drop(super::pin());
    };
    for thread in [reads, reads_last] {
        let slots = || GRACE_PERIODS.slots().count();
        let before = slots();
        (0..THREADS).for_each(|_| std::thread::spawn(thread).join().expect("no panic"));
        // Other tests have threads, too.
        let more = slots() - before;
        assert!(more < THREADS / 2, "{more} more slots");
    }
}

/// An object that is freed must not take a guard, and debug builds assert that. But if it takes one
/// and keeps it, the guard protects. If it waits for retired memory, it does not wait, since it
/// would wait for itself. Seen to fail: with the guards counted before expired objects are freed.
/// Seen to take 100,000 rounds: without the note that the thread is freeing.
#[test]
fn guard_taken_while_freeing_protects() {
    std::thread_local!(static KEPT: RefCell<Option<super::Inner>> = const { RefCell::new(None) });
    std::thread_local!(static IS_MINE: Cell<bool> = const { Cell::new(false) });
    fn free(_: *mut ()) {
        // Threads of other tests free it too.
        if IS_MINE.get() {
            super::collect();
            super::back_pressure(1);
            KEPT.set(Some(super::pin()));
        }
    }
    static FREED: AtomicBool = AtomicBool::new(false);
    fn note(_: *mut ()) {
        FREED.store(true, Ordering::SeqCst);
    }
    let frees_and_keeps = || {
        IS_MINE.set(true);
        while KEPT.with_borrow(Option::is_none) {
            LISTS.get(number()).push(GRACE_PERIODS.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
            advance_periods();
            (0..=IDLE_READS).for_each(|_| drop(super::pin()));
        }
        IS_MINE.set(false);
        assert!(is_pinned());
        let collects = || {
            // SAFETY: `note` touches nothing.
            unsafe { super::retire(std::ptr::null_mut(), 0, note) };
            super::collect();
        };
        std::thread::spawn(collects).join().expect("no panic");
        assert!(!FREED.load(Ordering::SeqCst), "a guard was taken before");
        KEPT.set(None);
        assert!(!is_pinned());
    };
    std::thread::spawn(frees_and_keeps).join().expect("no panic");
}
