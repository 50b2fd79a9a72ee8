//! How it looks on a terminal, beside GNU ls in the same one: columns, quotes, colours. Seen by tmux.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    common::{said, skipped},
    gnu::has_gnu_ls,
    tree::populate,
};

const COLOURS: &str = "rs=0:di=01;34:ln=01;36:pi=40;33:so=01;35:bd=40;33;01:cd=40;33;01:or=40;31;01:su=37;41:sg=30;43:\
    tw=30;42:ow=34;42:st=37;44:ex=01;32:*.txt=00;35:*.gz=01;31";
/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tmux server of its own, which ends with it.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn new() -> Option<Self> {
        let tmux = Self { socket: format!("pando-{}", std::process::id()) };
        // The server ends with its last session: this one keeps it.
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
        // -u: the terminal outside, which is none, knows UTF-8.
        command.args(["-u", "-L", &self.socket, "-f", "/dev/null"]).args(arguments);
        command.env_remove("TMUX").env_remove("COLUMNS");
        command
    }

    /// What is on the screen, with its colours, once a command has ended.
    fn screen(&self, width: u16, command: &str, dir: &Path) -> String {
        // The server's environment is that of whoever started it.
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
            assert!(begin.elapsed() < PATIENCE, "{command}: {text}");
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
fn a_terminal_shows_what_gnu_ls_shows() {
    if !has_gnu_ls() {
        return;
    }
    let Some(tmux) = Tmux::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    // It fills the screen from side to side, and nothing can be seen of the rest.
    std::fs::remove_file(temp.path().join("x".repeat(255))).unwrap();
    let pando = env!("CARGO_BIN_EXE_pando");
    for width in [80, 97, 150] {
        for options in ["", "-a", "-F", "-Ci", "-l", "-lF", "-1", "-C --color=never", "-N", "-CU", "-x"] {
            // pando ls has -x for something else.
            let (ours, theirs) = if options == "-x" { ("-x", "") } else { (options, options) };
            let theirs = if theirs.contains("--color") { theirs.to_owned() } else { format!("{theirs} --color=auto") };
            let ours = tmux.screen(width, &format!("'{pando}' ls {ours}"), temp.path());
            let theirs = tmux.screen(width, &format!("ls {theirs}"), temp.path());
            assert_eq!(ours, theirs, "{options} in {width} columns:\n{ours}\nGNU:\n{theirs}");
        }
    }
}
