//! The log, on stderr. Messages that libraries send to `log` go to it too.

use std::io::{self, IsTerminal};

use pando_console::failure::say;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

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
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colours).with_target(verbose > 1);
    tracing_subscriber::registry().with(filter).with(lines).init();
}
