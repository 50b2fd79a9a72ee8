//! What a command failed of: said once, on stderr, with what to do about it.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Write},
    path::Path,
};

use crate::quote;

/// Says something on stderr, in one line or with what to do below it. Nobody may be listening (a terminal that is gone, a
/// full disk), and that must not be the end of us: `eprintln!` would panic, and a server's mount would be left dead.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A failure: what it was about, what went wrong, and the remedy.
#[derive(Debug)]
pub struct Failure {
    message: String,
    remedy: Option<String>,
    /// Not worth a word: the reader of our output has gone (as in `pando ... | head -1`).
    quiet: bool,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure said in `message`: the thing, a colon, what is wrong with it.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: None, quiet: false }
    }

    /// A system call failed on `thing`.
    pub fn system(thing: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{thing}: {error}"))
    }

    /// Writing to stdout failed.
    pub fn output(error: &io::Error) -> Self {
        Self { quiet: error.kind() == io::ErrorKind::BrokenPipe, ..Self::system("standard output", error) }
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether there is nothing to say, and no failure to report.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// A name as a message has it: quoted as for a shell if that is needed. One that is empty is seen, and what is in a name is no
/// command to a terminal and no line of its own.
pub fn shown(name: &OsStr) -> String {
    quote::for_shell(Path::new(name))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pando: {}", self.message)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "\n  {}", remedy.replace('\n', "\n  ")))
    }
}
