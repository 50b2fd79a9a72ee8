//! Signals to `pando boost` and to its program.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    boosted,
    common::{pando, said},
    parted,
    requests::alone,
    text,
};

/// Runs a program that prepares itself, prints that it is ready, and waits for TERM. Returns what
/// it prints first after that.
fn output_at_sigterm(preparation: &str) -> String {
    let script =
        format!("trap 'echo caught; exit 9' TERM; {preparation} echo ready; while :; do read -r x || exit 1; done");
    let mut child = pando(&["boost", "--", "/bin/sh", "-c", &script]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    // The shell's read is interrupted, or ends with its input. In both cases traps run first.
    let first = lines.next().unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    first
}

#[test]
fn signals_reach_the_program() {
    let _alone = alone();
    assert_eq!(output_at_sigterm(""), "caught");
}

#[test]
fn signals_of_the_program_are_not_sent_back_to_it() {
    let _alone = alone();
    // The shell runs the trap of the lower signal number first.
    assert_eq!(output_at_sigterm("trap 'echo again' USR1; kill -USR1 $PPID;"), "caught");
}

/// As nohup and shells do. Of SIGCHLD only this is checked: the exit status of the program is still
/// known.
#[test]
fn ignored_signals_stay_ignored() {
    let _alone = alone();
    let ignoring = |signals: &str, args: &[&str]| {
        let mut command = Command::new("env");
        command.arg(format!("--ignore-signal={signals}")).arg(env!("CARGO_BIN_EXE_pando")).args(args);
        command.output().expect("env")
    };
    let output = ignoring("HUP,INT,XFSZ", &["boost", "--", "cat", "/proc/self/status"]);
    let status = text(&output.stdout);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    let ignored = [Signal::HUP, Signal::INT, Signal::XFSZ].map(|signal| mask >> (signal.as_raw() - 1) & 1);
    assert_eq!(ignored, [1; 3], "{mask:x}");
    let output = ignoring("CHLD", &["boost", "--", "/bin/sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
}

/// A shell ends a script at Ctrl-C if the command has ended by that signal.
#[test]
fn it_ends_by_the_signal_that_ended_the_program() {
    let _alone = alone();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let script = format!("kill -{} $$", signal.as_raw());
        let (output, log) = parted(boosted("/bin/sh", &["-c", &script]).output().unwrap());
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{}", output.status);
        assert!(log.contains("boosted posts="), "{log}");
    }
}

#[test]
fn signals_of_descendants_are_not_sent_back_to_the_program() {
    let _alone = alone();
    // The sender runs until the test tells it to exit: /proc does not show the parent of a process
    // that has exited.
    let send = "trap 'echo again' USR1; exec 3<&0; /bin/sh -c 'kill -USR1 '$PPID'; echo sent; read -r x <&3' &";
    let script = format!("trap 'echo caught; exit 9' TERM; {send} while :; do wait; read -r x || exit 1; done");
    let mut child = pando(&["boost", "--", "/bin/sh", "-c", &script]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "sent");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    // The shell runs the trap of the lower signal number first.
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}
