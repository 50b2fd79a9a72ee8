//! Garbage: what was retired and waits for readers, over `crossbeam-epoch`.
//!
//! Freeing touches what is freed. When the thread that passes a grace period frees whatever it finds, it pulls other
//! threads' objects into its core's cache, and they pull the memory back when they use it again: measured, that doubles the
//! cost of create + unlink with two threads. So garbage goes home:
//!
//! 1. A thread collects what it retires in a *bag*, and hands full bags to the epoch scheme, one deferred call each.
//! 2. When a bag is *ripe* (its grace period has passed), whoever finds it frees it if it is its own, and otherwise puts
//!    it into its owner's inbox.
//! 3. The owner looks there when it has filled bags. An owner that does not look gets no more than [`WAITING`] bags: the
//!    rest is freed by whoever finds it.
//!
//! Frees run inside [`pin`] (when the thread holds no guard yet), [`collect`] and [`back_pressure`], and as a thread ends,
//! as with `crossbeam-epoch` itself.

use std::{
    cell::Cell,
    mem::MaybeUninit,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicIsize, Ordering},
};

use crate::{
    blocks,
    inbox::{Inbox, Linked, Taken},
    reclaim,
};

pub(crate) type Inner = crossbeam_epoch::Guard;

/// Objects in a bag: it fills a block.
const BAG: usize = 20;
/// So many bags wait for a thread to look into its inbox.
const WAITING: usize = 8;
/// One in so many bags goes on with all that the epoch scheme keeps for this thread, and looks into the inbox.
const ROUND: u32 = 4;
/// Threads that have a number of their own. More than that share: nobody sends them what they have retired.
const OWNERS: usize = 64;
const SHARED: usize = OWNERS;

/// Something retired: where, how many bytes, and how it is freed.
#[derive(Clone, Copy)]
struct Retired(*mut (), usize, unsafe fn(*mut ()));

struct Bag {
    next: *mut Bag,
    len: u32,
    owner: u32,
    items: [MaybeUninit<Retired>; BAG],
}

const _: () = assert!(size_of::<Bag>() <= 512);

// SAFETY: the link is used by the inbox alone.
unsafe impl Linked for Bag {
    fn link(this: NonNull<Self>) -> NonNull<*mut Self> {
        // SAFETY: a place inside a live bag, so not null.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).next) }
    }
}

impl Bag {
    fn new(owner: usize) -> NonNull<Self> {
        blocks::place(Self { next: null_mut(), len: 0, owner: owner as u32, items: [MaybeUninit::uninit(); BAG] })
    }

    /// The caller knows that there is room.
    #[inline]
    fn push(&mut self, retired: Retired) {
        self.items[self.len as usize].write(retired);
        self.len += 1;
    }

    /// Frees what is in the bag, and the bag.
    ///
    /// # Safety
    /// The bag is the caller's, and ripe.
    unsafe fn free(bag: NonNull<Self>) {
        // SAFETY: the caller's; nothing that is freed comes back to this bag.
        let len = unsafe { bag.as_ref() }.len as usize;
        for at in 0..len {
            // SAFETY: as above; the first `len` items have been written.
            let Retired(ptr, bytes, free) = unsafe { bag.as_ref().items[at].assume_init() };
            // SAFETY: the contract of `retire`, and the grace period has passed.
            reclaim::let_go(|| unsafe { free(ptr) });
            account(-(bytes as isize));
        }
        // SAFETY: the caller's; it was placed.
        unsafe { blocks::discard(bag) };
    }

    /// The bag's grace period has passed: frees it, or sends it home.
    ///
    /// # Safety
    /// The bag is the caller's, and ripe.
    unsafe fn ripe(bag: NonNull<Self>) {
        // SAFETY: the caller's.
        let owner = unsafe { bag.as_ref() }.owner as usize;
        if owner == SHARED || owner == number() {
            // SAFETY: the caller's.
            return unsafe { Self::free(bag) };
        }
        // SAFETY: the caller's, given up here; `retire`'s contract allows any thread.
        match unsafe { HOMES[owner].inbox.send(bag, WAITING) } {
            Ok(taken) => Self::free_all(taken),
            // SAFETY: it has come back.
            Err(bag) => unsafe { Self::free(bag) },
        }
    }

    fn free_all(taken: Taken<'_, Self>) {
        for bag in taken {
            // SAFETY: taken, hence ours; ripe when it was sent.
            unsafe { Self::free(bag) };
        }
    }
}

/// What belongs to a number: retired bytes, and ripe bags that others found. Each on a line of its own.
#[repr(align(128))]
struct Home {
    /// Bytes that the owner has retired less those that it has freed: only the sum over all homes means something.
    bytes: AtomicIsize,
    inbox: Inbox<Bag>,
}

static HOMES: [Home; OWNERS + 1] = [const { Home { bytes: AtomicIsize::new(0), inbox: Inbox::new() } }; OWNERS + 1];

/// What was retired by threads at their very end, whose locals were gone: for whoever goes on. To hand it on at once
/// would nest. Without its locals, `crossbeam-epoch` collects at each [`pin`], which frees, which retires.
static ORPHANS: Inbox<Bag> = Inbox::new();

/// What a thread has of its own.
struct Local {
    number: usize,
    /// What was retired lately; null: nothing.
    bag: Cell<*mut Bag>,
    /// Bags that were handed on.
    sealed: Cell<u32>,
    /// The next outermost [`pin`] goes on with them.
    due: Cell<bool>,
}

std::thread_local!(static LOCAL: Local = Local::new());

