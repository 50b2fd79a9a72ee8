//! The log: on stderr, and in the system's log once the process is in the background. Messages that
//! libraries send to `log` go to it too.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use pando_console::failure::say;
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Starts the log with the filter of `RUST_LOG`, or otherwise with the verbosity of -v.
pub fn start(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|asked| !asked.is_empty());
    let filter = asked.map(|asked| EnvFilter::try_new(&asked).map_err(|error| (asked, error)));
    let filter = filter.unwrap_or_else(|| Ok(EnvFilter::new(default))).unwrap_or_else(|(asked, error)| {
        say(format_args!("pando: RUST_LOG={asked}: {error}; logging as without it"));
        EnvFilter::new(default)
    });
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(Target).with_timer(Target).with_target(verbose > 1);
    tracing_subscriber::registry().with(filter).with(lines.with_ansi(colours)).init();
}

/// Where syslog(3) sends its messages.
const SOCKET: &str = "/dev/log";
/// The facility of messages (syslog(3)): LOG_DAEMON.
const DAEMON: u8 = 3 << 3;

static SYSTEM_LOG: OnceLock<SystemLog> = OnceLock::new();

/// From now on, messages go to the system's log. Without one they go nowhere.
pub fn move_to_system() {
    let _ = SYSTEM_LOG.set(SystemLog::at(Path::new(SOCKET)));
}

/// The system's log.
#[derive(Debug)]
struct SystemLog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl SystemLog {
    fn at(path: &Path) -> Self {
        // A log that is busy loses a message. The tree must not wait for it.
        let unblocked = |socket: UnixDatagram| socket.set_nonblocking(true).map(|()| socket);
        Self { path: path.into(), socket: UnixDatagram::unbound().and_then(unblocked).ok() }
    }

    /// Sends a message. A failure cannot be told to anybody.
    fn send(&self, level: Level, text: &[u8]) {
        let severity = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let head = format!("<{}>pando[{}]: ", DAEMON | severity, std::process::id());
        if let Some(socket) = &self.socket {
            // By its name each time: the log may have been started again.
            let _ = socket.send_to(&[head.as_bytes(), text.trim_ascii()].concat(), &self.path);
        }
    }
}

/// The target of messages.
#[derive(Debug, Clone, Copy)]
struct Target;

impl FormatTime for Target {
    /// The system's log notes the time itself.
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if SYSTEM_LOG.get().is_some() { Ok(()) } else { SystemTime.format_time(writer) }
    }
}

impl MakeWriter<'_> for Target {
    type Writer = Message;

    fn make_writer(&self) -> Message {
        Message { level: Level::INFO, text: Vec::new() }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Message {
        Message { level: *meta.level(), text: Vec::new() }
    }
}

/// A message that is being written. It is sent as a whole when it is dropped.
#[derive(Debug)]
struct Message {
    level: Level,
    text: Vec<u8>,
}

impl Write for Message {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        match SYSTEM_LOG.get() {
            Some(log) => log.send(self.level, &self.text),
            // There may be no reader.
            None => drop(io::stderr().write_all(&self.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_form_of_syslog() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = SystemLog::at(&path);
        // Without a log, and with one that is full, nothing waits and nothing fails.
        log.send(Level::ERROR, b"lost");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        log.send(Level::ERROR, b"cannot commit\n");
        log.send(Level::WARN, b" slow\n");
        (0..10_000).for_each(|_| log.send(Level::DEBUG, b"more"));
        let mut message = [0; 100];
        for expected in ["<27>pando[PID]: cannot commit", "<28>pando[PID]: slow", "<31>pando[PID]: more"] {
            let len = socket.recv(&mut message).expect("a message");
            let expected = expected.replace("PID", &std::process::id().to_string());
            assert_eq!(String::from_utf8_lossy(&message[..len]), expected);
        }
    }
}
