//! How names are locked.

use pando_sync::NameLocks;

/// How changes of names in one directory exclude each other.
///
/// A look-up that the cache answers takes no lock in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryLocks {
    /// A lock for each name, in as many stripes as this machine needs: 64 for each core. A
    /// directory has one lock until two threads contend for it.
    #[default]
    PerName,
    /// As [`DirectoryLocks::PerName`], with this many stripes, rounded up to a power of two. There
    /// are at most [`DirectoryLocks::STRIPES_MAX`]. A stripe takes 128 bytes.
    Stripes(usize),
    /// One lock for each directory, as in Linux: changes of names in one directory wait for each
    /// other. To measure what name locks gain.
    PerDirectory,
}

impl DirectoryLocks {
    /// The most stripes that there can be.
    pub const STRIPES_MAX: usize = NameLocks::STRIPES_MAX;
}
