//! The outcome of an attempt: a result, or the reason why there is none.

use crate::{Error, caches::ask::Ask};

/// Why an attempt ended without a result.
pub(crate) enum Stop {
    /// The operation failed.
    Error(Error),
    /// The attempt needs a lock that another thread holds.
    Wait,
    /// Permissions of the directory with this inode number are being revoked. The revoking thread
    /// waits for this operation's locks.
    Revoked(u64),
    /// The attempt's look-up is out of date. The next attempt sees a consistent state.
    Again,
    /// Directories kept moving while the attempt took a step up below a root of its own.
    Moved,
    /// Only the backing knows. It is asked without a guard, and the next attempt finds the answer
    /// in the cache.
    Ask(Box<Ask>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The outcome of an attempt.
pub(crate) type Step<T> = std::result::Result<T, Stop>;

/// Where a change is made. An operation decides this once, by the directory that it changes.
pub(crate) enum Commit<L, R> {
    /// In memory, where the tree is its own cache.
    Local(L),
    /// In a backing first, and then in the cache ([`crate::operations::remote`]).
    Remote(R),
}

impl<T> Commit<T, T> {
    /// The result, in either case.
    pub(crate) fn into_inner(self) -> T {
        match self {
            Self::Local(result) | Self::Remote(result) => result,
        }
    }
}
