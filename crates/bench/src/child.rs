//! This program again, for a part of a run that wants a process of its own.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use crate::{
    failure::{Failure, While},
    halt::Halt,
};

/// How often a child is asked whether it has ended.
const SLICE: Duration = Duration::from_millis(20);

/// Runs `command` to its end, or sends `end` to it and its own children if the run is to end. Returns its standard output.
///
/// It does not hear the terminal: what a Ctrl-C means is for this process to say, once, whoever else was sent it.
///
/// # Errors
/// That it could not be started, or how it ended, if not well: what it was to do is said by `during`. Interrupted.
pub(crate) fn output(
    mut command: Command,
    end: Signal,
    during: impl Fn() -> String,
    halt: &Halt,
) -> Result<(ExitStatus, Vec<u8>), Failure> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().during(&during)?;
    let mut stdout = child.stdout.take().expect("piped");
    let read = thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    while child.try_wait().during(&during)?.is_none() {
        if halt.wait(SLICE).is_err() {
            // It is not collected yet, so the number is still its own.
            let _ = kill_process_group(Pid::from_child(&child), end);
            child.wait().during(&during)?;
        }
    }
    let status = child.wait().during(&during)?;
    halt.check()?;
    let bytes = read.join().expect("reading does not panic").during(&during)?;
    if status.code() == Some(130) { Err(Failure::Interrupted) } else { Ok((status, bytes)) }
}

/// In a child: `end` comes as well when the parent has ended.
///
/// # Errors
/// What prctl answers.
pub(crate) fn end_with_parent(end: Signal) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(end)).during(|| "asking to end with the parent process".into())
}