/// This thread's number; the shared one once its locals are gone, as it ends.
fn number() -> usize {
    LOCAL.try_with(|local| local.number).unwrap_or(SHARED)
}

impl Local {
    fn new() -> Self {
        let number = HOMES[..OWNERS].iter().position(|home| home.inbox.claim()).unwrap_or(SHARED);
        Self { number, bag: Cell::new(null_mut()), sealed: Cell::new(0), due: Cell::new(false) }
    }

    #[inline]
    fn retire(&self, retired: Retired) {
        let mut bag = NonNull::new(self.bag.get()).unwrap_or_else(|| {
            let bag = Bag::new(self.number);
            self.bag.set(bag.as_ptr());
            bag
        });
        // SAFETY: the bag is this thread's, and nobody else borrows from it.
        let bag = unsafe { bag.as_mut() };
        bag.push(retired);
        if bag.len as usize == BAG {
            self.seal();
            self.sealed.set(self.sealed.get().wrapping_add(1));
            self.due.set(self.due.get() || self.sealed.get().is_multiple_of(ROUND));
        }
    }

    /// Hands the bag on, if there is one: what is in it was retired before, so it is ripe when the guards of now are gone.
    fn seal(&self) {
        if let Some(bag) = NonNull::new(self.bag.replace(null_mut())) {
            // SAFETY: given up here; all in it is unreachable for guards made from now on.
            unsafe { defer(bag) };
        }
    }

    fn home(&self) -> &'static Home {
        &HOMES[self.number]
    }

    /// Goes on with what was handed on. The caller's guard is the thread's first.
    #[cold]
    fn go_on(&self, guard: &Inner) {
        self.due.set(false);
        for bag in ORPHANS.take() {
            // SAFETY: taken, hence ours; what is in it was retired before.
            unsafe { defer(bag) };
        }
        guard.flush();
        Bag::free_all(self.home().inbox.take());
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.seal();
        if self.number != SHARED {
            Bag::free_all(self.home().inbox.leave());
        }
    }
}

/// # Safety
/// The bag is the caller's to give; nothing in it can be reached by guards made from now on.
unsafe fn defer(bag: NonNull<Bag>) {
    struct Sent(NonNull<Bag>);
    // SAFETY: the contract of `retire` allows freeing on any thread.
    unsafe impl Send for Sent {}
    impl Sent {
        fn ripe(self) {
            // SAFETY: given to us by `defer`'s caller, and its grace period has passed.
            unsafe { Bag::ripe(self.0) };
        }
    }
    let sent = Sent(bag);
    // SAFETY: the caller's; the bag is used by the closure alone.
    unsafe { crossbeam_epoch::pin().defer_unchecked(move || sent.ripe()) };
}

#[inline]
pub(crate) fn pin() -> Inner {
    // Without its locals, the thread is ending.
    if LOCAL.try_with(|local| local.due.get()).unwrap_or(false) { pin_and_go_on() } else { crossbeam_epoch::pin() }
}

#[cold]
fn pin_and_go_on() -> Inner {
    let first = !crossbeam_epoch::is_pinned();
    let guard = crossbeam_epoch::pin();
    if first {
        let _ = LOCAL.try_with(|local| local.go_on(&guard));
    }
    guard
}

/// # Safety
/// As for [`crate::reclaim::retire`].
#[inline]
pub(crate) unsafe fn retire(ptr: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
    account(bytes as isize);
    let retired = Retired(ptr, bytes, free);
    if LOCAL.try_with(|local| local.retire(retired)).is_err() {
        let mut bag = Bag::new(SHARED);
        // SAFETY: ours, and new.
        unsafe { bag.as_mut() }.push(retired);
        // SAFETY: given up here; the caller's contract allows any thread.
        unsafe { ORPHANS.push(bag) };
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
    HOMES.iter().map(|home| home.bytes.load(Ordering::Relaxed)).sum::<isize>().max(0) as usize
}

/// Objects that own objects are freed one generation after the other, each after a grace period of three epochs.
const COLLECT_ROUNDS: usize = 16;

pub(crate) fn collect() {
    if !crossbeam_epoch::is_pinned() {
        for _ in 0..COLLECT_ROUNDS {
            push_on();
            if retired_bytes() == 0 {
                break;
            }
        }
    }
}

/// Goes on with all that this thread has retired, full bag or not. It holds no guard.
fn push_on() {
    let guard = crossbeam_epoch::pin();
    let _ = LOCAL.try_with(|local| {
        local.seal();
        local.go_on(&guard);
    });
}

pub(crate) fn back_pressure(limit_bytes: usize) {
    let mut spins = 0_u32;
    while retired_bytes() >= limit_bytes && !crossbeam_epoch::is_pinned() {
        push_on();
        spins += 1;
        if spins < 64 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use crate::{Counted, Object};

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

    /// Threads that drop something as their last act, after their other locals, while much is ripe that retires more when
    /// it is freed: no stack grows with the garbage.
    /// Seen to fail (a stack overflow) when what ending threads retire is handed to the epoch scheme at once.
    #[test]
    fn ending_threads_do_not_nest() {
        const CHAINS: usize = if cfg!(miri) { 100 } else { 50_000 };
        const THREADS: usize = 4;
        let chain = || Counted::new(Chain { _next: Some(Counted::new(Chain { _next: None })) });
        let guard = super::pin();
        for n in 0..CHAINS {
            drop(chain());
            if n.is_multiple_of(2 * super::BAG) {
                guard.flush();
            }
        }
        drop(guard);
        // Ripe, most of it, and not freed.
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
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
}
