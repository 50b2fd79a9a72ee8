//! Failures of a command: reported once, on stderr, with a remedy.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Write},
    path::Path,
};

use crate::quote;

/// Writes a message to stderr. Write errors are ignored: the terminal may be gone or the disk full.
/// `eprintln!` would panic, and a server would leave a dead mount behind.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A failure: its object, the reason, and the remedy.
#[derive(Debug)]
pub struct Failure {
    message: String,
    remedy: Option<String>,
    /// Not reported: the reader of stdout has closed the pipe (as in `pando ... | head -1`).
    quiet: bool,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message: the object, a colon, and the reason.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: None, quiet: false }
    }

    /// A system call on `thing` failed.
    pub fn system(thing: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{thing}: {error}"))
    }

    /// Writing to stdout failed.
    pub fn output(error: &io::Error) -> Self {
        Self { quiet: error.kind() == io::ErrorKind::BrokenPipe, ..Self::system("standard output", error) }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether this is neither reported nor a failure of the command.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// A name for a message: quoted for a shell if needed. So an empty name is visible, and a name can
/// neither send commands to a terminal nor start a new line.
pub fn shown(name: &OsStr) -> String {
    quote::for_shell(Path::new(name))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pando: {}", self.message)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "\n  {}", remedy.replace('\n', "\n  ")))
    }
}
