//! Reasons why a run ended early.

use std::{fmt, io};

pub(crate) use pando_console::failure::say as print_error;

/// The result of a removal, if the file may have been removed by another process.
pub(crate) fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The reason why a run ended without a result.
#[derive(Debug)]
pub enum Failure {
    /// Ctrl-C, SIGTERM or SIGHUP. The measured files have been removed.
    Interrupted,
    /// The request cannot be met; the text says what to do.
    Refused(String),
    /// An operation failed: what the run was doing (and on which file), and the system's error.
    Io(String, io::Error),
}

impl Failure {
    /// 130 after an interruption, as shells expect; 2 for a request that cannot be met; otherwise
    /// 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Refused(_) => 2,
            Self::Io(..) => 1,
        }
    }

    /// Puts the name of the target before what the run was doing.
    pub(crate) fn of(self, target: impl fmt::Display) -> Self {
        match self {
            Self::Io(what, error) => Self::Io(format!("{target}: {what}"), error),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Refused(why) => f.write_str(why),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Interrupted | Self::Refused(_) => None,
        }
    }
}

/// Adds to an error what the run was doing.
pub(crate) trait During<T> {
    /// The error becomes a [`Failure`] that begins with `what`.
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::Io(what(), error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_file_and_the_errno() {
        let result: Result<(), io::Error> = Err(io::Error::from_raw_os_error(2));
        let failure = result.during(|| "opening /x".into()).expect_err("it was an error");
        let text = failure.to_string();
        assert!(text.starts_with("opening /x: No such file"), "{text}");
        assert_eq!(failure.exit_code(), 1);
        assert_eq!(Failure::Interrupted.exit_code(), 130);
    }
}
