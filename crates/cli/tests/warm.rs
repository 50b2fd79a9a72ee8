//! `pando warm`: the requests it sends to a slow server, its messages, and how it stops.

mod common;
mod requests;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use common::{Mounted, can_mount, has, heed, pando, run, said, signals};
use requests::{Forgetter, Requests, alone, forgetter, list};
use rustix::process::{Pid, Signal, kill_process};

fn warm(options: &[&str], path: &Path) -> Output {
    pando(&["warm"]).args(options).arg(path).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A new directory with `count` empty files.
fn files(count: usize) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    fill(temp.path(), count);
    temp
}

fn fill(dir: &Path, count: usize) {
    (0..count).for_each(|number| fs::write(dir.join(format!("f{number}")), "").unwrap());
}

/// A slow server without readdirplus, with `count` files in `d`.
fn naive(options: &[&str], count: usize) -> Mounted {
    let mounted = Mounted::new(&[&["--no-readdirplus", "--delay", "lookup=2ms"], options].concat());
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted.path("d"), count);
    mounted
}

#[test]
fn warmed_entries_are_not_requested_again() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    const FILES: u64 = 300;
    let mounted = naive(&["--depth", "8"], FILES as usize);
    let dir = mounted.path("d");
    // Another process may make the kernel forget at any time, so there are a few attempts.
    let kept = (0..5).any(|_| {
        forgetter.forget();
        let before = Requests::of(&mounted);
        let output = warm(&[], &dir);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(printed(&output).starts_with("300 entries in 1 directory read in "), "{}", printed(&output));
        let warmed = Requests::of(&mounted);
        assert!(warmed.since(&before).count("lookup") >= FILES * 9 / 10, "most was forgotten before");
        assert_eq!(list(&dir), FILES as usize);
        let asked = Requests::of(&mounted).since(&warmed);
        // Perhaps the directory itself, because it has a new atime.
        asked.count("lookup") == 0 && asked.count("getattr") <= 1
    });
    assert!(kept, "entries that were read ahead were requested again");
    assert_eq!(Requests::of(&mounted).count("in_flight_max"), 8, "as many as the server allows");
    mounted.umount();
}

/// `ls -l` prints the targets of links, and programs that copy read them.
#[test]
fn targets_of_links_are_read_many_at_once_and_kept() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    const LINKS: usize = 100;
    let mounted = Mounted::new(&["--no-readdirplus", "--delay", "readlink=2ms", "--depth", "8"]);
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    fill(&dir, 10);
    let links: Vec<_> = (0..LINKS).map(|number| dir.join(format!("l{number}"))).collect();
    links.iter().for_each(|link| symlink("nowhere", link).unwrap());
    // Another process may make the kernel forget at any time, so there are a few attempts.
    let kept = (0..5).any(|_| {
        forgetter.forget();
        let before = Requests::of(&mounted);
        let output = warm(&[], &dir);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let warmed = Requests::of(&mounted);
        assert_eq!(warmed.since(&before).count("readlink"), LINKS as u64, "only of links, and once");
        links.iter().for_each(|link| assert_eq!(fs::read_link(link).unwrap(), Path::new("nowhere")));
        Requests::of(&mounted).since(&warmed).count("readlink") == 0
    });
    assert!(kept, "targets that were read ahead were requested again");
    assert_eq!(Requests::of(&mounted).count("in_flight_max"), 8, "as many as the server allows");
    mounted.umount();
}

#[test]
fn a_target_that_cannot_be_read_is_reported_unless_reading_is_forbidden() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for (errno, code) in [("EIO", 1), ("EACCES", 0), ("ENOENT", 0)] {
        let mounted = Mounted::new(&["--fault", &format!("readlink={errno}")]);
        symlink("nowhere", mounted.path("link")).unwrap();
        let output = warm(&[], &mounted.root());
        assert_eq!(output.status.code(), Some(code), "{errno}: {}", said(&output));
        assert_eq!(said(&output).contains("/link: Input/output error"), code == 1, "{}", said(&output));
        mounted.umount();
    }
}

