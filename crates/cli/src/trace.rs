//! `pando trace`: what is done to a mounted tree, while it is done.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use pando_fuse::trace::{PathFilter, TraceEvent, TraceLine, TraceRequest, VERSION, connect};
use pando_vfs::{Error, trace::TraceOp};
use rustix::{net::sockopt::socket_peercred, process::geteuid};

use crate::{mount_point, umount::where_ours_are};
use pando_console::{
    failure::{Failure, Result, say},
    mountinfo::{self, Mount},
    quote::for_shell,
};

const HELP: &str = "\
Each line is one operation of the server: when it began (seconds since the trace began), how long it took, what it was, \
its path within the tree, and why it failed. Paths are those of the moment of the operation, also while directories are \
renamed. What the kernel answers from its caches does not come to the server and is not seen (see --attr-timeout of \
pando mount). What happens faster than it can be shown is lost rather than slowed down; how much is said on stderr, or \
with --json in a line {\"lost\": N}.

Only root and the user who mounted the tree may trace it, one at a time.

--json prints one object a line, version 1: {start_ns, latency_ns, thread, op, errno, path, to}; path_base64 and \
to_base64 stand for what is not UTF-8. The first line is {pando_trace: 1, pid: PID OF THE SERVER}. Keys may be added.

Examples:
  pando trace                               the only mounted tree
  pando trace /mnt/grove --errors           what fails
  pando trace /mnt/grove --min-latency 1ms  what is slow
  pando trace /mnt/grove --op create,unlink --path '/build/**'

Exit codes: 0 the tree was unmounted, or --count reached, 1 it failed, 2 the command line is wrong.";

/// Options of `pando trace`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct TraceArgs {
    /// Where the tree is mounted [default: the only tree that is]
    #[arg(value_name = "MOUNT")]
    pub mount: Option<PathBuf>,

    /// Only these operations, as in create,unlink,rename
    #[arg(long = "op", value_name = "OP,..", value_delimiter = ',')]
    pub ops: Vec<TraceOp>,

    /// Only this path and what is below, or a pattern: * and ? within a name, ** across names
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    pub path: Option<String>,

    /// Only what takes at least so long, as in 50us or 1ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub min_latency: Option<Duration>,

    /// Only what fails
    #[arg(long)]
    pub errors: bool,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,

    /// End after so many operations
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub count: Option<u64>,
}

fn parse_path(text: &str) -> std::result::Result<String, String> {
    PathFilter::parse(text).map(|_| text.to_owned())
}

fn parse_count(text: &str) -> std::result::Result<u64, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "a number of operations is from 1 on".into())
}

fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("a time is a number with a unit: 500ns, 50us, 1ms or 2s".into()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{number:?} is no number of {unit}"))
}

/// How often a server is asked that ends the connection before it has said anything. It is not patient for long, and we may
/// have slept before we asked.
const TRIES: u32 = 5;

/// Shows what is done to a tree until it is unmounted.
///
/// # Errors
/// There is no such tree, its server does not let us, or its connection broke.
pub fn run(args: &TraceArgs) -> Result<()> {
    for _ in 0..TRIES {
        // It may have been unmounted meanwhile.
        let mount = find(args)?;
        let shown = for_shell(&mount.point);
        let stream = connect(&mount.device, mount.owner).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused if mount_point::dead_at(&mount.point) => dead(&mount.point),
            _ => refused(&shown, &error),
        })?;
        if let Some(lines) = ask(args, &shown, stream)? {
            return match show(args, &shown, lines, io::stdout().lock())? {
                // The end of a server that was killed is the end of its connections, and not of the mount.
                End::Server if mount_point::dead_at(&mount.point) => Err(dead(&mount.point)),
                End::Server | End::Count => Ok(()),
            };
        }
    }
    Err(Failure::new("the server ends each connection before it has said anything").remedy("try again"))
}

/// Says what is wanted; answers what is said, if anything is.
fn ask(args: &TraceArgs, shown: &str, mut stream: UnixStream) -> Result<Option<BufReader<UnixStream>>> {
    let request = TraceRequest {
        pando_trace: VERSION,
        ops: args.ops.iter().map(|op| op.name().to_owned()).collect(),
        errors_only: args.errors,
        min_latency_ns: args.min_latency.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        path: args.path.clone(),
    };
    let failed = |error: &io::Error| Failure::system(shown, error);
    let mut line = serde_json::to_vec(&request).map_err(|error| failed(&error.into()))?;
    line.push(b'\n');
    // A server that does not let us says nothing and goes: that is seen when we read.
    if let Err(error) = stream.write_all(&line)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(failed(&error));
    }
    let mut lines = BufReader::new(stream);
    match lines.fill_buf() {
        Ok([]) => {}
        Ok(_) => return Ok(Some(lines)),
        // It has gone without reading what we asked.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(failed(&error)),
    }
    let us = geteuid();
    if us.is_root() || socket_peercred(lines.get_ref()).is_ok_and(|server| server.uid == us) {
        return Ok(None);
    }
    Err(Failure::new(format!("{shown}: only root and the user who mounted the tree may trace it")).remedy(AS_WHOM))
}

