//! Failures of a scan as a whole. Failures of one entry are in its record.

use std::{fmt, io, path::PathBuf};

use pando_records::Mask;

use crate::{MAX_FIXED_WORKERS, MIN_BUDGET_BYTES};

/// The result of a scan or a walk.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a scan could not begin or continue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The budget is smaller than [`MIN_BUDGET_BYTES`] (EINVAL).
    Budget(usize),
    /// The mask has unknown bits (EINVAL).
    Mask(u32),
    /// The fields have unknown bits (EINVAL).
    Fields(u32),
    /// No worker, or more than [`MAX_FIXED_WORKERS`] (EINVAL).
    Workers(usize),
    /// The directory could not be opened.
    Open {
        /// The path as it was passed.
        path: PathBuf,
        /// The errno of open(2).
        errno: i32,
    },
    /// The rest of the directory could not be read.
    Read {
        /// The errno of getdents64(2).
        errno: i32,
    },
}

impl Error {
    /// The errno of Linux.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Budget(_) | Self::Mask(_) | Self::Fields(_) | Self::Workers(_) => libc::EINVAL,
            Self::Open { errno, .. } | Self::Read { errno } => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(asked) => {
                write!(
                    f,
                    "a budget of {asked} bytes is too small to list anything: give it at least {MIN_BUDGET_BYTES}"
                )
            }
            Self::Mask(bits) => {
                write!(f, "the mask {bits:#x} has unknown bits: {:#x} are known", Mask::all())
            }
            Self::Fields(bits) => {
                write!(f, "the fields {bits:#x} have unknown bits: {:#x} are known", pando_records::Fields::all())
            }
            Self::Workers(count) => {
                write!(f, "{count} workers: give 1 to {MAX_FIXED_WORKERS}, or leave the number to the scan")
            }
            Self::Open { path, errno } => {
                write!(f, "cannot open {}: {}", path.display(), io::Error::from_raw_os_error(*errno))
            }
            Self::Read { errno } => write!(f, "cannot read the directory: {}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}