#[test]
fn max_inflight_bounds_the_requests_in_flight() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let warm_all = |forgetter: &Forgetter, options: &[&str]| {
        let mounted = naive(&[], 200);
        forgetter.forget();
        assert_eq!(warm(options, &mounted.path("d")).status.code(), Some(0));
        let greatest = Requests::of(&mounted).count("in_flight_max");
        mounted.umount();
        greatest
    };
    assert_eq!(warm_all(&forgetter, &["--max-inflight", "3"]), 3);
    assert_eq!(warm_all(&forgetter, &["--max-inflight", "1", "--order", "directory"]), 1);
    assert!(warm_all(&forgetter, &["--nice", "--xattrs"]) > 1);
}

#[test]
fn directories_that_are_read_count_as_in_flight() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = Mounted::new(&["--no-readdirplus", "--delay", "lookup=2ms,open=2ms"]);
    for number in 0..60 {
        let below = mounted.path(format!("d/below{number}"));
        fs::create_dir_all(&below).unwrap();
        fill(&below, 2);
    }
    for options in [&["1", "--nice"][..], &["1"], &["8"]] {
        forgetter.forget();
        let output = warm(&[&["-R", "--max-inflight"], options].concat(), &mounted.path("d"));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        // One more is of the thread that reads directories.
        let most = options[0].parse::<u64>().unwrap() + 1;
        let greatest = Requests::of(&mounted).count("waiting_max");
        assert!(greatest <= most, "{options:?}: {greatest}");
    }
    assert!(Requests::of(&mounted).count("waiting_max") > 2, "eight are more than one");
    mounted.umount();
}

#[test]
fn extended_attributes_are_read_without_proc_or_their_lack_is_reported_once() {
    let _alone = alone();
    if !can_mount() || !has(&["unshare", "umount"]) {
        return;
    }
    let mounted = Mounted::new(&["--delay", "lookup=1us"]);
    fill(&mounted.root(), 10);
    let script = "umount -l /proc && exec \"$0\" warm --xattrs \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "/bin/sh", "-c", script, env!("CARGO_BIN_EXE_pando")])
        .arg(mounted.root())
        .output()
        .unwrap();
    let asked = Requests::of(&mounted).count("listxattr");
    match asked {
        0 => {
            assert_eq!((output.status.code(), &*said(&output)), (Some(1), "pando: /proc: No such file or directory\n"))
        }
        // By name in the directory (Linux 6.13).
        _ => assert_eq!((output.status.code(), asked), (Some(0), 10), "{}", said(&output)),
    }
    mounted.umount();
}

/// As in `find ... | xargs pando warm --xattrs`. A link on the command line stands for its target.
#[test]
fn extended_attributes_of_files_on_the_command_line_are_read() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--delay", "lookup=1us"]);
    fill(&mounted.root(), 3);
    let paths = ["f0", "f1", "link"].map(|name| mounted.path(name));
    for name in ["user.a", "user.b"] {
        rustix::fs::setxattr(mounted.path("f1"), name, b"1", rustix::fs::XattrFlags::empty()).unwrap();
    }
    symlink("f1", &paths[2]).unwrap();
    for (options, lists, values) in [(&[][..], 0, 0), (&["--xattrs"], 3, 4)] {
        let before = Requests::of(&mounted);
        let output = pando(&["warm"]).args(options).args(&paths).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let asked = Requests::of(&mounted).since(&before);
        assert_eq!((asked.count("listxattr"), asked.count("getxattr")), (lists, values), "{options:?}");
    }
    mounted.umount();
}

