//! How names are locked.

/// How changes of names in one directory exclude each other.
///
/// Look-ups take no lock in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryLocks {
    /// A lock for each name, in as many stripes as this machine needs: 64 for each core. A
    /// directory has one lock until two threads contend for it.
    #[default]
    PerName,
    /// As [`DirectoryLocks::PerName`], with this many stripes, rounded up to a power of two. There
    /// are at most 2^20.
    Stripes(usize),
    /// One lock for each directory, as in Linux: changes of names in one directory wait for each
    /// other. To measure what name locks gain.
    PerDirectory,
}
