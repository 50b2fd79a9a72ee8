//! Output on a terminal, compared with GNU ls on the same one: columns, quotes, colours. tmux
//! captures the screen.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Signal, kill_process},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::{
    common::{heed, said, skipped},
    gnu::has_gnu_ls,
    pty,
    tree::populate,
};

const COLOURS: &str = "rs=0:di=01;34:ln=01;36:pi=40;33:so=01;35:bd=40;33;01:cd=40;33;01:or=40;31;01:su=37;41:sg=30;43:\
    tw=30;42:ow=34;42:st=37;44:ex=01;32:*.txt=00;35:*.gz=01;31";
/// Longer than any step here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tmux server that ends with this value.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn new() -> Option<Self> {
        let tmux = Self { socket: format!("pando-{}", std::process::id()) };
        // The server ends with its last session. This one keeps it alive.
        match tmux.command(&["new-session", "-d", "-s", "keep", "exec sleep 1000"]).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", said(&output));
                Some(tmux)
            }
            Err(error) => {
                skipped(&format!("tmux: {error}"));
                None
            }
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // -u: the outer terminal, which does not exist, supports UTF-8.
        command.args(["-u", "-L", &self.socket, "-f", "/dev/null"]).args(arguments);
        command.env_remove("TMUX").env_remove("COLUMNS");
        command
    }

    /// The screen with its colours after a command has ended.
    fn screen(&self, width: u16, command: &str, dir: &Path) -> String {
        // The server has the environment of the process that started it.
        let script =
            format!("export LC_ALL=C.UTF-8 LS_COLORS='{COLOURS}'; {command}; printf '<end %s>' $?; exec sleep 1000");
        let size = width.to_string();
        let status = self
            .command(&["new-session", "-d", "-s", "screen", "-x", &size, "-y", "120"])
            .arg(script)
            .current_dir(dir)
            .status()
            .unwrap();
        assert!(status.success(), "tmux: {status}");
        let begin = Instant::now();
        let text = loop {
            let output = self.command(&["capture-pane", "-p", "-e", "-t", "screen"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains("<end ") {
                break text;
            }
            if begin.elapsed() > PATIENCE {
                panic!("{command}: {text}");
            }
        };
        assert!(self.command(&["kill-session", "-t", "screen"]).status().unwrap().success());
        text
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn a_terminal_shows_the_same_as_with_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let Some(tmux) = Tmux::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    // The output fills the whole width of the screen, and other text is hidden.
    std::fs::remove_file(temp.path().join("x".repeat(255))).unwrap();
    let pando = env!("CARGO_BIN_EXE_pando");
    for width in [80, 97, 150] {
        for options in ["", "-a", "-F", "-Ci", "-l", "-lF", "-1", "-C --color=never", "-N", "-CU", "-x"] {
            let ours = tmux.screen(width, &format!("'{pando}' ls --color=auto {options}"), temp.path());
            let theirs = tmux.screen(width, &format!("ls --color=auto {options}"), temp.path());
            assert_eq!(ours, theirs, "{options} in {width} columns:\n{ours}\nGNU:\n{theirs}");
        }
    }
}

/// Both ends of a raw terminal. It takes bytes, not lines, as long as it has room.
fn raw_terminal() -> (File, File) {
    let (ours, theirs) = pty::terminal();
    let mut modes = tcgetattr(&theirs).unwrap();
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes).unwrap();
    (ours, theirs)
}

/// Whether a process is in a state: S, it waits; T, it is stopped.
fn is_in_state(child: &Child, state: char) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(&format!(") {state} "))
}

fn wait_until(child: &Child, state: char) {
    let begin = Instant::now();
    while !is_in_state(child, state) {
        if begin.elapsed() > PATIENCE {
            panic!("it is never in state {state}");
        }
    }
}

/// The bytes that a terminal takes before a process is stopped.
fn until_stopped(terminal: &mut File, child: &Child) -> Vec<u8> {
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    let mut stopped = false;
    loop {
        let mut ready = [PollFd::new(&*terminal, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: if stopped { 0 } else { 1_000_000 } };
        match poll(&mut ready, Some(&wait)).unwrap() {
            0 if stopped => return text,
            0 => stopped = is_in_state(child, 'T'),
            _ => {
                let len = terminal.read(&mut part).unwrap();
                text.extend_from_slice(&part[..len]);
            }
        }
    }
}

/// Seen to fail: without a restorer the terminal keeps the colour of a name.
#[test]
fn a_signal_leaves_no_colour_behind() {
    const NAMES: usize = 3000;
    const RESET: &[u8] = b"\x1b[0m";
    let temp = tempfile::tempdir().unwrap();
    for i in 0..NAMES {
        fs::create_dir(temp.path().join(format!("directory{i}"))).unwrap();
    }
    heed();
    let command = |options: &[&str]| {
        let mut command = Command::new("env");
        command.args(options).arg(env!("CARGO_BIN_EXE_pando")).args(["ls", "-1", "--color"]).arg(temp.path());
        command.env("LS_COLORS", COLOURS);
        command
    };
    let started = |options: &[&str]| {
        let (mut ours, theirs) = raw_terminal();
        let child = command(options).stdout(theirs).spawn().unwrap();
        ours.read_exact(&mut [0]).unwrap();
        wait_until(&child, 'S');
        (ours, child)
    };
    let names = |text: &[u8]| text.split(|&byte| byte == b'\n').count() - 1;
    for signal in [Signal::INT, Signal::TERM] {
        let (mut ours, mut child) = started(&[]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let (text, status) = pty::rest(&mut ours, &mut child);
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert!(names(&text) < NAMES && text.ends_with(RESET), "{}", text[text.len() - 40..].escape_ascii());
    }
    // Stopped and continued, the output is complete. An ignored signal stays ignored.
    let (mut ours, mut child) = started(&[]);
    kill_process(Pid::from_child(&child), Signal::TSTP).unwrap();
    let mut text = until_stopped(&mut ours, &child);
    assert!(text.ends_with(RESET), "{}", text[text.len() - 40..].escape_ascii());
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let (more, status) = pty::rest(&mut ours, &mut child);
    text.extend(more);
    assert!(status.success() && names(&text) == NAMES);
    // No sequence was cut.
    let line = |line: &[u8]| {
        let line = line.strip_prefix(RESET).unwrap_or(line);
        line.starts_with(b"\x1b[01;34mdirectory") && line.ends_with(RESET)
    };
    let odd: Vec<_> = text.split(|&byte| byte == b'\n').filter(|text| !line(text)).collect();
    assert_eq!(odd.len(), 2, "the first and what comes after the last: {odd:?}");
    // If the terminal takes nothing at all, the second signal does not wait for it.
    let (_ours, mut theirs) = raw_terminal();
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    while theirs.write(&[b'x'; 64]).is_ok() {}
    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
    let mut child = command(&[]).stdout(theirs).spawn().unwrap();
    wait_until(&child, 'S');
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it waits for the terminal");
        }
    }
    let (mut ours, mut child) = started(&["--ignore-signal=INT"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (text, status) = pty::rest(&mut ours, &mut child);
    assert!(status.success() && names(&text) == NAMES);
}
