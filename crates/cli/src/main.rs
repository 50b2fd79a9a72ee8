//! The `pando` command.
#![forbid(unsafe_code)]

mod args;
mod daemon;
mod failure;
mod generate;
mod mount;
mod mount_flags;
mod mount_point;
mod mountinfo;
mod size;
mod umount;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.verbose);
    let result = match cli.command {
        Command::Mount(args) if args.daemon && !daemon::is_child() => daemon::start(),
        Command::Mount(args) => mount::run(&args, args.daemon),
        Command::Umount(args) => umount::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => Ok(pando_bench::cli::run(args)),
        Command::Version(args) => generate::version(args.json).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => generate::completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Man { out } => generate::man(&out).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        if failure.is_quiet() {
            return ExitCode::SUCCESS;
        }
        eprintln!("{failure}");
        ExitCode::FAILURE
    })
}

/// Logs to stderr. What libraries log through `log` arrives here too.
fn start_log(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|asked| !asked.is_empty());
    let filter = asked.map(|asked| EnvFilter::try_new(&asked).map_err(|error| (asked, error)));
    let filter = filter.unwrap_or_else(|| Ok(EnvFilter::new(default))).unwrap_or_else(|(asked, error)| {
        eprintln!("pando: RUST_LOG={asked}: {error}; logging as without it");
        EnvFilter::new(default)
    });
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(verbose > 1).init();
}
