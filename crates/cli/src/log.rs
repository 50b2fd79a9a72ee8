//! The log, on stderr. What libraries log through `log` arrives here too.

use std::{
    fmt,
    io::{self, IsTerminal},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::failure::say;

/// Starts it: with `RUST_LOG`, or else as verbose as -v was said.
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
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colours).with_target(verbose > 1);
    tracing_subscriber::registry().with(filter).with(NobodyWaits).with(lines).init();
}

/// Leaves out what `fuser` logs as an error and is none: the kernel answers ENOENT to a reply when nobody waits for it
/// any more, which happens to the last releases of files whenever a tree is unmounted.
struct NobodyWaits;

impl<S: Subscriber> Layer<S> for NobodyWaits {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let mut search = Search { found: false };
        event.record(&mut search);
        !search.found
    }
}

struct Search {
    found: bool,
}

impl Visit for Search {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let text = format!("{value:?}");
            self.found = text.starts_with("Failed to send FUSE reply") && text.contains("(os error 2)");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_replies_that_nobody_waits_for_are_left_out() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(NobodyWaits).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for errno in [2, 22] {
                tracing::error!("Failed to send FUSE reply: {}", io::Error::from_raw_os_error(errno));
            }
            tracing::error!(operation = "read", "another (os error 2)");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("(os error 22)") && text.contains("another (os error 2)"), "{text}");
    }
}
