//! Going to the background without fork: the command starts itself again, and ends once that one is mounted.
//!
//! The child's standard output is a pipe to the parent. The child writes its ready line there and then points its
//! standard streams at `/dev/null`; the parent prints what it reads until the end and exits with 0. If the child fails
//! first, the parent reads nothing, and exits as the child did, whose messages went to the same stderr.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use pando_console::failure::{Failure, Result};

/// Tells the child what it is. A variable and not an option, since completions would offer an option.
const CHILD: &str = "PANDO_DAEMON_CHILD";

/// Whether this is the process in the background.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some_and(|value| value == "1")
}

/// The name of the process, by whatever name the command was called; `pando umount` looks at it.
const NAME: &str = "pando";

/// What came of the process in the background.
#[derive(Debug)]
pub enum Started {
    /// It serves, and says this.
    Ready(String),
    /// It has ended with this code, and has said why.
    Failed(u8),
}

/// The parent's part: runs the command with `args` in the background.
///
/// # Errors
/// The command cannot be started again.
pub fn start(args: &[OsString]) -> Result<Started> {
    let refused = |error: io::Error| Failure::system("cannot start the background process", &error);
    // Not the path that it stands for, which may not lead there in the mount namespace that we are in by now.
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
    // Killed by a signal, it has no code, and has said nothing.
    let code = status.code().ok_or_else(|| Failure::new(format!("the background process ended early: {status}")))?;
    Ok(Started::Failed(u8::try_from(code).unwrap_or(1).max(1)))
}

/// The child's part, once it is mounted: tells the parent, and leaves its terminal and its directory.
///
/// # Errors
/// The streams cannot be changed.
pub fn ready(line: &str) -> Result<()> {
    let refused = |error: io::Error| Failure::system("cannot go to the background", &error);
    // From here on Ctrl-C at the parent's terminal does not reach us. It fails only for who leads a session already.
    let _ = rustix::process::setsid();
    // Where this cannot be done, `pando umount` does not wait for our end.
    let _ = std::fs::write("/proc/self/comm", NAME);
    std::env::set_current_dir("/").map_err(refused)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(refused)?;
    // Once this is said, nothing may fail any more.
    let mut out = io::stdout().lock();
    // A parent that was killed meanwhile does not read it: the tree is mounted all the same.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    let redirect = || {
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)
    };
    redirect().map_err(|error: rustix::io::Errno| refused(error.into()))
}
