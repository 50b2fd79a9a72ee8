//! `Revocable`: something that is checked under a name's lock, and can be taken back.
//!
//! A directory's permissions: whoever changes a name in it checks them first, and the change must not come after they
//! were taken away. A lock per directory would make the two exclude each other, and all changes of names with them. Here
//! those who check write nothing: they hold the lock of a name anyway, so the one who takes something back says so, and
//! passes once through all the name locks. Behind that, whoever had checked before has finished, and whoever checks now
//! sees that it is being taken back. So the few who take back pay for the many who check, as in biased locks whose bias is
//! revoked by looking through the table of readers (Dice and Kogan, *BRAVO*, USENIX ATC 2019).
//!
//! ```text
//!  who checks                              who takes back
//!  lock the name                           revoking := true
//!  revoking? give the lock back, wait      each name lock: lock, unlock
//!  allowed? change the name                allowed := no          (the instant)
//!  unlock                                  revoking := false
//! ```
//!
//! No fence is needed: a lock that was taken before the other took it is waited for, and one that is taken after the other
//! gave it back brings `revoking` with it.

use crate::{
    facade::{AtomicBool, Ordering},
    locks::name_locks::NameLocks,
};

/// Whether something is being taken back: a load for who checks, and no write.
#[derive(Debug)]
pub struct Revocable {
    revoking: AtomicBool,
}

/// Something is being taken back, and nobody makes use of it: who checks is refused until this is dropped.
#[derive(Debug)]
#[must_use = "nobody makes use of it only while this lives"]
pub struct Revocation<'a> {
    of: &'a Revocable,
}

impl Revocable {
    /// Nothing is being taken back.
    #[must_use]
    pub fn new() -> Self {
        Self { revoking: AtomicBool::new(false) }
    }

    /// Whether what is checked now, with a name's lock held, will stand until that lock is given back. Otherwise it is just
    /// being taken back: the locks must be given back, since that waits for them.
    #[inline]
    #[must_use]
    pub fn stands(&self) -> bool {
        // Acquire: behind a revocation that has ended, what it has changed is seen.
        !self.revoking.load(Ordering::Acquire)
    }

    /// Waits for whoever has checked; from then on nobody makes use of it, until the revocation is dropped. One at a time:
    /// the caller holds a lock for that, earlier in the order than names. [`NameLocks::synchronize`] says what
    /// that takes; of each lock that is free, 12 ns.
    ///
    /// # Panics
    /// As [`NameLocks::lock`].
    pub fn revoke<'a>(&'a self, locks: &NameLocks) -> Revocation<'a> {
        debug_assert!(self.stands(), "two take it back at once");
        // Relaxed: whoever takes a name's lock behind us sees it.
        self.revoking.store(true, Ordering::Relaxed);
        // Said from here on, also if the wait unwinds.
        let revocation = Revocation { of: self };
        locks.synchronize();
        revocation
    }
}

impl Default for Revocable {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Revocation<'_> {
    fn drop(&mut self) {
        self.of.revoking.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::name_locks::NameKey;
    use std::sync::mpsc;

    /// What is checked under a lock stands until the lock is given back; then it is taken back, and given back at the end.
    #[test]
    fn it_is_taken_back_behind_who_has_checked() {
        let (locks, revocable) = (NameLocks::new(8), Revocable::new());
        let name = locks.lock(&[NameKey { dir: 1, hash: 2 }]);
        assert!(revocable.stands());
        std::thread::scope(|scope| {
            let (revoked, is_revoked) = mpsc::channel();
            let (go_on, goes_on) = mpsc::channel::<()>();
            let (locks, revocable) = (&locks, &revocable);
            scope.spawn(move || {
                let revocation = revocable.revoke(locks);
                revoked.send(()).expect("awaited");
                goes_on.recv().expect("sent");
                drop(revocation);
                revoked.send(()).expect("awaited");
            });
            while revocable.stands() {
                std::thread::yield_now();
            }
            assert!(is_revoked.try_recv().is_err(), "it does not wait");
            drop(name);
            is_revoked.recv().expect("sent");
            assert!(!revocable.stands());
            go_on.send(()).expect("awaited");
            is_revoked.recv().expect("sent");
            assert!(revocable.stands());
        });
    }
}

#[cfg(all(test, loom))]
mod loom_model;
