//! Garbage: what was retired and waits for readers, and their guards.
//!
//! Freeing touches what is freed. When the thread that passes a grace period frees whatever it finds, it pulls other
//! threads' objects into its core's cache, and they pull the memory back when they use it again. Measured, that doubles the
//! cost of create + unlink with two threads; to send what was found back to its owner still costs a quarter. So garbage stays
//! where it is, and only the news that a grace period is over ([`Graces`]) goes around:
//!
//! 1. A thread collects what it retires in a *bag*. Full bags wait in a queue of its own, each for a grace period; others do
//!    when the thread only reads, and when they are heavy or hold something that others may wait for.
//! 2. One in [`ROUND`] bags, and now and then while it only reads, the thread begins a period if none is under way and enough
//!    waits, ends the one that is if it can, and frees some of the bags whose period is over.
//! 3. Queues are behind locks, which nobody else wants mostly. A thread that frees bags looks now and then whether another
//!    one's have waited much longer than they must: their owner may be asleep, or have ended. [`collect`], [`collect_all`] and
//!    [`back_pressure`] free everybody's. What a thread that sleeps has in the bag that it was filling (fewer than [`BAG`]
//!    objects, and less than [`HEAVY_BYTES`]) stays there until it wakes.
//!
//! Frees run inside [`pin`] (when the thread holds no guard), [`collect`], [`collect_all`] and [`back_pressure`].

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering},
    },
};

use crate::{
    facade,
    grace::{Graces, Slot},
    reclaim,
};

/// Objects in a full bag.
const BAG: usize = 20;
/// What weighs so much together does not wait for its bag to be full.
const HEAVY_BYTES: usize = 64 << 10;
/// After so many full bags a thread goes on with what waits.
const ROUND: u32 = 4;
/// It frees so many at once, so that what is freed finds room where it is made again (`blocks`); more if very many wait.
const GUST: usize = 2 * ROUND as usize;
/// So many bags are worth a grace period, of which all threads hear, at some hundred nanoseconds each.
const ENOUGH: usize = 8;
/// After so many guards, those within others not counted, it does so while something waits, though it retires nothing.
const READS: u32 = 512;
/// And after so many while nothing of its own does, for the sake of others.
const IDLE_READS: u32 = 2048;
/// One in so many times, and whenever nothing of its own waits, it looks at another thread's queue.
const VISIT: u32 = 16;
/// A visitor leaves what became ripe in so many last grace periods to its owner, if there is one.
const FRESH: u64 = 100;
/// Threads that have a number of their own. More than that share one.
const OWNERS: usize = 64;
const SHARED: usize = OWNERS;

static GRACES: Graces = Graces::new();

/// Something retired: where, how many bytes, and how it is freed.
#[derive(Clone, Copy)]
struct Retired(*mut (), usize, unsafe fn(*mut ()));

// SAFETY: the contract of `retire` allows freeing on any thread.
unsafe impl Send for Retired {}

/// What was retired before it began to wait.
struct Bag {
    /// The grace period that it waits for.
    period: u64,
    items: Vec<Retired>,
}

/// A bag whose period is over: until it is dropped, it is being freed. What a panic keeps from that goes back to where it was.
struct Ripe {
    home: &'static Home,
    bag: Bag,
}

impl Ripe {
    /// The queue of `home`, from which the bag is taken, is locked: who finds it empty finds this counted.
    fn new(home: &'static Home, bag: Bag) -> Self {
        // Relaxed: the queue's lock.
        home.freeing.fetch_add(1, Ordering::Relaxed);
        Self { home, bag }
    }

    fn free(mut self) {
        // It goes before this does: what is retired is there when nobody is freeing any more.
        let _heir = Heir::new(self.home);
        let _freeing = Freeing::new();
        while let Some(Retired(ptr, bytes, free)) = self.bag.items.pop() {
            account(-(bytes as isize));
            // SAFETY: the contract of `retire`, and the grace period has passed.
            reclaim::let_go(|| unsafe { free(ptr) });
        }
    }
}

