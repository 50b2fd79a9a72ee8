//! The `pando` command.
#![forbid(unsafe_code)]

mod args;
mod boost;
mod characters;
mod daemon;
mod deferred;
mod failure;
mod generate;
mod glibc_widths;
mod log;
mod ls;
mod mount;
mod mount_flags;
mod mount_point;
mod mount_refused;
mod mountinfo;
mod quote;
mod signals;
mod size;
mod slow;
mod trace;
mod umount;
mod warm;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    deferred::Deferred,
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody may be listening.
            let _ = error.print();
            return ls::words::exit_code(&error).into();
        }
    };
    log::start(cli.verbose);
    signals::start();
    let result = match cli.command {
        Command::Mount(Deferred(args)) if args.daemon && !daemon::is_child() => daemon::start(),
        Command::Mount(Deferred(args)) => mount::run(&args, args.daemon),
        Command::Umount(Deferred(args)) => umount::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(Deferred(args)) => Ok(pando_bench::cli::run(args, signals::ending())),
        Command::Boost(Deferred(args)) => boost::run(&args),
        Command::Warm(Deferred(args)) => warm::run(&args),
        Command::Ls(Deferred(args)) => Ok(ls::run(&args)),
        Command::Trace(Deferred(args)) => trace::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Version(args) => generate::version(args.json).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => generate::completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Man { out } => generate::man(&out).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        if failure.is_quiet() {
            return ExitCode::SUCCESS;
        }
        failure::say(failure);
        ExitCode::FAILURE
    })
}
