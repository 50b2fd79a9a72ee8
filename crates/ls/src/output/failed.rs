//! Failures: reported on stderr, and remembered for the exit status. The listing goes on.

use std::{fmt, io, process::ExitCode};

use pando_console::{failure::say, quote::in_message};

/// The text of an errno, as in the C library.
pub fn message(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let number = format!(" (os error {errno})");
    text.strip_suffix(&number).map(str::to_owned).unwrap_or(text)
}

/// The severity of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Status {
    /// All was listed.
    #[default]
    Well,
    /// A part of a directory was not listed.
    Minor,
    /// A path on the command line was not listed.
    Serious,
}

impl Status {
    /// Reports a failure, and remembers its severity. `what` ends before the name, as in "cannot
    /// open directory".
    pub fn failed(&mut self, level: Self, what: impl fmt::Display, name: &[u8], errno: i32) {
        self.say(level, format_args!("{what} {}: {}", in_message(name), message(errno)));
    }

    /// The same for a failure that is not of a system call.
    pub fn say(&mut self, level: Self, what: impl fmt::Display) {
        *self = (*self).max(level);
        say(format_args!("pando ls: {what}"));
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(match status {
            Status::Well => 0,
            Status::Minor => 1,
            Status::Serious => 2,
        })
    }
}