impl Drop for Ripe {
    fn drop(&mut self) {
        if !self.bag.items.is_empty() {
            let rest = Bag { period: self.bag.period, items: std::mem::take(&mut self.bag.items) };
            facade::lock(&self.home.queue).push_front(rest);
        }
        self.home.freeing.fetch_sub(1, Ordering::Release);
    }
}

/// What belongs to a number. Each on lines of its own.
#[repr(align(128))]
struct Home {
    /// Bytes that the owner has retired less those that it has freed: only the sum over all homes means something.
    bytes: AtomicIsize,
    owned: AtomicBool,
    /// How many bags that waited here are being freed.
    freeing: AtomicUsize,
    /// How many bags the owner has put here, of what it retired itself. Written by the owner alone.
    filled: AtomicUsize,
    /// What waits, the oldest first. Nobody waits, or retires anything, while holding the lock.
    queue: Mutex<VecDeque<Bag>>,
}

impl Home {
    const fn new() -> Self {
        Self {
            bytes: AtomicIsize::new(0),
            owned: AtomicBool::new(false),
            freeing: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    /// What has been retired before waits from now on.
    fn push(&self, items: Vec<Retired>) {
        let bag = Bag { period: GRACES.next(), items };
        facade::lock(&self.queue).push_back(bag);
    }

    /// Frees what is ripe since `fresh` periods at least: so many bags at most. Returns how many there were. What that retires
    /// waits here, too: for who waits until all of it is gone, and so that nobody gets others' to wait for.
    fn free_ripe(&'static self, fresh: u64, most: usize) -> usize {
        let period = GRACES.over().saturating_sub(fresh);
        let take = || {
            let mut queue = facade::lock(&self.queue);
            if queue.front()?.period > period {
                return None;
            }
            queue.pop_front().map(|bag| Ripe::new(self, bag))
        };
        std::iter::from_fn(take).take(most).map(Ripe::free).count()
    }

    /// How many bags wait.
    fn waiting(&self) -> usize {
        facade::lock(&self.queue).len()
    }

    /// Whether nobody frees what waited. Acquire: it has been freed then.
    fn is_still(&self) -> bool {
        self.freeing.load(Ordering::Acquire) == 0
    }

    /// Whether nothing waits, and what did is freed.
    fn is_done(&self) -> bool {
        // In this order: whoever took the last of it was counted before.
        self.waiting() == 0 && self.is_still()
    }
}

/// Until it is dropped, what this thread retires is for this home.
struct Heir(Option<&'static Home>);

impl Heir {
    fn new(home: &'static Home) -> Self {
        Self(LOCAL.try_with(|local| local.fill_for(home)).ok())
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = LOCAL.try_with(|local| local.fill_for(before));
        }
    }
}

static HOMES: [Home; OWNERS + 1] = [const { Home::new() }; OWNERS + 1];
/// The homes that were ever anybody's come first: so many.
static INHABITED: AtomicUsize = AtomicUsize::new(0);

/// The homes in which there may be something.
fn homes() -> impl Iterator<Item = &'static Home> {
    // Relaxed: who does not see the newest one finds it the next time.
    HOMES[..INHABITED.load(Ordering::Relaxed)].iter().chain([&HOMES[SHARED]])
}

/// What a thread has of its own to say that it reads. It needs no destructor, so it is there as long as the thread is.
struct Reading {
    /// Where it says so, once it has.
    slot: Cell<Option<&'static Slot>>,
    guards: Cell<usize>,
    /// Guards until the thread goes on with what waits.
    countdown: Cell<u32>,
    /// Its other locals are gone: from now on it has a slot only while it reads.
    ends: Cell<bool>,
    /// It is freeing garbage, and waits for none: that might be what it frees.
    frees: Cell<bool>,
}

std::thread_local!(static READING: Reading = const { Reading::new() });

impl Reading {
    const fn new() -> Self {
        Self {
            slot: Cell::new(None),
            guards: Cell::new(0),
            countdown: Cell::new(IDLE_READS),
            ends: Cell::new(false),
            frees: Cell::new(false),
        }
    }

