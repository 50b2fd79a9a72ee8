//! What is printed, and what is made for that from the definitions of the command line: completions, manual pages, the version.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::{
    args::Cli,
    failure::{Failure, Result, say},
};

/// Writes to stdout, all at once.
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Says that a service has begun.
///
/// It has, also where that cannot be said: nobody reads the pipe (`pando mount x | head -0`), the disk with the log is full.
/// Then it goes on all the same, and no failure is reported: whoever is told of one takes nothing to be there.
pub fn show(line: &str) {
    if let Err(failure) = print(line.as_bytes())
        && !failure.is_quiet()
    {
        say(failure.remedy(format!("it holds all the same: {}", line.trim_end())));
    }
}

/// Prints a completion script.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pando", &mut script);
    print(&script)
}

/// Writes `pando.1` and a page for each subcommand to `dir`.
///
/// # Errors
/// The directory or a page cannot be written.
pub fn man(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::system(dir.display(), &error))?;
    let mut command = Cli::command();
    command.build();
    pages(&command, "pando", dir)
}

/// The page of a command, and those of its subcommands.
fn pages(command: &Command, name: &str, dir: &Path) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    page(command)
        .and_then(|text| std::fs::write(&path, text))
        .map_err(|error| Failure::system(path.display(), &error))?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        pages(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(())
}

/// The text of a page: with what the short help leaves out, which `clap_mangen` would not describe, and the usage of the help,
/// since its own has options without their values.
fn page(command: &Command) -> io::Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let mut command = command.clone().version(version).mut_args(|arg| arg.hide_short_help(false));
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let mut text = Vec::new();
    clap_mangen::Man::new(command).source(format!("pando {version}")).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).replace("\n.SH EXTRA\n", "\n.SH NOTES\n"))
}

/// Prints the version.
///
/// # Errors
/// Standard output cannot be written.
pub fn version(json: bool) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let line = if json {
        format!("{{\"name\":\"pando\",\"version\":\"{version}\",\"os\":\"{os}\",\"arch\":\"{arch}\"}}\n")
    } else {
        format!("pando {version}\n")
    };
    print(line.as_bytes())
}
