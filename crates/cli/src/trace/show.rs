//! Shows the lines of a server, as text or as JSON.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use pando_console::failure::{Failure, Result, say};
use pando_fuse::trace::{TraceEvent, TraceLine};
use pando_vfs::Error;

use super::args::TraceArgs;

/// No operation needs a longer line: it has at most two paths, each of a few KiB.
const LINE_MAX: u64 = 1 << 20;

/// Why the trace has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The number of operations that the user asked for has been shown.
    Count,
    /// The server has closed the connection.
    Server,
}

/// Shows the lines of the server. The server may be any user's program and the reader may be root,
/// so everything it sends is shown as text.
pub fn show(args: &TraceArgs, shown: &str, mut lines: BufReader<UnixStream>, out: impl Write) -> Result<End> {
    let mut out = io::BufWriter::new(out);
    let (mut text, mut line, mut left) = (String::new(), Vec::new(), args.count.unwrap_or(u64::MAX));
    let (mut lost, mut end) = (0, End::Count);
    while left > 0 {
        if lines.buffer().is_empty() {
            // There is nothing more to show for now.
            out.flush().map_err(|error| Failure::output(&error))?;
        }
        line.clear();
        match lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(read) if read as u64 == LINE_MAX && !line.ends_with(b"\n") => {
                return Err(Failure::new(format!("{shown}: not understood: a line of more than {LINE_MAX} bytes")));
            }
            // The end. A server that ends while it waits for this reader leaves half a line.
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
                    say(format_args!("pando: {more} operations were lost: they came faster than they could be shown"));
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

/// Appends a line of text.
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

/// A time with three digits and a unit.
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

/// Appends text with escapes for control characters, which could move the cursor, and for bytes
/// that are not UTF-8.
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

/// Appends a valid line of JSON, which may have unknown keys, without characters that could move
/// the cursor. JSON allows some of them: those in strings are escaped, those between strings become
/// blanks.
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

    /// Shows the lines of a server that then ends.
    fn shown(options: &[&str], says: impl AsRef<[u8]>) -> std::result::Result<String, String> {
        let (mut server, client) = UnixStream::pair().expect("a pair");
        let says = says.as_ref().to_vec();
        // It may send more than the socket holds, to a reader that has stopped.
        let server = std::thread::spawn(move || drop(server.write_all(&says)));
        let mut out = Vec::new();
        let end = show(&args(options), "a test", BufReader::new(client), &mut out);
        server.join().expect("no panic");
        end.map_or_else(|failure| Err(failure.to_string()), |_| Ok(String::from_utf8(out).expect("text")))
    }

    /// A server that ends while it waits for a slow reader leaves half a line.
    #[test]
    fn a_cut_line_is_the_end() {
        let (mut server, client) = UnixStream::pair().expect("a pair");
        write!(server, "{{\"pando_trace\":1,\"pid\":1}}\n{{\"start_ns\":1").expect("it has room");
        drop(server);
        let end = show(&plain(), "a test", BufReader::new(client), io::sink()).expect("nothing fails");
        assert_eq!(end, End::Server);
    }

    /// Root reads the lines of a user's server.
    #[test]
    fn lines_of_a_server_cannot_move_the_cursor() {
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
        // The number of lost operations is smaller than before.
        assert_eq!(shown(&[], "{\"lost\":5}\n{\"lost\":3}\n").expect("nothing fails"), "");
        let endless = shown(&[], vec![b' '; 4 << 20]).unwrap_err();
        assert!(endless.contains("a line of more than"), "{endless}");
    }

    #[test]
    fn lines_are_short_and_names_are_escaped() {
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
