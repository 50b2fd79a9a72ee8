//! Signals that whoever started us has set to be ignored (nohup, a shell without job control): they stay so, here and in the
//! programs we start, which would begin with the default if we caught them.

use std::{fs, sync::Arc};

use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
};

/// Those of `signals` that are not ignored.
pub fn heeded<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    let ignored = ignored();
    signals.into_iter().filter(move |&signal| !has(ignored, signal))
}

/// Those that end a command which goes on until it is told, as far as they are not ignored.
pub fn ending() -> impl Iterator<Item = i32> {
    heeded([SIGHUP, SIGINT, SIGTERM])
}

/// What every command wants of signals.
pub fn start() {
    let ignored = ignored();
    // A file that may grow no further (ulimit -f; a temporary one, say) is an error like others, not the end.
    if !has(ignored, SIGXFSZ) {
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
    // Ignored, the system would not keep how programs that we start have ended.
    if has(ignored, SIGCHLD) {
        let _ = flag::register(SIGCHLD, Arc::default());
    }
}

/// The signals that are ignored, a bit each, as `/proc` tells it: sigaction(2) is not safe to call. Of SIGPIPE it does not tell
/// how it was, since the standard library ignores that one before `main`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn has(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
