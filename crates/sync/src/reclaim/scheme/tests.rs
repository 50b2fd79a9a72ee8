//! Tests of what becomes of retired memory: when it is freed, by whom, and what nobody waits for.

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
    GRACES, LISTS,
};
use crate::{
    Counted, Object,
    tuning::{BAG, FRESH_PERIODS, HEAVY_BYTES, IDLE_READS, RETIRE_LISTS},
};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Holds the next: each is retired when the one before it is freed.
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

/// What a thread has retired and left behind as it ended is freed although the others only read.
/// Seen to fail: without visits, and with visits that begin no grace period.
#[test]
fn readers_free_what_was_left_behind() {
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
    // This thread has a home already, and does not inherit the other's.
    drop(super::pin());
    // Other tests' threads free it too: until this one was the first.
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

/// Where others leave what waits, and their owner sleeps or there is none, readers come by.
/// Seen to fail: without the last home, or with the first alone; visits that leave a sleeper's to him for ever.
#[test]
fn readers_free_what_waits_elsewhere() {
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
        tell_number.send(number()).expect("somebody waits");
        let _ = when_to_end.recv();
    });
    let mut freed = 0;
    for list in [SHARED, sleeper.recv().expect("no panic")] {
        HERE.set(false);
        // Other tests' threads free it too: until this one was the first.
        while !HERE.get() {
            LISTS.get(list).push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
            freed += 1;
            while FREED.load(Ordering::SeqCst) < freed {
                // What is fresh is left to its owner.
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

/// Who holds a guard frees nothing, whatever is ripe, and waits for nothing.
/// Seen to fail: going on, or collecting, within a guard; (to hang) back pressure within one.
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

/// What is retired while somebody reads waits for him, though others collect.
/// Seen to fail: with the grace period that is over, or the one that began last, in place of the next; with periods ignored.
#[test]
fn what_may_be_read_is_not_freed() {
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

/// Who retires is not idle, and nobody waits for all that he will. Seen to fail: without the count of full bags; with all
/// for idle, or none.
#[test]
fn who_retires_is_not_idle() {
    fn free(_: *mut ()) {}
    let number = number();
    if number == SHARED {
        // Nobody's in particular.
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

/// What a thread has retired that now only reads or sleeps, or that somebody waits for, is within reach of all: though its bag
/// is not full, but for fewer objects than that takes. Seen to fail: each without its `seal`; with a larger bag.
#[test]
fn a_bag_that_is_not_full_is_within_reach() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    /// So many bytes.
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
        // Weighs enough with what it is beside.
        (2, || (0..2).for_each(|_| drop(Counted::new(Held::<false>(HEAVY_BYTES / 2))))),
        (BAG, || (0..BAG).for_each(|_| drop(Counted::new(Held::<false>(0))))),
    ];
    for (objects, retires) in cases {
        let (done, when_done) = std::sync::mpsc::channel();
        let (end, when_to_end) = std::sync::mpsc::channel::<()>();
        let idle = std::thread::spawn(move || {
            retires();
            done.send(()).expect("somebody waits");
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

/// What a thread that sleeps has in its bag is not waited for. Seen to hang: without the look at what is within reach.
#[test]
fn what_is_out_of_reach_is_not_waited_for() {
    struct Small;
    impl Object for Small {}
    let (done, when_done) = std::sync::mpsc::channel();
    let (end, when_to_end) = std::sync::mpsc::channel::<()>();
    let asleep = std::thread::spawn(move || {
        drop(Counted::new(Small));
        done.send(()).expect("somebody waits");
        let _ = when_to_end.recv();
    });
    when_done.recv().expect("no panic");
    super::back_pressure(1);
    drop(end);
    asleep.join().expect("no panic");
}

/// What is being freed is not done: who needs what it gives back waits for it. Seen to fail: with the queue alone.
#[test]
fn what_is_being_freed_is_not_done() {
    static LIST: RetireList = RetireList::new();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(_: *mut ()) {
        assert!(LIST.waiting() == 0 && !LIST.is_done());
        FREED.fetch_add(1, Ordering::SeqCst);
    }
    LIST.push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
    while FREED.load(Ordering::SeqCst) == 0 {
        assert!(!LIST.is_done());
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
        std::thread::yield_now();
    }
    assert!(LIST.is_done());
}

/// A thread without a home of its own waits for nobody who is at what all such threads have retired: there may always be
/// somebody. Seen to hang: when the home of all such threads is waited for as an own one.
#[test]
fn what_others_have_retired_is_not_waited_for_without_end() {
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
    LISTS.get(SHARED).push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
    // Whoever comes to it first.
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
        // Another test's thread may just have left one.
        if std::thread::spawn(collects).join().expect("no panic") == SHARED {
            break;
        }
    }
    FREED.store(true, Ordering::SeqCst);
    frees.join().expect("no panic");
    claimed.into_iter().for_each(|list| list.owned.store(false, Ordering::Release));
}

/// What is freed for somebody who waits for it may retire what he waits for, too: that is in nobody's way meanwhile.
/// Seen to fail: with a guard taken to push on.
#[test]
fn who_collects_frees_without_a_guard() {
    std::thread_local!(static PINNED: Cell<Option<bool>> = const { Cell::new(None) });
    fn free(_: *mut ()) {
        PINNED.set(Some(is_pinned()));
    }
    // Other tests' threads free it too: until this one did.
    while PINNED.get().is_none() {
        LISTS.get(number()).push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
        super::collect();
    }
    assert_eq!(PINNED.get(), Some(false));
}

/// Who frees another's garbage leaves him what that retires. Seen to fail: without `Heir` (the one who frees has it).
#[test]
fn what_is_retired_by_freeing_waits_where_that_waited() {
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
    LIST.push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, parent)]);
    while FREED.load(Ordering::SeqCst) == 0 {
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
    }
    assert_eq!((LIST.waiting(), LIST.is_done()), (1, false), "and nobody else comes to it");
    while !LIST.is_done() {
        super::collect();
        free_expired(&LIST, 0, usize::MAX);
    }
    assert_eq!(FREED.load(Ordering::SeqCst), 2);
}

/// What panics when it is freed takes nobody's garbage with it. Seen to fail: without the drop of `Ripe`.
#[test]
fn a_panic_loses_no_garbage() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(touchy: *mut ()) {
        FREED.fetch_add(1, Ordering::SeqCst);
        assert!(touchy.is_null(), "as the test wants it");
    }
    let other = Retired(std::ptr::null_mut(), 0, free);
    let touchy = Retired(std::ptr::dangling_mut(), 0, free);
    // Nobody else comes to this one.
    static LIST: RetireList = RetireList::new();
    let list = &LIST;
    list.push(GRACES.next(), vec![other, touchy, other]);
    list.push(GRACES.next(), vec![other]);
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

/// Threads that drop something as their last act, after their other locals, while much is ripe that retires more when
/// it is freed: no stack grows with the garbage.
/// Seen to fail (a stack overflow) when what ending threads retire is handed to an epoch scheme that frees, and now when
/// they free a bag of what is ripe for each object that they retire.
#[test]
fn ending_threads_do_not_nest() {
    const CHAINS: usize = if cfg!(miri) { 100 } else { 50_000 };
    const THREADS: usize = 4;
    let chain = || Counted::new(Chain { _next: Some(Counted::new(Chain { _next: None })) });
    let guard = super::pin();
    (0..CHAINS).for_each(|_| drop(chain()));
    drop(guard);
    // Ripe, most of it, and not freed.
    for _ in 0..8 {
        advance_periods();
    }
    let end = move || {
        // Before the locals of this module, which are therefore gone first.
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

/// Who needs what others have retired, who are idle, waits until it is freed, however many generations that takes.
/// Seen to fail: with [`super::collect`].
#[test]
fn the_garbage_of_the_idle_is_collected_to_the_last_generation() {
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
        // Only then is it nobody else's.
        let has_home = number() != SHARED;
        drop((0..LINKS).fold(None, |next, _| Some(Counted::new(Link { _next: next }))));
        super::flush();
        done.send(has_home).expect("somebody waits");
        let _ = when_to_end.recv();
    });
    if when_done.recv().expect("no panic") {
        // One call would do, if no other test's thread held a guard for long.
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

/// Threads that come and go leave their slots to those after them, also if the last thing that they do is to read.
/// Seen to fail: without giving back as the locals go, or after that.
#[test]
fn threads_leave_no_slots_behind() {
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
        // Before the locals of this module, which are therefore gone first.
        LATE.with(|_| ());
        drop(super::pin());
    };
    for thread in [reads, reads_last] {
        let slots = || GRACES.slots().count();
        let before = slots();
        (0..THREADS).for_each(|_| std::thread::spawn(thread).join().expect("no panic"));
        // Other tests have threads, too.
        let more = slots() - before;
        assert!(more < THREADS / 2, "{more} more slots");
    }
}

/// What is freed must not take a guard, and debug builds say so; but one that does, and keeps it, has it, and one that waits for garbage
/// is let through, for it is garbage itself. Seen to fail: with the guards counted before what waits is freed; (to take
/// 100,000 rounds) with those who free not known.
#[test]
fn a_guard_that_is_taken_by_what_is_freed_is_one() {
    std::thread_local!(static KEPT: RefCell<Option<super::Inner>> = const { RefCell::new(None) });
    std::thread_local!(static IS_MINE: Cell<bool> = const { Cell::new(false) });
    fn free(_: *mut ()) {
        // Other tests' threads free it too.
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
            LISTS.get(number()).push(GRACES.next(), vec![Retired(std::ptr::null_mut(), 0, free)]);
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
        assert!(!FREED.load(Ordering::SeqCst), "though a guard was there before");
        KEPT.set(None);
        assert!(!is_pinned());
    };
    std::thread::spawn(frees_and_keeps).join().expect("no panic");
}
