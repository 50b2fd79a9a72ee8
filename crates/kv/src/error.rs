use std::{fmt, io};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an engine cannot do what it was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The storage has failed. The engine tries again with the next call.
    Io(io::Error),
    /// What the storage holds was not written by this engine, or has changed since.
    Damaged(String),
    /// Another process, or another part of this one, has the file open.
    InUse,
    /// A flush of the storage has failed, now or before. What was committed last may be lost in a
    /// crash, and a later flush would not say so. The engine does nothing more until it is opened
    /// again.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged(what) => write!(f, "damaged: {what}"),
            Self::InUse => f.write_str("in use by another process"),
            Self::Stopped => f.write_str("a flush to the disk has failed, so nothing more is stored"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(error) = self { Some(error) } else { None }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
