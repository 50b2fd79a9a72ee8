//! This program again, for a part of a run that needs its own process. Nothing is written to the
//! child's standard input. It reaches its end when the child shall end: because the run is
//! cancelled, or because the parent has exited for any reason.

use std::{
    error, fmt,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use crate::base::{
    cancel::{Cancel, SIGNALS},
    failure::{During, Failure},
};

/// Interval of the check whether a child has ended.
const SLICE: Duration = Duration::from_millis(20);

/// Runs `command` to its end. Returns its exit status and its standard output.
///
/// # Errors
/// That it could not be run; `during` names what it was to do. [`Failure::Interrupted`].
pub(crate) fn output(
    mut command: Command,
    during: impl Fn() -> String,
    cancel: &Cancel,
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
        if cancel.wait(SLICE).is_err() {
            drop(wanted.take());
            break child.wait().during(&during)?;
        }
    };
    cancel.check()?;
    let bytes = read.join().expect("reading does not panic").during(&during)?;
    if status.code() == Some(130) { Err(Failure::Interrupted) } else { Ok((status, bytes)) }
}

/// The failure of a child that ended early, as far as its exit code tells. The child has printed
/// more on standard error.
pub(crate) fn failure(during: impl Into<String>, status: ExitStatus) -> Failure {
    let failure = Failure::Io(during.into(), ended("the process", status));
    let refused = Failure::Refused(failure.to_string());
    if status.code() == Some(refused.exit_code().into()) { refused } else { failure }
}

/// A child process ended other than it should.
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

/// The error that the process `who` ended with this status.
pub(crate) fn ended(who: &str, status: ExitStatus) -> io::Error {
    reported_end(format!("{who} ended with {status}"), status.signal())
}

/// The same error, as reported by another process.
pub(crate) fn reported_end(text: String, signal: Option<i32>) -> io::Error {
    io::Error::other(Ended { text, signal })
}

/// The signal, if the error says that a signal has ended a child.
pub(crate) fn ended_by(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref::<Ended>()?.signal
}

/// Returns `done`, unless it is a failure because of an interruption. The terminal sends Ctrl-C to
/// all of its processes. It may have ended a child of ours before this process handled its own
/// signal. In that case our signal arrives once the listening thread is scheduled.
///
/// # Errors
/// The failure, or [`Failure::Interrupted`].
pub(crate) fn unless_interrupted<T>(done: Result<T, Failure>, cancel: &Cancel) -> Result<T, Failure> {
    const LATE: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(5);
    if let Err(Failure::Io(_, error)) = &done {
        let by_signal = ended_by(error).is_some_and(|signal| SIGNALS.contains(&signal));
        cancel.wait(if by_signal { PATIENCE } else { LATE })?;
    }
    done
}

/// In a child: runs `end` when standard input reaches its end.
pub(crate) fn on_end_of_input(end: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        // A read error ends it as well.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        end();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_that_ended_a_process_is_known() {
        for (script, signal, says) in
            [("kill -TERM $$", Some(15), "sh ended with signal: 15"), ("exit 3", None, "sh ended with exit status: 3")]
        {
            let error = ended("sh", Command::new("/bin/sh").args(["-c", script]).status().expect("a shell"));
            assert!(error.to_string().starts_with(says), "{error}");
            assert_eq!(ended_by(&error), signal);
        }
        assert_eq!(ended_by(&io::Error::from_raw_os_error(2)), None);
    }

    /// Seen to fail: a run that goes on with its next measurement.
    #[test]
    fn child_that_the_same_signal_has_ended_is_an_interruption() {
        let status = Command::new("/bin/sh").args(["-c", "kill -TERM $$"]).status().expect("a shell");
        let failure = Failure::Io("measuring".into(), ended("sh", status));
        let cancel = Cancel::default();
        thread::scope(|scope| {
            let late = cancel.clone();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(100));
                late.request();
            });
            assert!(matches!(unless_interrupted::<()>(Err(failure), &cancel), Err(Failure::Interrupted)));
        });
        let other = Err(Failure::Io("reading".into(), io::Error::from_raw_os_error(2)));
        assert!(matches!(unless_interrupted::<()>(other, &Cancel::default()), Err(Failure::Io(..))));
    }
}
