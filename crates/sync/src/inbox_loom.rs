//! The inbox, model-checked.

use std::ptr::NonNull;

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::{Inbox, Linked, Taken};

struct Item {
    next: *mut Item,
    number: UnsafeCell<usize>,
}

// SAFETY: `next` is for the inbox alone.
unsafe impl Linked for Item {
    fn link(this: NonNull<Self>) -> NonNull<*mut Self> {
        // SAFETY: a place inside a live item.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).next) }
    }
}

/// Sends a number; returns those that came back.
fn send(inbox: &Inbox<Item>, number: usize, limit: usize) -> Vec<usize> {
    let item = Box::new(Item { next: std::ptr::null_mut(), number: UnsafeCell::new(0) });
    // SAFETY: ours alone so far.
    item.number.with_mut(|place| unsafe { *place = number });
    // SAFETY: given up here.
    match unsafe { inbox.send(NonNull::from(Box::leak(item)), limit) } {
        Ok(taken) => numbers(taken),
        Err(item) => vec![open(item)],
    }
}

fn open(item: NonNull<Item>) -> usize {
    // SAFETY: given to us by the inbox; it came from a box.
    let item = unsafe { Box::from_raw(item.as_ptr()) };
    // SAFETY: ours alone; the model checker fails here if the push does not happen before.
    item.number.with(|place| unsafe { *place })
}

fn numbers(taken: Taken<'_, Item>) -> Vec<usize> {
    taken.map(open).collect()
}

/// Two send while the owner looks in: everything is taken once, whole.
///
/// Seen to fail: a push that is Relaxed (the number is read while it is written); a push that stores its item instead of
/// exchanging it (one is lost); a take that loads and then stores (one is lost, or taken twice).
#[test]
fn each_item_is_taken_once() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        assert!(inbox.claim() && !inbox.claim());
        let sender = {
            let inbox = inbox.clone();
            thread::spawn(move || [send(&inbox, 1, 9), send(&inbox, 2, 9)].concat())
        };
        let other = {
            let inbox = inbox.clone();
            thread::spawn(move || send(&inbox, 3, 9))
        };
        let mut taken = numbers(inbox.take());
        taken.extend(sender.join().unwrap());
        taken.extend(other.join().unwrap());
        taken.extend(numbers(inbox.take()));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3]);
    });
}

/// The owner leaves while two send: nothing stays in the inbox, whoever gets it.
///
/// Seen to fail without either fence, with an owner that empties the inbox before it gives it up, and with a sender that
/// does not ask again after it has pushed.
#[test]
fn nothing_stays_behind() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        assert!(inbox.claim());
        let senders: Vec<_> = (1..=2)
            .map(|number| {
                let inbox = inbox.clone();
                thread::spawn(move || send(&inbox, number, 9))
            })
            .collect();
        let mut taken = numbers(inbox.leave());
        taken.extend(senders.into_iter().flat_map(|sender| sender.join().unwrap()));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2], "nothing is left, and nobody is there to look");
        assert!(inbox.claim(), "free for the next");
    });
}

/// An owner that does not look gets no more than the limit. (One thread: with more, the limit is about.)
#[test]
fn the_limit_holds() {
    loom::model(|| {
        let inbox = Inbox::new();
        assert_eq!(send(&inbox, 1, 2), [1], "nobody owns it");
        assert!(inbox.claim());
        assert_eq!([send(&inbox, 2, 2), send(&inbox, 3, 2), send(&inbox, 4, 2)].concat(), [4]);
        assert_eq!(numbers(inbox.leave()), [3, 2]);
    });
}
