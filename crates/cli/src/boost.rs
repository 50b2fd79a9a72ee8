//! `pando boost`: a program with a helper that reads ahead of it, or a helper for all programs at a
//! mount.

mod args;
mod program;
mod totals;
mod watch;

use std::process::ExitCode;

use pando_boost::Options;
use pando_console::failure::Result;

pub use self::args::BoostArgs;

/// Runs the program to its end, or watches until a signal.
///
/// # Errors
/// The mount cannot be watched. Failures to start the program are reported here, and become an exit
/// code.
pub fn run(args: &BoostArgs) -> Result<ExitCode> {
    let options = Options::new().max_in_flight(args.max_inflight).xattrs(args.xattrs);
    match (&args.watch, args.command.split_first()) {
        (Some(path), _) => watch::run(path, options),
        (None, Some((program, arguments))) => program::run(program, arguments, options),
        (None, None) => unreachable!("clap requires one of them"),
    }
}
