//! Serving in the background, without fork: the command starts itself again, and exits when the new
//! process has mounted.
//!
//! The child's standard output is a pipe to the parent. The child writes its ready line to the pipe
//! and then points its standard streams at `/dev/null`. Its later messages go to the system's log.
//! The parent prints the line when the pipe ends, and exits with 0. If the child fails first, the
//! parent reads nothing and exits with the child's code. The child's messages went to the same
//! stderr.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use pando_console::failure::{Failure, Result};

/// Tells the child that it is the child. It is a variable because completions would show an option.
const CHILD: &str = "PANDO_DAEMON_CHILD";

/// Whether this process is the child.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some_and(|value| value == "1")
}

/// The name of the process, even if the command was called by another name. `pando umount` checks
/// it.
const NAME: &str = "pando";

/// The outcome of the process in the background.
#[derive(Debug)]
pub enum Started {
    /// It serves, and has printed this line.
    Ready(String),
    /// It has ended with this code, and has printed the reason.
    Failed(u8),
}

/// The parent's part: runs the command with `args` in the background.
///
/// # Errors
/// The command cannot be started again.
pub fn start(args: &[OsString]) -> Result<Started> {
    let refused = |error: io::Error| Failure::system("cannot start the background process", &error);
    // Not the path behind this link: in the current mount namespace that path may lead elsewhere.
    let mut child = Command::new("/proc/self/exe")
        .arg0(NAME)
        .env(CHILD, "1")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(refused)?;
    let mut ready = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut ready).map_err(refused)?;
    }
    if !ready.is_empty() {
        return Ok(Started::Ready(String::from_utf8_lossy(&ready).into_owned()));
    }
    let status = child.wait().map_err(refused)?;
    // If a signal killed it, it has no code and has printed nothing.
    let code = status.code().ok_or_else(|| Failure::new(format!("the background process ended early: {status}")))?;
    Ok(Started::Failed(u8::try_from(code).unwrap_or(1).max(1)))
}

/// The child's part after mounting: tells the parent, and leaves its terminal and its directory.
///
/// # Errors
/// The streams cannot be changed.
pub fn ready(line: &str) -> Result<()> {
    let refused = |error: io::Error| Failure::system("cannot go to the background", &error);
    // From here on Ctrl-C at the parent's terminal does not reach this process. It fails only for a
    // session leader.
    let _ = rustix::process::setsid();
    // If this fails, `pando umount` does not wait until this process has ended.
    let _ = std::fs::write("/proc/self/comm", NAME);
    std::env::set_current_dir("/").map_err(refused)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(refused)?;
    // Nothing may fail once the line is written.
    let mut out = io::stdout().lock();
    // If the parent was killed meanwhile, nothing reads the line. The tree is mounted all the same.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    let redirect = || {
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)
    };
    crate::log::move_to_system();
    redirect().map_err(|error: rustix::io::Errno| refused(error.into()))
}
