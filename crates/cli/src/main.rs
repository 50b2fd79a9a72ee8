//! The `pando` command.
#![forbid(unsafe_code)]

mod args;
mod boost;
mod daemon;
mod deferred;
mod generate;
mod log;
mod mount;
mod mount_helper;
mod mount_options;
mod mount_point;
mod mount_refused;
mod remount;
mod slow;
mod trace;
mod tree_limits;
mod umount;
mod warm;

use std::{ffi::OsString, process::ExitCode};

use pando_console::{
    failure::{self, say},
    output::show,
    signals,
};

use crate::{
    args::{Command, MountArgs},
    daemon::Started,
    deferred::Deferred,
};

fn main() -> ExitCode {
    if mount_helper::is_called() {
        signals::start();
        return mount_helper::run();
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    let cli = match args::read(line.clone()) {
        Ok(cli) => cli,
        Err(message) => {
            // Nobody may be listening.
            let _ = message.print();
            return pando_ls::exit_code(&message).into();
        }
    };
    log::start(cli.verbose);
    signals::start();
    let result = match cli.command {
        Command::Mount(Deferred(args)) => mount(&args, &line),
        Command::Umount(Deferred(args)) => umount::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(Deferred(args)) => Ok(pando_bench::cli::run(args, signals::ending())),
        Command::Boost(Deferred(args)) => boost::run(&args),
        Command::Warm(Deferred(args)) => warm::run(&args),
        Command::Ls(Deferred(args)) => Ok(pando_ls::run(&args)),
        Command::Trace(Deferred(args)) => trace::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Version(args) => generate::version(args.json).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => generate::completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Man { out } => generate::man(&out).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| {
        if failure.is_quiet() {
            return ExitCode::SUCCESS;
        }
        say(failure);
        ExitCode::FAILURE
    })
}

/// Mounts, in the background if that was asked for; or changes what is mounted.
fn mount(args: &MountArgs, line: &[OsString]) -> failure::Result<ExitCode> {
    let asked = mount_options::fold(args)?;
    if asked.remount {
        return remount::run(args, &asked).map(|()| ExitCode::SUCCESS);
    }
    if !args.daemon || daemon::is_child() {
        return mount::run(args, asked, args.daemon);
    }
    match daemon::start(&line[1..])? {
        Started::Ready(ready) => {
            show(&ready);
            Ok(ExitCode::SUCCESS)
        }
        Started::Failed(code) => Ok(ExitCode::from(code)),
    }
}
