//! The locks that programs ask for: on a range of a file (fcntl(2)), on an open file (flock(2)).

use std::time::Duration;

use crate::{Error, Result};

/// The largest offset of a file.
const LAST: u64 = i64::MAX as u64;

/// Whether others may have a lock on the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others may have a shared lock too (F_RDLCK, LOCK_SH).
    Shared,
    /// Nobody else has a lock on these bytes (F_WRLCK, LOCK_EX).
    Exclusive,
}

/// A range of bytes of a file, not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    pub(crate) first: u64,
    /// Inclusive. The largest offset means: to the end, however long the file gets.
    pub(crate) last: u64,
}

impl LockRange {
    /// All bytes of a file, however long it gets.
    pub const WHOLE: Self = Self { first: 0, last: LAST };

    /// `len` bytes from `start` on. 0 bytes: all from `start` on, however long the file gets.
    ///
    /// # Errors
    /// EINVAL for a start beyond 2^63 - 1, EOVERFLOW for an end beyond it.
    pub fn new(start: u64, len: u64) -> Result<Self> {
        if start > LAST {
            return Err(Error::Invalid);
        }
        let last = if len == 0 { Some(LAST) } else { start.checked_add(len - 1) };
        let last = last.filter(|last| *last <= LAST).ok_or(Error::Overflow)?;
        Ok(Self { first: start, last })
    }

    /// The offset of the first byte.
    #[must_use]
    pub fn start(self) -> u64 {
        self.first
    }

    /// The offset behind the last byte. None: it goes to the end, however long the file gets.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        (self.last < LAST).then(|| self.last + 1)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The owner of a lock on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// A process (F_SETLK): the embedder gives it a number. The locks that it takes by any open
    /// file of an inode are of one owner. A close by that process releases them all
    /// ([`File::release_process_locks`](crate::File::release_process_locks)).
    Process(u64),
    /// The open file description (F_OFD_SETLK). Its close releases its locks.
    OpenFile,
}

/// How long to wait for a lock that others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Not at all (F_SETLK, LOCK_NB).
    No,
    /// As long as it takes (F_SETLKW).
    Forever,
    /// Up to this time.
    For(Duration),
}

/// A lock on a range that somebody has (F_GETLK).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The bytes.
    pub range: LockRange,
    /// The process. None: an open file description.
    pub process: Option<u64>,
}
