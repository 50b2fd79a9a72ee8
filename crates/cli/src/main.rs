//! The `pando` command.
//!
//! ```text
//!  main           reads the command line, runs a command, and reports its failure
//!  command_line   all commands with their help; `deferred` makes their options on demand
//!  mount          `pando mount`, and the helper of mount(8)
//!  import, cp     copies into a directory; `cp` ends and reports as `import` does
//!  store          `pando store`; it reads and reports as `import` does
//!  umount, trace, boost, warm, generate      the other commands. None imports another
//!  mounted        mounts of pando in the mount table; `held` keeps one in place
//!  log            the log: on stderr, or the system's
//! ```
//!
//! `pando bench` is in pando-bench and `pando ls` in pando-ls. The parts that commands share are in
//! pando-console.
#![forbid(unsafe_code)]

mod boost;
mod command_line;
mod cp;
mod generate;
mod import;
mod log;
mod mount;
mod mounted;
mod store;
mod trace;
mod umount;
mod warm;

use std::{ffi::OsString, process::ExitCode};

use clap::CommandFactory;
use pando_console::{failure::say, signals};

use crate::command_line::{
    Cli, Command,
    deferred::{Deferred, at_once},
};

fn main() -> ExitCode {
    if mount::helper::is_called() {
        signals::start();
        return mount::helper::run();
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    let cli = match command_line::read(line.clone()) {
        Ok(cli) => cli,
        Err(message) => {
            // There may be no reader.
            let _ = message.print();
            return pando_ls::exit_code(&message).into();
        }
    };
    log::start(cli.verbose);
    signals::start();
    let done = |()| ExitCode::SUCCESS;
    let result = match cli.command {
        Command::Mount(Deferred(args)) => mount::run(&args, &line[1..]),
        Command::Umount(Deferred(args)) => umount::run(&args).map(done),
        Command::Bench(Deferred(args)) => Ok(pando_bench::cli::run(args, signals::ending())),
        Command::Boost(Deferred(args)) => boost::run(&args),
        Command::Warm(Deferred(args)) => warm::run(&args),
        Command::Ls(Deferred(args)) => Ok(pando_ls::run(&args)),
        Command::Store(Deferred(args)) => store::run(&args),
        Command::Import(Deferred(args)) => import::run(&args),
        Command::Cp(Deferred(args)) => cp::run(&args),
        Command::Trace(Deferred(args)) => trace::run(&args).map(done),
        Command::Version(args) => generate::version(&args).map(done),
        Command::Completions(args) => generate::completions(&args, at_once(Cli::command)).map(done),
        Command::Man(args) => generate::man(&args, Cli::command()).map(done),
    };
    result.unwrap_or_else(|failure| {
        if failure.is_quiet() {
            return ExitCode::SUCCESS;
        }
        say(failure);
        ExitCode::FAILURE
    })
}
