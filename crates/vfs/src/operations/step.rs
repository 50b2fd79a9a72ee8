//! What an attempt yields: a result, or why it has none.

use crate::{Error, caches::ask::Ask};

/// Why an attempt ended without a result.
pub(crate) enum Stop {
    /// It failed.
    Error(Error),
    /// It wants a lock that is taken.
    Wait,
    /// Permissions of the directory of this number are being taken away. The thread that does it waits for this operation's
    /// locks.
    Revoked(u64),
    /// What it works on has changed under it: another attempt sees a consistent picture.
    Again,
    /// Directories kept changing their places while a step up was taken in a root of one's own.
    Moved,
    /// Only the backing knows: it is asked, without a guard, and the next attempt finds the answer.
    Ask(Box<Ask>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What an attempt yields.
pub(crate) type Step<T> = std::result::Result<T, Stop>;

/// Where a change is made. An operation decides it once, by the directory that it changes.
pub(crate) enum Commit<L, R> {
    /// In memory, where the tree is its own cache.
    Local(L),
    /// In a backing first, and then in the cache ([`crate::operations::remote`]).
    Remote(R),
}

impl<T> Commit<T, T> {
    /// The result, wherever it was made.
    pub(crate) fn into_inner(self) -> T {
        match self {
            Self::Local(result) | Self::Remote(result) => result,
        }
    }
}
