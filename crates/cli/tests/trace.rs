//! `pando trace` on a mounted tree: the real command, server and kernel.

mod common;
mod requests;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    process::{Child, ChildStderr, Command, Stdio},
    thread,
};

use common::{Mounted, can_mount, copy_to, pando, run, said};
use requests::alone;
use rustix::fs::{AtFlags, StatxFlags};

/// A running trace.
struct Trace {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Trace {
    fn start(args: &[&str]) -> Self {
        let mut child =
            pando(&["trace"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        assert!(line.contains("tracing"), "{line:?}");
        Self { child, errors }
    }

    /// Its output when it ends.
    fn ended(mut self) -> (String, String) {
        let (mut shown, mut errors) = (String::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_string(&mut shown).expect("text");
        self.errors.read_to_string(&mut errors).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{errors}");
        (shown, errors)
    }
}

#[test]
fn operations_on_a_mounted_tree_are_shown() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    let root = root.to_str().expect("text");
    let ops = "--op=create,mkdir,rename,unlink,write";
    let trace = Trace::start(&[root, ops, "--count", "5"]);
    let json = run(&["trace", root, "--json", "--count", "1"]);
    assert!(!json.status.success() && said(&json).contains("EBUSY"), "{}", said(&json));
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), "pando").unwrap();
    fs::rename(mounted.path("d"), mounted.path("e")).unwrap();
    fs::remove_file(mounted.path("e/f")).unwrap();
    let (shown, errors) = trace.ended();
    assert_eq!(errors, "");
    // In the order of their start: operations of two threads of the server may come in another
    // order.
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    let lines: Vec<&str> = lines.into_iter().map(|line| line.split("s  ").last().expect("a latency before")).collect();
    let fields = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = lines.into_iter().map(fields).collect();
    assert_eq!(lines, ["mkdir /d", "create /d/f", "write /d/f", "rename /d -> /e", "unlink /e/f"], "{shown}");

    let trace = Trace::start(&[root, "--json", "--errors", "--path", "/e"]);
    assert!(fs::metadata(mounted.path("none")).is_err());
    assert!(fs::metadata(mounted.path("e/none")).is_err());
    // The trace ends with the mount.
    mounted.umount();
    let (shown, errors) = trace.ended();
    assert_eq!(errors, "");
    let lines: Vec<serde_json::Value> = shown.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["pando_trace"], 1);
    assert_eq!((lines.len(), &lines[1]["op"], &lines[1]["errno"]), (2, &"lookup".into(), &2.into()), "{shown}");
    assert_eq!(lines[1]["path"], "/e/none");
}

#[test]
fn only_root_and_the_owner_may_trace() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let open = || tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let (mounted, place) = (Mounted::again(open(), &["--allow-other"]), open());
    let mut stranger = Command::new(copy_to(place.path()));
    let stranger = stranger.args(["trace", "--count", "1"]).arg(mounted.root()).uid(65534).gid(65534);
    let output = stranger.env_remove("RUST_LOG").output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("root"), "{}", said(&output));
    assert!(output.stdout.is_empty());
    mounted.umount();
}

#[test]
fn a_tree_without_a_server_is_reported_as_dead() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let root = mounted.root();
    let dir = root.to_str().expect("text");
    fs::metadata(&root).expect("attributes");
    let mut trace = Trace::start(&[dir]);
    rustix::process::kill_process(mounted.pid(), rustix::process::Signal::KILL).expect("killed");
    mounted.ended();
    let mut watched = String::new();
    trace.errors.read_to_string(&mut watched).expect("text");
    assert_eq!(trace.child.wait().expect("it ends").code(), Some(1), "{watched}");
    let output = run(&["trace", dir]);
    assert_eq!(output.status.code(), Some(1));
    for said in [watched, said(&output)] {
        assert!(said.contains("killed") && said.contains("pando umount"), "{said}");
    }
}

/// The name under which a server listens is free when the server has ended, and any user may take
/// it.
#[test]
fn root_is_not_deceived_by_another_user() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let root = mounted.root();
    let number = rustix::fs::statx(rustix::fs::CWD, &root, AtFlags::empty(), StatxFlags::empty()).expect("attributes");
    rustix::process::kill_process(mounted.pid(), rustix::process::Signal::KILL).expect("killed");
    mounted.ended();
    let address = format!("pandofs/trace/{}:{}", number.stx_dev_major, number.stx_dev_minor);
    let address = SocketAddr::from_abstract_name(address).expect("an address");
    let nobody = rustix::process::Uid::from_raw(65534);
    let listener = thread::spawn(move || {
        // The credentials of this thread alone.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        UnixListener::bind_addr(&address).expect("bound")
    });
    let listener = listener.join().expect("no panic");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        let _ = client.write_all(b"{\"refused\":\"\\u001b[2J\"}\n");
    });
    let output = run(&["trace", root.to_str().expect("text")]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let said = said(&output);
    assert!(said.contains("neither root nor the user who mounted the tree") && said.contains("ss -xlp"), "{said}");
}

#[test]
fn mounts_that_cannot_be_traced_are_named() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().to_str().expect("text");
    let output = run(&["trace", dir]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("no pando tree is mounted here"), "{}", said(&output));
    for (args, says) in [
        (["--op", "swim"], "unlink"),
        (["--min-latency", "5"], "unit"),
        (["--path", "a"], "slash"),
        (["--count", "0"], "at least 1"),
        (["--count", "-1"], "at least 1"),
    ] {
        let output = run(&["trace", dir, args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}
