//! The bag that a thread fills with the objects it retires, and the list that gets the bag.

use std::cell::{Cell, RefCell};

use super::{
    grace::GracePeriods,
    retire_list::{RetireList, RetireLists, Retired, SHARED},
};
use crate::{
    facade::Ordering,
    tuning::{BAG, HEAVY_BYTES},
};

/// A thread's list and its open bag.
pub(super) struct Filling<'a> {
    grace_periods: &'a GracePeriods,
    /// The list of this thread.
    own: &'a RetireList,
    /// The number of that list.
    pub(super) number: usize,
    /// The objects that were retired last.
    bag: RefCell<Vec<Retired>>,
    /// The size of the objects in the bag.
    bag_bytes: Cell<usize>,
    /// The list where the bag is to wait.
    target: Cell<&'a RetireList>,
    /// Whether what is retired was released by something that is freed.
    redirected: Cell<bool>,
}

impl<'a> Filling<'a> {
    pub(super) fn new(grace_periods: &'a GracePeriods, lists: &'a RetireLists) -> Self {
        let number = lists.claim();
        let own = lists.get(number);
        let (bag, bag_bytes, target) = (RefCell::default(), Cell::new(0), Cell::new(own));
        Self { grace_periods, own, number, bag, bag_bytes, target, redirected: Cell::new(false) }
    }

    pub(super) fn own(&self) -> &'a RetireList {
        self.own
    }

    /// Whether the open bag holds nothing.
    #[cfg(not(loom))]
    pub(super) fn is_empty(&self) -> bool {
        self.bag.borrow().is_empty()
    }

    /// Puts an object into the bag. Says whether the bag was full or heavy, and was flushed.
    #[inline]
    pub(super) fn retire(&self, retired: Retired) -> bool {
        let mut bag = self.bag.borrow_mut();
        if bag.is_empty() {
            bag.reserve_exact(BAG);
        }
        let bytes = self.bag_bytes.get() + retired.1;
        self.bag_bytes.set(bytes);
        bag.push(retired);
        let full = bag.len() == BAG || bytes >= HEAVY_BYTES;
        if full {
            drop(bag);
            self.flush();
        }
        full
    }

    /// Moves the bag into its list: its objects wait for readers from now on.
    pub(super) fn flush(&self) {
        let items = self.bag.take();
        self.bag_bytes.set(0);
        if !items.is_empty() {
            let list = self.target.get();
            // A thread without a list of its own frees objects of the shared list, and that retires
            // others. These are not counted: they do not make the thread busy.
            if std::ptr::eq(list, self.own) && !(self.number == SHARED && self.redirected.get()) {
                list.count_filled(self.number);
            }
            list.push(self.grace_periods.next(), items);
        }
    }

    /// Objects that are retired from now on wait in `list`. Returns the list until now.
    fn retarget(&self, list: &'a RetireList) -> &'a RetireList {
        let before = self.target.get();
        // Objects of the shared list must not stay in the bag of one thread. Others could not free
        // them there.
        if !std::ptr::eq(before, list) || self.number == SHARED {
            self.flush();
            self.target.set(list);
        }
        before
    }

    /// Until the result is dropped, objects that this thread retires wait in `list`.
    pub(super) fn redirect(&self, list: &'a RetireList) -> Redirected<'_, 'a> {
        Redirected { filling: self, before: self.retarget(list), was_redirected: self.redirected.replace(true) }
    }

    /// The thread ends. Other threads free the objects that wait.
    pub(super) fn end(&self) {
        self.flush();
        if self.number != SHARED {
            // Release: pairs with the acquire of the next owner.
            self.own.owned.store(false, Ordering::Release);
        }
    }
}

/// Until this is dropped, objects that this thread retires wait in another list.
pub(super) struct Redirected<'b, 'a> {
    filling: &'b Filling<'a>,
    before: &'a RetireList,
    was_redirected: bool,
}

impl Drop for Redirected<'_, '_> {
    fn drop(&mut self) {
        self.filling.retarget(self.before);
        self.filling.redirected.set(self.was_redirected);
    }
}
