//! Signals that the parent process has set to be ignored, as nohup and shells without job control
//! do. They stay ignored here and in the programs that the command starts: such a program would
//! begin with the default action for a caught signal.

use std::{fs, sync::Arc};

use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
};

/// The `signals` that are not ignored.
pub fn heeded<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    let ignored = ignored();
    signals.into_iter().filter(move |&signal| !has(ignored, signal))
}

/// The signals that end a long-running command, except for ignored ones.
pub fn ending() -> impl Iterator<Item = i32> {
    heeded([SIGHUP, SIGINT, SIGTERM])
}

/// Sets up signals for any command.
pub fn start() {
    let ignored = ignored();
    // A file at its size limit (ulimit -f) then causes an error like any other, and does not end
    // the process.
    if !has(ignored, SIGXFSZ) {
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
    // If SIGCHLD were ignored, the system would not keep the exit status of child processes.
    if has(ignored, SIGCHLD) {
        let _ = flag::register(SIGCHLD, Arc::default());
    }
}

/// The ignored signals, one bit each, from `/proc`: calling sigaction(2) needs unsafe code. `/proc`
/// does not show the original state of SIGPIPE, because the standard library ignores that signal
/// before `main`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn has(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
