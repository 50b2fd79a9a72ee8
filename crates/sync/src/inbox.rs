//! `Inbox`: what others have found and belongs to one thread.
//!
//! A stack that everybody may push to, and that is taken as a whole (Treiber, *Systems programming: coping with
//! parallelism*, 1986): nothing is taken from the middle, so there is no ABA. It has an owner or none.
//!
//! **Nothing stays behind when the owner leaves.** The owner gives the inbox up first and takes what is in it then; a
//! sender pushes first and looks then whether there still is an owner. With a fence between on both sides, one of the
//! two sees the other, and what was sent is taken by the owner or comes back to a sender.

use std::{marker::PhantomData, ptr::NonNull};

use crate::facade::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

/// What can wait in an inbox: it has room for a link.
///
/// # Safety
/// `link` gives the same place each time, inside `this`, that nobody else uses while it is in an inbox.
pub(crate) unsafe trait Linked {
    /// Where the link is.
    fn link(this: NonNull<Self>) -> NonNull<*mut Self>;
}

/// An inbox for `T`s, which own themselves: what is in it, is taken by somebody.
pub(crate) struct Inbox<T: Linked> {
    top: AtomicPtr<T>,
    owned: AtomicBool,
    /// About how many items there are.
    waiting: AtomicUsize,
    _holds: PhantomData<*mut T>,
}

// SAFETY: items are handed from thread to thread, and the senders answer for that.
unsafe impl<T: Linked> Sync for Inbox<T> {}
// SAFETY: as above.
unsafe impl<T: Linked> Send for Inbox<T> {}

macro_rules! constant_outside_of_models {
    ($(#[$doc:meta])* fn $name:ident() -> Self $body:block) => {
        #[cfg(not(loom))]
        $(#[$doc])* pub(crate) const fn $name() -> Self $body
        #[cfg(loom)]
        $(#[$doc])* pub(crate) fn $name() -> Self $body
    };
}

impl<T: Linked> Inbox<T> {
    constant_outside_of_models! {
        /// Empty, and without an owner.
        fn new() -> Self {
            Self {
                top: AtomicPtr::new(std::ptr::null_mut()),
                owned: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                _holds: PhantomData,
            }
        }
    }

    /// Becomes the owner, if there is none.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: pairs with the release of the owner before: what goes with the inbox is handed over.
        self.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The owner leaves; what is in the inbox is the caller's to see to.
    pub(crate) fn leave(&self) -> Taken<'_, T> {
        self.owned.store(false, Ordering::Release);
        // Given up before it is emptied: see above.
        fence(Ordering::SeqCst);
        self.take()
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Taken<'_, T> {
        // Acquire: pairs with the release of each who pushed (they follow each other in one release sequence).
        Taken { next: self.top.swap(std::ptr::null_mut(), Ordering::Acquire), inbox: self }
    }

    /// Puts an item in, whether there is an owner or not.
    ///
    /// # Safety
    /// As for [`Inbox::send`].
    pub(crate) unsafe fn push(&self, item: NonNull<T>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: the item is ours until the exchange, and the place is in it.
            unsafe { T::link(item).write(top) };
            // Release: who takes it sees the item and its link.
            match self.top.compare_exchange_weak(top, item.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Sends an item to the owner, unless there is none, or `limit` items wait for it: then it comes back. What the
    /// call yields is the caller's to see to; mostly nothing.
    ///
    /// # Safety
    /// `item` is the caller's, and from now on whoever's that takes it, on any thread.
    pub(crate) unsafe fn send(&self, item: NonNull<T>, limit: usize) -> Result<Taken<'_, T>, NonNull<T>> {
        // Relaxed: asked again below; the limit is about.
        if !self.owned.load(Ordering::Relaxed) || self.waiting.load(Ordering::Relaxed) >= limit {
            return Err(item);
        }
        // SAFETY: the caller's.
        unsafe { self.push(item) };
        // Pushed before the owner is asked for: see above.
        fence(Ordering::SeqCst);
        let owned = self.owned.load(Ordering::Relaxed);
        Ok(if owned { Taken { next: std::ptr::null_mut(), inbox: self } } else { self.take() })
    }
}

/// What was taken out of an inbox: the items are whoever's who iterates, and who does so to the end.
#[must_use]
pub(crate) struct Taken<'a, T: Linked> {
    next: *mut T,
    inbox: &'a Inbox<T>,
}

impl<T: Linked> Iterator for Taken<'_, T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.next)?;
        // SAFETY: taken out by an exchange, hence nobody else's, and its link was written before it was pushed.
        self.next = unsafe { T::link(item).read() };
        self.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(item)
    }
}

#[cfg(all(test, loom))]
#[path = "inbox_loom.rs"]
mod loom_model;
