//! This program again, for a part of a run that wants a process of its own. Its standard input says nothing, and ends when
//! the child is to end: because the run is to, or because the parent is gone, however it went.

use std::{
    io::{self, Read},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use crate::{
    failure::{Failure, While},
    halt::Halt,
};

/// How often a child is asked whether it has ended.
const SLICE: Duration = Duration::from_millis(20);

/// Runs `command` to its end; returns its standard output.
///
/// # Errors
/// That it could not be run: what it was to do is said by `during`. Interrupted.
pub(crate) fn output(
    mut command: Command,
    during: impl Fn() -> String,
    halt: &Halt,
) -> Result<(ExitStatus, Vec<u8>), Failure> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().during(&during)?;
    let mut stdout = child.stdout.take().expect("piped");
    let read = thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut wanted = child.stdin.take();
    let status = loop {
        if let Some(status) = child.try_wait().during(&during)? {
            break status;
        }
        if halt.wait(SLICE).is_err() {
            drop(wanted.take());
            break child.wait().during(&during)?;
        }
    };
    halt.check()?;
    let bytes = read.join().expect("reading does not panic").during(&during)?;
    if status.code() == Some(130) { Err(Failure::Interrupted) } else { Ok((status, bytes)) }
}

/// Why a child ended before it was done, as far as its exit code says: on standard error it has said more.
pub(crate) fn failure(during: impl Into<String>, status: ExitStatus) -> Failure {
    let error = io::Error::other(format!("the process ended with {status}"));
    let failure = Failure::Io(during.into(), error);
    let refused = Failure::Refused(failure.to_string());
    if status.code() == Some(refused.exit_code().into()) { refused } else { failure }
}

/// In a child: what is to be done when it is to end.
pub(crate) fn when_unwanted(end: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        end();
    });
}
