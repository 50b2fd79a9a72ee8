//! `Revocable`: a check that is made under a name's lock, and can be revoked.
//!
//! A directory's permissions are an example. A thread that changes a name in it checks them first,
//! and the change must not happen after they were revoked. A lock for the directory would make the
//! two exclude each other, and all changes of names with them. Here a thread that checks writes
//! nothing. It holds the lock of a name anyway, so the thread that revokes sets a flag and then
//! waits once for each name lock. After that, every thread that checked before has finished, and
//! every thread that checks now sees the flag. So the rare revocation pays for the frequent check,
//! as in biased locks whose bias is revoked by a scan of the table of readers (Dice and Kogan,
//! *BRAVO*, USENIX ATC 2019).
//!
//! ```text
//!  thread that checks                      thread that revokes
//!  lock the name                           revoking := true
//!  revoking? unlock, wait                  each name lock: lock, unlock
//!  allowed? change the name                allowed := no          (the instant)
//!  unlock                                  revoking := false
//! ```
//!
//! No fence is needed. If the checking thread locked first, the revoking thread waits for it. If it
//! locked after the revoking thread unlocked, it sees `revoking`.

use crate::{
    facade::{AtomicBool, Ordering},
    locks::name_locks::NameLocks,
};

/// Whether a revocation is in progress: a load for a thread that checks, and no write.
#[derive(Debug)]
pub struct Revocable {
    revoking: AtomicBool,
}

/// A revocation in progress: until this is dropped, no thread relies on the check.
#[derive(Debug)]
#[must_use = "the check is revoked only while this lives"]
pub struct Revocation<'a> {
    of: &'a Revocable,
}

impl Revocable {
    /// No revocation is in progress.
    #[must_use]
    pub fn new() -> Self {
        Self { revoking: AtomicBool::new(false) }
    }

    /// Whether a check made now, with a name's lock held, remains valid until that lock is
    /// released. If not, a revocation is in progress, and the caller must release its locks, since
    /// the revocation waits for them.
    #[inline]
    #[must_use]
    pub fn is_valid(&self) -> bool {
        // Acquire: sees what a revocation that has ended changed.
        !self.revoking.load(Ordering::Acquire)
    }

    /// Waits for threads that have checked. From then on no thread relies on the check, until the
    /// revocation is dropped. One revocation at a time: the caller holds a lock for that, earlier
    /// in the order than names. [`NameLocks::synchronize`] says how long that takes; 12 ns for each
    /// lock that is free.
    ///
    /// # Panics
    /// As [`NameLocks::lock`].
    pub fn revoke<'a>(&'a self, locks: &NameLocks) -> Revocation<'a> {
        debug_assert!(self.is_valid(), "two revocations at the same time");
        // Relaxed: a thread that takes a name's lock after this thread released it sees the flag.
        self.revoking.store(true, Ordering::Relaxed);
        // The flag is reset from here on, also if the wait unwinds.
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

    /// A check under a lock is valid until the lock is released. Then it is revoked, and valid
    /// again at the end.
    #[test]
    fn revocation_waits_for_threads_that_checked() {
        let (locks, revocable) = (NameLocks::new(8), Revocable::new());
        let name = locks.lock(&[NameKey { dir: 1, hash: 2 }]);
        assert!(revocable.is_valid());
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
            while revocable.is_valid() {
                std::thread::yield_now();
            }
            assert!(is_revoked.try_recv().is_err(), "the revocation did not wait");
            drop(name);
            is_revoked.recv().expect("sent");
            assert!(!revocable.is_valid());
            go_on.send(()).expect("awaited");
            is_revoked.recv().expect("sent");
            assert!(revocable.is_valid());
        });
    }
}

#[cfg(all(test, loom))]
mod loom_model;
