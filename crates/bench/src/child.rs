//! This program again, for a part of a run that wants a process of its own. Its standard input says nothing, and ends when
//! the child is to end: because the run is to, or because the parent is gone, however it went.

use std::{
    error, fmt,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
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
    let failure = Failure::Io(during.into(), ended("the process", status));
    let refused = Failure::Refused(failure.to_string());
    if status.code() == Some(refused.exit_code().into()) { refused } else { failure }
}

/// That a process of ours ended otherwise than it was to.
#[derive(Debug)]
struct Ended {
    text: String,
    signal: Option<i32>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl error::Error for Ended {}

/// The error that `who` ended so.
pub(crate) fn ended(who: &str, status: ExitStatus) -> io::Error {
    said_to_have_ended(format!("{who} ended with {status}"), status.signal())
}

/// The same, by another process's word.
pub(crate) fn said_to_have_ended(text: String, signal: Option<i32>) -> io::Error {
    io::Error::other(Ended { text, signal })
}

/// The signal, if the error is that one has ended a process of ours.
pub(crate) fn ended_by(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref::<Ended>()?.signal
}

/// In a child: what is to be done when it is to end.
pub(crate) fn when_unwanted(end: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        end();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_that_ended_a_process_is_known() {
        for (script, signal, says) in
            [("kill -INT $$", Some(2), "sh ended with signal: 2"), ("exit 3", None, "sh ended with exit status: 3")]
        {
            let error = ended("sh", Command::new("/bin/sh").args(["-c", script]).status().expect("a shell"));
            assert!(error.to_string().starts_with(says), "{error}");
            assert_eq!(ended_by(&error), signal);
        }
        assert_eq!(ended_by(&io::Error::from_raw_os_error(2)), None);
    }
}