#[test]
fn failures_are_named_and_the_rest_is_read() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = Mounted::new(&["--no-readdirplus", "--fault", "lookup=EIO@150", "--fault", "open=EACCES@2"]);
    // Creating a name looks it up: a hundred look-ups, and two for the directories. The next
    // look-ups are those of the read-ahead, and one of them fails. Which one it is depends on
    // the order of the threads.
    fs::create_dir_all(mounted.path("d/sub")).unwrap();
    fill(&mounted.path("d"), 100);
    fs::write(mounted.path("d/sub/inside"), "").unwrap();
    forgetter.forget();
    let output = warm(&["-R"], &mounted.path("d"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let messages = said(&output);
    let of_file = messages.lines().filter(|line| line.contains("/d/f") && line.contains(": Input/output error"));
    assert_eq!(of_file.count(), 1, "{messages}");
    // The second directory to be opened, after its parent.
    assert_eq!(messages.lines().filter(|line| line.contains("/d/sub: Permission denied")).count(), 1, "{messages}");
    assert_eq!(messages.lines().count(), 2, "{messages}");
    let summary = printed(&output);
    assert!(summary.starts_with("101 entries in 1 directory") && summary.contains("2 could not be read"), "{summary}");

    let again = warm(&["-R"], &mounted.path("d"));
    assert_eq!((again.status.code(), said(&again).len()), (Some(0), 0), "both were for once: {}", said(&again));
    assert!(printed(&again).starts_with("102 entries in 2 directories"), "{}", printed(&again));
    mounted.umount();
}

#[test]
fn max_memory_bounds_the_filled_memory() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    // The kernel cannot keep these entries, so it never has them in its caches.
    let mounted = Mounted::new(&["--attr-timeout", "0"]);
    let path = &mounted.root();
    fill(path, 300);
    let tight = warm(&["--max-memory", "30K"], path);
    assert_eq!(tight.status.code(), Some(3));
    let said_so = printed(&tight);
    assert!(
        said_so.starts_with("20 entries in 1 directory") && said_so.contains("280 left for which there is no room"),
        "{said_so}"
    );
    assert!(said_so.contains("about 20 entries: 30.00 KiB at 1.50 KiB each, bounded by --max-memory"), "{said_so}");
    let enough = warm(&["--max-memory", "450K", "--quiet"], path);
    assert_eq!((enough.status.code(), printed(&enough).len()), (Some(0), 0), "all of it fits exactly");
    let named = pando(&["warm", "--max-memory", "5K"]).args([&path.join("f1"); 10]).output().unwrap();
    assert_eq!(named.status.code(), Some(3), "{}", said(&named));
    assert!(printed(&named).starts_with("3 entries in 0 directories"), "{}", printed(&named));
    mounted.umount();
}

/// Cached entries need no more memory: a second run has no reason to stop.
#[test]
fn cached_entries_fill_no_memory() {
    let _alone = alone();
    let temp = files(300);
    // Another process may make the kernel forget at any time.
    let all = (0..5).any(|_| {
        list(temp.path());
        let again = warm(&["--max-memory", "30K"], temp.path());
        again.status.code() == Some(0) && printed(&again).starts_with("300 entries in 1 directory")
    });
    assert!(all);
}