    #[inline]
    fn enter(&self) {
        if self.guards.get() == 0 && self.countdown.get() == 0 {
            go_on();
        }
        // Not before: what is freed ought not to take a guard, but if it does, and keeps it, there is one.
        let guards = self.guards.get();
        if guards == 0 {
            self.countdown.set(self.countdown.get().saturating_sub(1));
            self.slot.get().unwrap_or_else(|| self.claim()).enter(&GRACES);
        }
        self.guards.set(guards + 1);
    }

    #[inline]
    fn leave(&self) {
        let guards = self.guards.get() - 1;
        self.guards.set(guards);
        if guards == 0 {
            if let Some(slot) = self.slot.get() {
                slot.leave();
            }
            if self.ends.get() {
                self.give_back();
            }
        }
    }

    #[cold]
    fn claim(&self) -> &'static Slot {
        // Which sees to it that the slot is given back.
        if LOCAL.try_with(|_| ()).is_err() {
            self.ends.set(true);
        }
        let slot = GRACES.claim();
        self.slot.set(Some(slot));
        slot
    }

    #[cold]
    fn give_back(&self) {
        self.ends.set(true);
        if self.guards.get() == 0
            && let Some(slot) = self.slot.take()
        {
            slot.give_back();
        }
    }
}

/// A guard: it belongs to its thread.
pub(crate) struct Inner(());

#[inline]
pub(crate) fn pin() -> Inner {
    READING.with(Reading::enter);
    Inner(())
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        READING.with(Reading::leave);
    }
}

#[cfg(test)]
fn is_pinned() -> bool {
    READING.with(|reading| reading.guards.get() > 0)
}

/// Whether this thread can wait until all is freed that may be: it holds no guard, and is not freeing something itself.
fn may_wait() -> bool {
    READING.with(|reading| reading.guards.get() == 0 && !reading.frees.get())
}

/// Until it is dropped, this thread frees.
struct Freeing {
    before: bool,
}

impl Freeing {
    fn new() -> Self {
        Self { before: READING.with(|reading| reading.frees.replace(true)) }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        READING.with(|reading| reading.frees.set(self.before));
    }
}

/// What a thread has of its own besides.
struct Local {
    number: usize,
    /// What was retired lately.
    bag: RefCell<Vec<Retired>>,
    /// Where that is to wait.
    fills: Cell<&'static Home>,
    /// What that weighs.
    bag_bytes: Cell<usize>,
    /// Bags that were filled since the last time.
    filled: Cell<u32>,
    /// How often the thread went on with what waits.
    times: Cell<u32>,
    /// Whose queue it looked at last.
    visited: Cell<usize>,
}

std::thread_local!(static LOCAL: Local = Local::new());

/// This thread's number; the shared one once its locals are gone, as it ends.
fn number() -> usize {
    LOCAL.try_with(|local| local.number).unwrap_or(SHARED)
}

impl Local {
    fn new() -> Self {
        // Acquire: pairs with the release of the owner before, whose account goes on.
        let claim =
            |home: &Home| home.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let number = HOMES[..OWNERS].iter().position(claim).unwrap_or(SHARED);
        if number != SHARED {
            INHABITED.fetch_max(number + 1, Ordering::Relaxed);
        }
        let (bag, fills, bag_bytes) = (RefCell::default(), Cell::new(&HOMES[number]), Cell::new(0));
        let (filled, times, visited) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Self { number, bag, fills, bag_bytes, filled, times, visited }
    }

