//! Tracing a server's tree over its socket, without a kernel.

#[path = "support/inodes.rs"]
mod inodes;

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
};

use pando_fuse::{
    Caller, Server, ServerOptions,
    trace::{TraceLine, TraceListener, VERSION, connect},
};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Vfs, Walk, trace::TraceOptions};

use crate::inodes::await_inodes;

/// A tree with a trace listener. Its device number is one that no kernel uses.
struct Served {
    vfs: Vfs,
    context: Context,
    device: String,
    _listener: TraceListener,
}

fn served(name: &str) -> Served {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
    let device = format!("test-{}-{name}", std::process::id());
    let listener = TraceListener::start(vfs.clone(), &device).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    Served { vfs, context, device, _listener: listener }
}

impl Served {
    /// Connects, sends a request, and reads the first line. Tries again if there is none: the
    /// server has a timeout, and this thread may have slept before it sent the request.
    fn ask(&self, request: &str) -> (Client, TraceLine) {
        loop {
            let stream = connect(&self.device, None).unwrap();
            let mut client = Client(BufReader::new(stream));
            // The server may answer and disconnect before the whole request is written.
            let _ = writeln!(client.0.get_mut(), "{request}");
            if client.0.fill_buf().is_ok_and(|heard| !heard.is_empty()) {
                let line = client.line();
                return (client, line);
            }
        }
    }

    fn watch(&self, request: &str) -> Client {
        let (client, line) = self.ask(request);
        assert_eq!(line, TraceLine::Greeting { pando_trace: VERSION, pid: std::process::id() });
        client
    }

    fn stat(&self, path: &str) {
        let _ = self.vfs.stat(&self.context, At::Cwd, path, Walk::empty());
    }