/// The mount that is meant.
fn find(args: &TraceArgs) -> Result<Mount> {
    let all = mountinfo::all().map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    let Some(dir) = &args.mount else {
        let mut ours: Vec<Mount> = all.into_iter().filter(Mount::is_ours).collect();
        return match (ours.pop(), ours.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(Failure::new("no pando tree is mounted").remedy("mount one with: pando mount DIR")),
            (Some(_), false) => Err(Failure::new("more than one pando tree is mounted").remedy(where_ours_are())),
        };
    };
    let path = mount_point::resolve(dir).map_err(|error| Failure::system(for_shell(dir), &error))?;
    let on_top = all.into_iter().rev().find(|mount| mount.point == path);
    on_top.filter(Mount::is_ours).ok_or_else(|| {
        Failure::new(format!("{}: no pando tree is mounted here", for_shell(dir))).remedy(where_ours_are())
    })
}

const AS_WHOM: &str = "trace as the user who mounted the tree, or as root";

const WHO_LISTENS: &str = "see who it is with: ss -xlp | grep pandofs/trace";

/// No operation of an honest server takes this much to tell: it has two paths, each of a few KiB.
const LINE_MAX: u64 = 1 << 20;

fn dead(point: &Path) -> Failure {
    Failure::new(format!("{}: nobody serves it any more: its server was killed", for_shell(point)))
        .remedy(format!("take the dead mount away: pando umount {}", for_shell(point)))
}

fn refused(shown: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::new(format!("{shown}: its server does not listen for traces"))
            .remedy("it may be of an older version, or in another network name space (a container)"),
        io::ErrorKind::PermissionDenied => {
            let (other, remedy) =
                if geteuid().is_root() { ("who mounted the tree", WHO_LISTENS) } else { ("you", AS_WHOM) };
            Failure::new(format!("{shown}: who listens there is neither root nor {other}")).remedy(remedy)
        }
        _ => Failure::system(shown, error),
    }
}

/// Why there is nothing more to show.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// As much as was asked for has been shown.
    Count,
    /// The server says nothing more.
    Server,
}

/// Shows what the server says. That may be a user's own, and whoever looks may be root: it is shown as text, whatever it is.
fn show(args: &TraceArgs, shown: &str, mut lines: BufReader<UnixStream>, out: impl Write) -> Result<End> {
    let mut out = io::BufWriter::new(out);
    let (mut text, mut line, mut left) = (String::new(), Vec::new(), args.count.unwrap_or(u64::MAX));
    let (mut lost, mut end) = (0, End::Count);
    while left > 0 {
        if lines.buffer().is_empty() {
            // Nothing more to show for now.
            out.flush().map_err(|error| Failure::output(&error))?;
        }
        line.clear();
        match lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(read) if read as u64 == LINE_MAX && !line.ends_with(b"\n") => {
                return Err(Failure::new(format!("{shown}: not understood: a line of more than {LINE_MAX} bytes")));
            }
            // The end; a server that ends while it waits for us to read leaves half a line.
            Ok(_) if !line.ends_with(b"\n") => {
                end = End::Server;
                break;
            }
            Ok(_) => {}
            Err(error) => return Err(Failure::system(shown, &error)),
        }
        let parsed = serde_json::from_slice::<TraceLine>(&line)
            .map_err(|error| Failure::new(format!("{shown}: not understood: {error}")))?;
        text.clear();
        match &parsed {
            TraceLine::Greeting { .. } => {
                say(format_args!("pando: tracing {shown} (Ctrl-C to end)"));
            }
            TraceLine::Refusal { refused } => {
                printable(&mut text, refused.as_bytes());
                return Err(Failure::new(format!("{shown}: {text}")));
            }
            TraceLine::Lost { lost: now } => {
                if !args.json {
                    let more = now.saturating_sub(lost);
                    say(format_args!("pando: {more} operations were lost: faster than they could be shown"));
                }
                lost = *now;
            }
            TraceLine::Event(event) => {
                left -= 1;
                if !args.json {
                    render(&mut text, event);
                }
            }
        }
        if args.json {
            plain_json(&mut text, &String::from_utf8_lossy(&line));
        }
        out.write_all(text.as_bytes()).map_err(|error| Failure::output(&error))?;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    Ok(end)
}

/// A line for people.
fn render(text: &mut String, event: &TraceEvent) {
    let seconds = Duration::from_nanos(event.start_ns).as_secs_f64();
    let _ = write!(text, "{seconds:11.6}  {:>8}  ", latency(event.latency_ns));
    let begin = text.len();
    printable(text, event.op.as_bytes());
    let _ = write!(text, "{:1$} ", "", 11_usize.saturating_sub(text.len() - begin));
    printable(text, &event.path_bytes());
    if let Some(to) = event.to_bytes() {
        text.push_str(" -> ");
        printable(text, &to);
    }
    if event.errno != 0 {
        let _ = write!(text, ": {}", Error::from_errno(event.errno));
    }
    text.push('\n');
}