    fn home(&self) -> &'static Home {
        &HOMES[self.number]
    }

    #[inline]
    fn retire(&self, retired: Retired) {
        let mut bag = self.bag.borrow_mut();
        if bag.is_empty() {
            bag.reserve_exact(BAG);
        }
        let bytes = self.bag_bytes.get() + retired.1;
        self.bag_bytes.set(bytes);
        bag.push(retired);
        if bag.len() == BAG || bytes >= HEAVY_BYTES {
            drop(bag);
            self.seal();
            let filled = self.filled.get() + 1;
            self.filled.set(filled);
            if filled >= ROUND {
                READING.with(|reading| reading.countdown.set(0));
            }
        }
    }

    /// What was retired waits from now on.
    fn seal(&self) {
        let items = self.bag.take();
        self.bag_bytes.set(0);
        if !items.is_empty() {
            let home = self.fills.get();
            if std::ptr::eq(home, self.home()) && self.number != SHARED {
                // Relaxed: a hint for [`Idle`], which tolerates a late view.
                home.filled.store(home.filled.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            home.push(items);
        }
    }

    /// What is retired from now on waits in `home`. Returns where it did.
    fn fill_for(&self, home: &'static Home) -> &'static Home {
        let before = self.fills.get();
        if !std::ptr::eq(before, home) {
            self.seal();
            self.fills.set(home);
        }
        before
    }

    /// Goes on with what waits. The thread holds no guard. Returns after how many it is to do so again.
    fn go_on(&self) -> u32 {
        let reads = self.filled.replace(0) < ROUND;
        if reads {
            // It may be long until this bag is full.
            self.seal();
        }
        let waiting = self.home().waiting();
        let times = self.times.get().wrapping_add(1);
        self.times.set(times);
        let idle = reads && waiting == 0;
        let left_behind = (idle || times.is_multiple_of(VISIT)) && self.visit();
        if left_behind || waiting >= if reads { 1 } else { ENOUGH } {
            GRACES.begin();
        }
        GRACES.try_end();
        self.home().free_ripe(0, GUST.max(waiting / 16));
        match () {
            () if self.filled.get() >= ROUND => 0,
            () if idle => IDLE_READS,
            () => READS,
        }
    }

    /// Looks at another queue; answers whether it is nobody's and something goes on waiting there.
    fn visit(&self) -> bool {
        let visited = self.visited.get().wrapping_add(1) % (INHABITED.load(Ordering::Relaxed) + 1);
        self.visited.set(visited);
        // The last one is the shared one, which is nobody's.
        homes().nth(visited).is_some_and(|home| {
            let owned = home.owned.load(Ordering::Relaxed);
            home.free_ripe(if owned { FRESH } else { 0 }, GUST);
            !owned && home.waiting() > 0
        })
    }
}

impl Drop for Local {
    /// What waits is left to the others.
    fn drop(&mut self) {
        self.seal();
        if self.number != SHARED {
            self.home().owned.store(false, Ordering::Release);
        }
        READING.with(Reading::give_back);
    }
}

/// The thread holds no guard.
#[cold]
fn go_on() {
    if !may_wait() {
        // What is freed frees no more: no stack grows with the garbage.
        return;
    }
    // Without its locals, the thread is ending.
    let again = LOCAL.try_with(Local::go_on).unwrap_or(IDLE_READS);
    READING.with(|reading| reading.countdown.set(again));
}

/// Begins a grace period if none is under way, and ends the one that is if it can: what waits is nearer to being freed.
fn push_periods() {
    GRACES.begin();
    GRACES.try_end();
}

/// # Safety
/// As for [`crate::reclaim::retire`].
#[inline]
pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    account(bytes as isize);
    let retired = Retired(ptr, bytes, free);
    if LOCAL.try_with(|local| local.retire(retired)).is_err() {
        // The thread is ending.
        HOMES[SHARED].push(vec![retired]);
    }
}

fn account(delta: isize) {
    let number = number();
    let bytes = &HOMES[number].bytes;
    // Relaxed: a statistic; its readers tolerate a late view. Nobody but the owner writes where there is one.
    if number == SHARED {
        bytes.fetch_add(delta, Ordering::Relaxed);
    } else {
        bytes.store(bytes.load(Ordering::Relaxed).wrapping_add(delta), Ordering::Relaxed);
    }
}

pub(crate) fn retired_bytes() -> usize {
    homes().map(|home| home.bytes.load(Ordering::Relaxed)).sum::<isize>().max(0) as usize
}

/// So many rounds in which nothing of this thread's was freed, and nobody was at it: somebody reads.
const COLLECT_ROUNDS: usize = 32;
/// Rounds besides. Objects that own objects are freed one generation after the other; and while others are freeing what was
/// retired here, a file's contents may take them long.
const COLLECT_MORE: usize = 100_000;

pub(crate) fn collect() {
    collect_with(&Idle::none());
}

pub(crate) fn collect_all() {
    collect_with(&Idle::now());
}

/// Other threads' homes into which their owners have put nothing since: what waits there now, and what that frees in turn,
/// is all there will be. Of what busy threads retire there is no end.
struct Idle {
    homes: usize,
    filled: [usize; OWNERS],
}

impl Idle {
    fn none() -> Self {
        Self { homes: 0, filled: [0; OWNERS] }
    }

    fn now() -> Self {
        let homes = INHABITED.load(Ordering::Relaxed);
        let mut filled = [0; OWNERS];
        for (filled, home) in filled.iter_mut().zip(&HOMES[..homes]) {
            *filled = home.filled.load(Ordering::Relaxed);
        }
        Self { homes, filled }
    }

    fn homes(&self) -> impl Iterator<Item = &'static Home> {
        let is_idle = |(home, filled): &(&Home, &usize)| home.filled.load(Ordering::Relaxed) == **filled;
        HOMES[..self.homes].iter().zip(&self.filled).filter(is_idle).map(|(home, _)| home)
    }
}