    fn mkdir(&self, path: &str) {
        self.vfs.mkdir(&self.context, At::Cwd, path, 0o755).unwrap();
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn line(&mut self) -> TraceLine {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next event, as `op path errno`.
    fn event(&mut self) -> String {
        match self.line() {
            TraceLine::Event(event) => format!("{} {} {}", event.op, event.path.unwrap(), event.errno),
            other => panic!("{other:?}"),
        }
    }
}

const ALL: &str = r#"{"pando_trace":1}"#;

#[test]
fn client_sees_operations() {
    let served = served("sees");
    let mut client = served.watch(ALL);
    served.mkdir("d");
    served.stat("d/none");
    assert_eq!(client.event(), "mkdir /d 0");
    assert_eq!(client.event(), "stat /d/none 2");
}

#[test]
fn filtered_events_are_not_sent() {
    let served = served("filters");
    served.mkdir("a");
    let mut client = served.watch(r#"{"pando_trace":1,"ops":["stat","mkdir"],"path":"/a/*"}"#);
    served.mkdir("a/b");
    served.mkdir("c");
    let _ = served.vfs.unlink(&served.context, At::Cwd, "a/b");
    served.stat("/a/x");
    assert_eq!((client.event(), client.event()), ("mkdir /a/b 0".into(), "stat /a/x 2".into()));
    drop(client);
    let mut client = again(&served, r#"{"pando_trace":1,"errors_only":true}"#);
    served.stat("/a");
    served.stat("/none");
    assert_eq!(client.event(), "stat /none 2");
}

/// Watches as soon as the server has seen that the client before has disconnected.
fn again(served: &Served, request: &str) -> Client {
    loop {
        match served.ask(request) {
            (client, TraceLine::Greeting { .. }) => return client,
            (_, TraceLine::Refusal { refused }) => assert!(refused.contains("EBUSY"), "{refused}"),
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn second_client_is_refused() {
    let served = served("busy");
    let mut first = served.watch(ALL);
    let (_, line) = served.ask(ALL);
    assert!(matches!(&line, TraceLine::Refusal { refused } if refused.contains("EBUSY")), "{line:?}");
    served.mkdir("d");
    assert_eq!(first.event(), "mkdir /d 0");
    drop(first);
    let mut second = again(&served, ALL);
    served.mkdir("e");
    assert_eq!(second.event(), "mkdir /e 0");
    drop(second);
}

#[test]
fn malformed_request_is_refused_and_the_next_is_served() {
    let served = served("nonsense");
    let long = "x".repeat(100_000);
    for (request, says) in [
        ("", "not a request"),
        ("{\"pando_trace\":", "not a request"),
        (r#"{"pando_trace":7}"#, "version 1"),
        (r#"{"pando_trace":1,"ops":["swim"]}"#, "unlink"),
        (r#"{"pando_trace":1,"path":"/["}"#, "["),
        (&long, "too long"),
    ] {
        let (_, line) = served.ask(request);
        assert!(matches!(&line, TraceLine::Refusal { refused } if refused.contains(says)), "{line:?}");
    }
    // One client disconnects without a request, and another stays connected without one.
    drop(connect(&served.device, None).unwrap());
    let _silent = connect(&served.device, None).unwrap();
    served.watch(ALL);
}

#[test]
fn client_that_does_not_read_loses_events_and_is_told() {
    let served = served("slow");
    let mut client = served.watch(ALL);
    // More events than fit into a socket and a ring.
    for _ in 0..50_000 {
        served.stat("/");
    }
    // While the server waits for this client, it refuses others.
    let (_, line) = served.ask(ALL);
    assert!(matches!(&line, TraceLine::Refusal { refused } if refused.contains("EBUSY")), "{line:?}");
    let mut events = 0;
    let lost = loop {
        match client.line() {
            TraceLine::Event(_) => events += 1,
            TraceLine::Lost { lost } => break lost,
            other => panic!("{other:?}"),
        }
    };
    assert!(events > 0 && lost > 0 && events + lost <= 50_000, "{events}, {lost}");
}

#[test]
fn server_ends_while_a_client_watches() {
    let served = served("ends");
    let mut client = served.watch(ALL);
    for _ in 0..50_000 {
        served.stat("/");
    }
    let (device, vfs) = (served.device.clone(), served.vfs.clone());
    // It is waiting for a client that does not read.
    drop(served);
    assert_eq!(connect(&device, None).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    vfs.trace(TraceOptions::default()).expect("no watcher is left");
    let mut rest = String::new();
    while client.0.read_line(&mut rest).unwrap() > 0 {}
}

/// The kernel's requests have node numbers. The trace shows the name that was looked up last, or
/// the first name if that one is removed.
#[test]
fn event_shows_the_name_that_was_looked_up_last() {
    const ROOT: u64 = 1;
    const ME: Caller = Caller::new(0, 0);
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
    let server = Server::new(vfs.clone(), ServerOptions::default());
    let node = server.mknod(ME, ROOT, b"a", 0o100_644, 0, 0).unwrap().node;
    let mut tracer = vfs.trace(TraceOptions::default()).unwrap();
    let mut written_as = || {
        let handle = server.open(ME, node, 2).unwrap();
        server.write(ME, handle, 0, b"x").unwrap();
        server.release(handle).unwrap();
        let mut last = None;
        tracer.poll(usize::MAX, |event| last = Some(format!("{} {}", event.op, event.path.escape_ascii())));
        last.unwrap()
    };
    let link = |name: &str| assert_eq!(server.link(ME, node, ROOT, name.as_bytes()).unwrap().node, node);
    let unlink = |name: &str| server.unlink(ME, ROOT, name.as_bytes()).unwrap();
    let look_up = |name: &str| assert_eq!(server.lookup(ME, ROOT, name.as_bytes()).unwrap().unwrap().node, node);
    assert_eq!(written_as(), "write /a");
    link("b");
    unlink("b");
    assert_eq!(written_as(), "write /a");
    // The kernel knows the new name without a look-up.
    link("b");
    unlink("a");
    assert_eq!(written_as(), "write /b");
    link("c");
    unlink("c");
    assert_eq!(written_as(), "write /c (deleted)");
    look_up("b");
    assert_eq!(written_as(), "write /b");
    // It does not matter whether the kernel knew the number before.
    server.forget(node, 5);
    look_up("b");
    assert_eq!(written_as(), "write /b");
    unlink("b");
    server.forget(node, 1);
    await_inodes(&server, 1);
}
