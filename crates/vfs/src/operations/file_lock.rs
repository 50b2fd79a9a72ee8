//! Locking a file, or a range of it, against other programs that do the same. Reads and writes do
//! not look at these locks.

use crate::{
    Error, File, OpenFlags, Result, Vfs,
    objects::file_locks::Owner,
    types::{
        file_lock::{HeldLock, LockKind, LockOwner, LockRange, LockWait},
        trace_op::TraceOp,
    },
};

impl File {
    /// Sets a lock on a range (F_SETLK, F_SETLKW). It replaces the locks that the owner has there.
    /// A lock that reaches beyond the range is split.
    ///
    /// The process may close the file meanwhile. So after each success for a process, an embedder
    /// looks whether it still has the file open, as Linux does. If not, it calls
    /// [`File::release_process_locks`], and the program gets EBADF.
    ///
    /// # Errors
    /// EAGAIN: others have a lock, also after the wait. EDEADLK: one of them waits, perhaps through
    /// further processes, for this process. EINTR: [`File::interrupt_lock_waits`]. EBADF: not open
    /// for reading (shared) or writing (exclusive), or O_PATH. ENOLCK: there are about a million
    /// locks on ranges.
    pub fn lock_range(&self, owner: LockOwner, kind: LockKind, range: LockRange, wait: LockWait) -> Result<()> {
        self.traced(TraceOp::Lock, || {
            let flags = self.flags();
            let is_open = match kind {
                LockKind::Shared => flags.reads(),
                LockKind::Exclusive => flags.writes(),
            };
            if !is_open || flags.contains(OpenFlags::PATH) {
                return Err(Error::BadHandle);
            }
            let place = (self.lock_key(), self.lock_number());
            self.file_locks().set_range(place, self.owner(owner), Some(kind), range, wait)
        })
    }

    /// Removes what an owner has in a range (F_UNLCK).
    ///
    /// # Errors
    /// EBADF: O_PATH. ENOLCK: a lock would be split, and there are about a million.
    pub fn unlock_range(&self, owner: LockOwner, range: LockRange) -> Result<()> {
        self.expect_not_path()?;
        let place = (self.lock_key(), self.lock_number());
        self.file_locks().set_range(place, self.owner(owner), None, range, LockWait::No)
    }

    /// The lock of another owner with which [`File::lock_range`] would fail (F_GETLK): of several
    /// the one with the first byte.
    ///
    /// # Errors
    /// EBADF: O_PATH.
    pub fn conflicting_lock(&self, owner: LockOwner, kind: LockKind, range: LockRange) -> Result<Option<HeldLock>> {
        self.expect_not_path()?;
        Ok(self.file_locks().excluding(self.lock_key(), self.owner(owner), kind, range))
    }

    /// Releases all locks of a process on ranges of this file. On Linux, each close of the file by
    /// that process does so, except of a descriptor with O_PATH.
    pub fn release_process_locks(&self, process: u64) {
        if self.expect_not_path().is_ok() {
            self.file_locks().release(self.lock_key(), Owner::Process(process));
        }
    }

    /// Sets the lock of this open file (flock(2)). It is independent of locks on ranges. One of
    /// another kind is replaced. If that must wait, or fails because others have one, the old one
    /// is gone.
    ///
    /// # Errors
    /// EAGAIN: others have a lock, also after the wait. EINTR: [`File::interrupt_lock_waits`].
    /// EBADF: open neither for reading nor for writing, or O_PATH.
    pub fn flock(&self, kind: LockKind, wait: LockWait) -> Result<()> {
        self.traced(TraceOp::Lock, || {
            let flags = self.flags();
            if !(flags.reads() || flags.writes()) || flags.contains(OpenFlags::PATH) {
                return Err(Error::BadHandle);
            }
            self.file_locks().set_flock(self.lock_key(), self.lock_number(), Some(kind), wait)
        })
    }

    /// Removes the lock of this open file (LOCK_UN).
    ///
    /// # Errors
    /// EBADF: O_PATH.
    pub fn unlock(&self) -> Result<()> {
        self.expect_not_path()?;
        self.file_locks().set_flock(self.lock_key(), self.lock_number(), None, LockWait::No)
    }

    /// Ends all waits for locks by this open file: they fail with EINTR. A call that has not begun
    /// to wait is not ended. So a caller that wants to end one, for a signal or at the end of a
    /// program, repeats this until that call has returned. Locks are released after that.
    pub fn interrupt_lock_waits(&self) {
        self.file_locks().interrupt(self.lock_key(), self.lock_number());
    }

    fn expect_not_path(&self) -> Result<()> {
        if self.flags().contains(OpenFlags::PATH) { Err(Error::BadHandle) } else { Ok(()) }
    }

    fn owner(&self, owner: LockOwner) -> Owner {
        match owner {
            LockOwner::Process(number) => Owner::Process(number),
            LockOwner::OpenFile => Owner::OpenFile(self.lock_number()),
        }
    }

    /// How many threads wait for a lock of this file.
    #[cfg(feature = "introspection")]
    #[doc(hidden)]
    #[must_use]
    pub fn lock_waiters(&self) -> usize {
        self.file_locks().waiting(self.lock_key())
    }
}

impl Vfs {
    /// Releases all locks of a process on ranges of files, for the end of that process. Each file
    /// has its own instant.
    pub fn release_process_locks(&self, process: u64) {
        self.namespace().file_locks.release_process(process);
    }

    /// Whether there is no lock of a file, and nothing is kept for one.
    #[cfg(feature = "introspection")]
    #[doc(hidden)]
    #[must_use]
    pub fn has_no_locks(&self) -> bool {
        self.namespace().file_locks.is_empty()
    }
}
