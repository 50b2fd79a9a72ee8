//! Text on standard output.

use std::io::Write;

use crate::failure::{Failure, Result, say};

/// Writes to stdout in one piece.
///
/// # Errors
/// The system's error. If the reader has closed the pipe, the failure is
/// [quiet](Failure::is_quiet).
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Prints that a service has begun.
///
/// The service goes on and no failure is reported even if the line cannot be written: the reader
/// has closed the pipe (`pando mount x | head -0`), or the disk with the log is full. A caller that
/// was told of a failure would assume that nothing is mounted.
pub fn show(line: &str) {
    if let Err(failure) = print(line.as_bytes())
        && !failure.is_quiet()
    {
        say(failure.remedy(format!("it holds all the same: {}", line.trim_end())));
    }
}