/// Until what this thread has retired is freed, and what waits in the homes of the `idle`, and what that frees in turn.
fn collect_with(idle: &Idle) {
    if !may_wait() {
        return;
    }
    let period = GRACES.next();
    let is_done = |local: &Local| local.bag.borrow().is_empty() && local.home().is_done();
    let all_done = || LOCAL.try_with(is_done).unwrap_or(true) && idle.homes().all(Home::is_done);
    // Who frees some of what was retired here waits for nobody. But of what all threads without homes of their own have retired,
    // somebody may always be freeing some.
    let is_at_rest = |local: &Local| local.number == SHARED || local.home().is_still();
    let all_rest = || LOCAL.try_with(is_at_rest).unwrap_or(true) && idle.homes().all(Home::is_still);
    let (mut rounds, mut more) = (0, 0);
    while rounds < COLLECT_ROUNDS {
        let freed = push_on(idle);
        // What was retired before this call is freed, and what that freed in turn.
        if GRACES.over() >= period && all_done() {
            break;
        }
        if more == COLLECT_MORE {
            rounds += 1;
        } else if freed {
            (rounds, more) = (0, more + 1);
        } else if all_rest() {
            rounds += 1;
        } else {
            more += 1;
            std::thread::yield_now();
        }
    }
}

/// Goes on with what waits in all queues, and with this thread's bag, full or not; says whether something was freed of its own or
/// of the `idle`. It holds no guard.
fn push_on(idle: &Idle) -> bool {
    seal();
    push_periods();
    let number = number();
    let counts = |home: &Home| {
        let is = |other: &'static Home| std::ptr::eq(other, home);
        number != SHARED && is(&HOMES[number]) || idle.homes().any(is)
    };
    homes().filter(|home| home.free_ripe(0, usize::MAX) > 0 && counts(home)).count() > 0
}

/// What this thread has retired begins to wait, and is within everybody's reach.
pub(crate) fn seal() {
    let _ = LOCAL.try_with(Local::seal);
}

pub(crate) fn back_pressure(limit_bytes: usize) {
    let mut spins = 0_u32;
    while retired_bytes() >= limit_bytes.max(1) && may_wait() {
        push_on(&Idle::none());
        seal();
        if homes().all(Home::is_done) {
            // What is left is in the bags of others, who may be asleep.
            break;
        }
        spins += 1;
        if spins < 64 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
