use std::cell::Cell;

use super::*;

/// Once in any case: the kernel may have just closed a file that lost its name long ago.
#[test]
fn no_space_is_retried_once_and_longer_after_a_removal() {
    let waiter = |threads| SpaceWaiter {
        start: Instant::now().checked_sub(Duration::from_secs(1)).expect("a machine that has run for a while"),
        ..SpaceWaiter::new(NonZeroUsize::new(threads).expect("some"))
    };
    let (tries, comes_with) = (Cell::new(0), Cell::new(u32::MAX));
    let attempt = || {
        tries.set(tries.get() + 1);
        if tries.get() < comes_with.get() { Err(Error::NoSpace) } else { Ok(()) }
    };
    assert_eq!((waiter(2).retry(attempt), tries.replace(0)), (Err(Error::NoSpace), 2));
    comes_with.set(2);
    assert_eq!((waiter(2).retry(attempt), tries.replace(0)), (Ok(()), 2));
    assert_eq!(
        (waiter(1).retry(attempt), tries.replace(0)),
        (Err(Error::NoSpace), 1),
        "no other thread would hear the kernel"
    );
    comes_with.set(5);
    let waiter = waiter(2);
    waiter.removed();
    assert_eq!((waiter.retry(attempt), tries.get()), (Ok(()), 5));
}