#[test]
fn bad_input_is_reported_with_a_remedy() {
    let _alone = alone();
    let temp = files(300);
    let path = temp.path();
    let file = warm(&["-R"], &path.join("f1"));
    assert!(printed(&file).starts_with("1 entry in 0 directories"), "{}", printed(&file));
    let missing = warm(&[], &path.join("missing"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("missing: No such file"), "{}", said(&missing));
    let both = run(&["warm", path.join("missing").to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!(both.status.code(), Some(1));
    assert!(printed(&both).contains("300 entries") && printed(&both).contains("1 could not be read"));
    for (options, says) in [
        (&["--max-inflight", "0"][..], "between 1 and 1024"),
        (&["--max-inflight", "many"], "between 1 and 1024"),
        (&["--rate", "0"], "entries a second, between 1 and"),
        (&["--max-memory", "0"], "no bytes holds nothing"),
        (&["--max-memory", "-1"], "starts with a number"),
        (&["--max-memory", "10Q"], "K, M, G"),
        (&["--order", "size"], "directory"),
    ] {
        let output = warm(options, path);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{options:?}: {}", said(&output));
    }
    let empty = run(&["warm", "", path.to_str().unwrap()]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(said(&empty).contains("'': No such file"), "{}", said(&empty));
    assert!(printed(&empty).contains("300 entries"), "{}", printed(&empty));
    assert_eq!(run(&["warm"]).status.code(), Some(2));
    // A name could be a command for the terminal, or look like another message.
    let odd = run(&["warm", "no\x1b]0;such\x07\nfile"]);
    assert_eq!(said(&odd), "pando: 'no'$'\\033'']0;such'$'\\a\\n''file': No such file or directory (os error 2)\n");
}

/// As if Ctrl-C ends `pando warm -R /srv | tee log`, and as if the disk with the log is full.
#[test]
fn the_exit_code_is_the_same_if_the_summary_cannot_be_written() {
    let _alone = alone();
    let temp = files(30);
    let missing = temp.path().join("missing");
    let mut cases = vec![(vec![missing.as_os_str()], 1)];
    let mounted = can_mount().then(|| Mounted::new(&["--attr-timeout", "0"]));
    let root = mounted.as_ref().map(Mounted::root);
    if let Some(root) = &root {
        fill(root, 30);
        cases.push((vec!["--max-memory=30K".as_ref(), root.as_os_str()], 3));
    }
    for (arguments, code) in cases {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = pando(&["warm"]).args(&arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("standard output"), "{}", said(&output));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = pando(&["warm"]).args(&arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("standard output: No space left"), "{}", said(&output));
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert_eq!(pando(&["warm"]).arg(temp.path()).stdout(full).output().unwrap().status.code(), Some(1));
    if let Some(mounted) = mounted {
        mounted.umount();
    }
}

#[test]
fn a_signal_stops_it_with_a_summary() {
    let _alone = alone();
    let temp = files(100);
    // One entry a second, so that it cannot be finished.
    let mut child = pando(&["-v", "warm", "--rate", "1"])
        .arg(temp.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It logs the room in the caches once it can be stopped.
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("room for about"), "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(text.contains("stopped, with ") && text.contains(" left"), "{text}");
}

/// `nohup pando warm PATH &` outlives its terminal, and so does `pando bench`.
#[test]
fn ignored_signals_stop_nothing() {
    let _alone = alone();
    let temp = files(100);
    let path = temp.path().to_str().unwrap();
    heed();
    for args in [&["warm", "--rate", "1", path][..], &["bench", "crunl", "mem", "--seconds", "3600"]] {
        let mut child = Command::new("env");
        child.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_pando")]).args(args);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id().to_string();
        // The last of the three signals.
        while !signals(&pid, "SigCgt")(Signal::TERM) {
            assert!(child.try_wait().unwrap().is_none(), "{args:?}: it ended by itself");
        }
        assert!(signals(&pid, "SigIgn")(Signal::HUP), "{args:?}");
        // A signal between the installation of the handler and that of its action is lost.
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => kill_process(Pid::from_child(&child), Signal::TERM).unwrap(),
            }
            thread::yield_now();
        };
        assert_eq!(status.code(), Some(130), "{args:?}");
    }
}

/// A terminal that ends with the test.
struct Terminal {
    server: String,
}

impl Terminal {
    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.server, "-f", "/dev/null"]).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        printed(&output)
    }

    /// The screen, with wrapped lines joined.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-t", "warm"])
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.server, "kill-server"]).output();
    }
}

#[test]
fn a_terminal_shows_the_rate_and_then_only_the_summary() {
    let _alone = alone();
    if !has(&["tmux"]) {
        return;
    }
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = Mounted::new(&["--no-readdirplus", "--delay", "getattr=25ms"]);
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted.path("d"), 200);
    for columns in [100, 60, 30] {
        forgetter.forget();
        stopped_on_a_terminal(&mounted.path("d"), columns);
    }
    mounted.umount();
}

fn stopped_on_a_terminal(dir: &Path, columns: usize) {
    let terminal = Terminal { server: format!("pando-warm-{}-{columns}", std::process::id()) };
    let command = format!(
        "trap : INT; '{}' warm --max-inflight 1 '{}'; echo code $?; tmux wait-for -S over; read never",
        env!("CARGO_BIN_EXE_pando"),
        dir.display()
    );
    terminal.tmux(&["new-session", "-d", "-s", "warm", "-x", &columns.to_string(), "-y", "20", &command]);
    // Without a signal it takes five seconds, and the bar is shown until then.
    let bar = loop {
        let screen = terminal.screen();
        assert!(!screen.contains("code"), "it came to its end without a bar: {screen}");
        if let Some(bar) = screen.lines().find(|line| line.contains(" of 200  ") && !line.contains(" 0/s")) {
            break bar.to_owned();
        }
    };
    let tail = bar.split(" of 200  ").nth(1).expect("the count");
    let rate = tail.split("/s").next().expect("a rate");
    assert!(rate.parse::<u32>().is_ok(), "{bar}");
    assert!(columns == 30 || tail.contains("ETA"), "{bar}");
    assert!(bar.trim_end().chars().count() < columns, "it takes more than a line: {bar}");
    terminal.tmux(&["send-keys", "-t", "warm", "C-c"]);
    terminal.tmux(&["wait-for", "over"]);
    let screen = terminal.screen();
    assert!(!screen.contains("ETA"), "{screen}");
    assert!(screen.contains("stopped, with") && screen.contains("code 130"), "{screen}");
}
