//! Runs a program with the helper beside it.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitCode, ExitStatus},
    thread,
};

use pando_boost::{
    Options, Session,
    program::{self, Unboosted},
};
use pando_console::{
    failure::{Failure, Result, say, shown},
    signals,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, SignalsInfo, exfiltrator::WithOrigin},
};
use tracing::{info, warn};

use super::totals;

/// Signals that end programs by default.
const TO_PASS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The most generations of processes between the program and a descendant.
const MOST_GENERATIONS: usize = 64;

/// Runs a program to its end.
///
/// # Errors
/// Signals cannot be caught, or the end of the program cannot be waited for.
pub fn run(program: &OsStr, arguments: &[OsString], options: Options) -> Result<ExitCode> {
    let path = program::path_variable();
    let file = program::find(program, path.as_deref());
    let unboosted = file.as_deref().and_then(|file| program::inspect(file, path.as_deref()).ok().flatten());
    if let Some(why) = &unboosted {
        let children = if why.refuses_library() { "" } else { "; what it starts may be boosted" };
        info!("{}: runs unboosted: {why}{children}", program.display());
    }
    // Other unboosted programs run with LD_PRELOAD too: the loader does not load the library into
    // them.
    let refuses = unboosted.as_ref().is_some_and(Unboosted::refuses_library);
    let is_foreign = unboosted == Some(Unboosted::Foreign);
    let session = if refuses { None } else { session(options) };
    let signals = SignalsInfo::<WithOrigin>::new(signals::heeded(TO_PASS))
        .map_err(|error| Failure::system("cannot catch signals", &error))?;
    let child = match start(program, arguments, path.as_deref(), (session.as_ref(), is_foreign)) {
        Ok(child) => child,
        Err(error) => return Ok(not_started(program, path.as_deref(), &error)),
    };
    let status = wait(child, signals)?;
    if let Some(session) = session {
        let totals = session.finish();
        // Inspecting the program takes time, so do it only if the log shows the result.
        if totals.posts == 0 && unboosted.is_none() && tracing::enabled!(tracing::Level::INFO) {
            let by = file.and_then(|file| program::passes_by(&file, path.as_deref()).ok().flatten());
            log_unboosted(program, by);
        }
        totals::log(totals);
    }
    if let Some(signal) = status.signal() {
        end_by(signal);
    }
    Ok(ExitCode::from(code(status)))
}

/// Ends this process by the signal that ended the program: a shell ends a script at Ctrl-C only if
/// the command has ended by that signal. Not by signals that dump core, because that could
/// overwrite the program's dump. Nor as the first process of a container, for which signals have no
/// default action.
fn end_by(signal: i32) {
    if [SIGHUP, SIGINT, SIGTERM].contains(&signal) && std::process::id() != 1 {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Starts the program as execvp(3) does: the shell runs an executable file whose format the kernel
/// does not know. A program for another CPU architecture is no script.
fn start(
    program: &OsStr,
    arguments: &[OsString],
    path: Option<&OsStr>,
    (session, is_foreign): (Option<&Session>, bool),
) -> io::Result<Child> {
    let environment = session.map(|session| session.environment(std::env::var_os("LD_PRELOAD").as_deref()));
    let spawn = |command: &mut Command| command.args(arguments).envs(environment.iter().flatten().cloned()).spawn();
    match spawn(&mut Command::new(program)) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) && !is_foreign => {
            let script = program::find(program, path).unwrap_or_else(|| program.into());
            spawn(Command::new("/bin/sh").arg(script))
        }
        outcome => outcome,
    }
}

/// Starts a helper. The program runs without it if that fails.
fn session(options: Options) -> Option<Session> {
    match Session::start(options) {
        Ok(session) => Some(session),
        Err(error) => {
            warn!("no boost: {error}");
            None
        }
    }
}

fn not_started(program: &OsStr, path: Option<&OsStr>, error: &io::Error) -> ExitCode {
    let shown = shown(program);
    let gone = error.kind() == io::ErrorKind::NotFound;
    let failure = match program::find(program, path).filter(|file| gone && file.exists()) {
        Some(file) => Failure::new(format!("{}: its interpreter is not there", file.display()))
            .remedy("see the first line of a script, or readelf -l for a binary"),
        None if gone => {
            Failure::new(format!("{shown}: no such program")).remedy("give its path, or a name that is found in PATH")
        }
        None => Failure::new(format!("{shown}: cannot be executed: {error}"))
            .remedy(format!("is it a program, and may you execute it? ls -l {shown}")),
    };
    let is_there = !gone || program::find(program, path).is_some_and(|file| file.exists());
    say(failure);
    ExitCode::from(if is_there { 126 } else { 127 })
}

fn wait(mut child: Child, signals: SignalsInfo<WithOrigin>) -> Result<ExitStatus> {
    let handle = signals.handle();
    let pid = Pid::from_child(&child);
    // A descriptor, because the number may belong to another process once the program has ended.
    let passer = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from).and_then(|program| {
        thread::Builder::new().name("pando-signals".into()).spawn(move || pass_on(signals, &program, pid))
    });
    if let Err(error) = &passer {
        warn!(%error, "signals are not passed on");
    }
    let status = child.wait().map_err(|error| Failure::system("waiting for the program", &error));
    stop(&handle, passer.ok());
    status
}

fn stop(handle: &Handle, passer: Option<thread::JoinHandle<()>>) {
    handle.close();
    if let Some(passer) = passer {
        let _ = passer.join();
    }
}

/// Passes on the signals that other processes send. Signals of the terminal reach the program
/// directly, because it is in the same process group. Signals from the program or its descendants
/// are meant for their parent or their process group, and never for the program alone.
fn pass_on(mut signals: SignalsInfo<WithOrigin>, program: &OwnedFd, pid: Pid) {
    for origin in signals.forever() {
        if origin.process.is_some_and(|sender| !descends(sender.pid, pid.as_raw_pid()))
            && let Some(signal) = Signal::from_named_raw(origin.signal)
        {
            let _ = pidfd_send_signal(program, signal);
        }
    }
}

/// Whether a process is `from` or a descendant of it, as far as `/proc` shows. `/proc` does not
/// show it for a process that has ended.
fn descends(mut process: i32, from: i32) -> bool {
    for _ in 0..MOST_GENERATIONS {
        if process == from {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        match status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()) {
            Some(parent) if parent > 0 => process = parent,
            _ => return false,
        }
    }
    false
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).expect("a byte")
}

/// Reports why nothing was read ahead, as far as the program's file shows it.
fn log_unboosted(program: &OsStr, by: Option<&str>) {
    let program = program.display();
    match by {
        Some(by) => info!(
            "{program}: nothing was read ahead: it uses no function of the C library that reads directories, but {by}, \
             which calls the kernel without the library (pando boost --watch does not need the library)"
        ),
        None => info!("{program}: nothing was read ahead: no program reported that it reads a directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(15)), 143);
        assert_eq!(code(ExitStatus::from_raw(255 << 8)), 255);
    }
}