/// Three digits and a unit.
fn latency(ns: u64) -> String {
    let (value, unit) = match ns {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_999 => (ns as f64 / 1e3, "us"),
        1_000_000..=999_999_999 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Names may hold anything: what would move the cursor, or is no text, is escaped.
fn printable(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// A line of JSON that is valid, with keys that we may not know, and no character in it that would move the cursor: what of
/// these JSON lets be is escaped in strings, and blank between them.
fn plain_json(text: &mut String, line: &str) {
    for c in line.chars() {
        match c {
            '\t' | '\r' => text.push(' '),
            '\n' => text.push(c),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> TraceArgs {
        args(&[])
    }

    fn args(options: &[&str]) -> TraceArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: TraceArgs,
        }
        <Line as clap::Parser>::parse_from(["trace"].iter().chain(options)).args
    }

    /// What is shown of what a server says that ends then.
    fn shown(options: &[&str], says: impl AsRef<[u8]>) -> std::result::Result<String, String> {
        let (mut server, client) = UnixStream::pair().expect("a pair");
        let says = says.as_ref().to_vec();
        // It may say more than there is room for, to somebody who goes.
        let server = std::thread::spawn(move || drop(server.write_all(&says)));
        let mut out = Vec::new();
        let end = show(&args(options), "a test", BufReader::new(client), &mut out);
        server.join().expect("no panic");
        end.map_or_else(|failure| Err(failure.to_string()), |_| Ok(String::from_utf8(out).expect("text")))
    }

    /// It is not impatient with us because of who we are.
    #[test]
    fn a_server_that_goes_without_a_word_can_be_asked_again() {
        for reads in [false, true] {
            let (mut server, client) = UnixStream::pair().expect("a pair");
            let asked = std::thread::spawn(move || ask(&plain(), "a test", client).map(|lines| lines.is_some()));
            if reads {
                BufReader::new(&mut server).read_until(b'\n', &mut Vec::new()).expect("a request");
            }
            drop(server);
            assert!(!asked.join().expect("no panic").expect("nobody is refused"));
        }
    }

    /// A server that ends while it waits for a slow reader leaves half a line behind.
    #[test]
    fn a_line_that_was_cut_is_the_end() {
        let (mut server, client) = UnixStream::pair().expect("a pair");
        write!(server, "{{\"pando_trace\":1,\"pid\":1}}\n{{\"start_ns\":1").expect("it has room");
        drop(server);
        let end = show(&plain(), "a test", BufReader::new(client), io::sink()).expect("nothing fails");
        assert_eq!(end, End::Server);
    }

    /// Root looks at what a user's server says.
    #[test]
    fn a_server_may_say_what_it_likes() {
        let refusal = "{\"refused\":\"\\u001b]0;x\\u0007\\n\u{9b}2J\"}\n";
        assert_eq!(shown(&[], refusal).unwrap_err(), "pando: a test: \\u{1b}]0;x\\u{7}\\n\\u{9b}2J");
        let event = "{\"start_ns\":1,\t\r\"latency_ns\":2,\"thread\":3,\"errno\":0,\
            \"op\":\"\\u001b[2J\",\"path\":\"/\u{9b}\u{7f}\u{fc}\"}\n";
        let text = shown(&[], event).expect("nothing fails");
        assert!(text.ends_with("  \\u{1b}[2J   /\\u{9b}\\u{7f}\u{fc}\n"), "{text:?}");
        let json = shown(&["--json"], event).expect("nothing fails");
        assert!(json.strip_suffix('\n').is_some_and(|line| !line.contains(char::is_control)), "{json:?}");
        let parsed = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(parsed(&json), parsed(event));
        // Less than before.
        assert_eq!(shown(&[], "{\"lost\":5}\n{\"lost\":3}\n").expect("nothing fails"), "");
        let endless = shown(&[], vec![b' '; 4 << 20]).unwrap_err();
        assert!(endless.contains("a line of more than"), "{endless}");
    }

    #[test]
    fn times_have_units() {
        for (text, ns) in [("500ns", 500), ("50us", 50_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "5", "ms", "-1ms", "1h", "nans", "1e400s", "1 ms"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lines_are_short_and_harmless() {
        let shown = [7, 1_234, 56_700, 999_999, 1_000_000, 2_500_000_000].map(latency);
        assert_eq!(shown, ["7 ns", "1.23 us", "56.7 us", "1000 us", "1.00 ms", "2.50 s"]);
        let mut text = String::new();
        printable(&mut text, "/grün\n\u{1b}[2J\\".as_bytes());
        printable(&mut text, b"\xff");
        assert_eq!(text, "/grün\\n\\u{1b}[2J\\\\\\xff");
        let event = TraceEvent {
            start_ns: 1_500_000_000,
            latency_ns: 42,
            thread: 0,
            op: "rename".into(),
            errno: 2,
            path: Some("/a".into()),
            path_base64: None,
            to: Some("/b".into()),
            to_base64: None,
        };
        text.clear();
        render(&mut text, &event);
        assert_eq!(text, "   1.500000     42 ns  rename      /a -> /b: no such file or directory (ENOENT)\n");
    }
}
