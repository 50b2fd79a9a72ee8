//! What is printed, and what is made for that from the definitions of the command line: completions, manual pages, the version.

use std::{io, path::Path};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::{args::Cli, deferred::at_once};
use pando_console::{
    failure::{Failure, Result},
    output::print,
};

/// Prints a completion script.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut at_once(Cli::command), "pando", &mut script);
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
    let text = String::from_utf8_lossy(&text);
    let Some((before, rest)) = text.split_once("\n.SH EXTRA\n") else { return Ok(text.into_owned()) };
    let (notes, after) = rest.split_once("\n.SH ").unwrap_or((rest, ""));
    Ok(format!("{before}\n.SH NOTES\n{}.SH {after}", with_tables(notes)))
}

/// Notes of which what is indented, as tables are, stays as it is. It is as wide as a terminal, with nothing before it. A line of
/// up to three words and a colon is a title.
fn with_tables(notes: &str) -> String {
    let (mut text, mut in_table) = (".in 0\n".to_owned(), false);
    for line in notes.lines() {
        let title = line.strip_suffix(':').filter(|title| title.split(' ').count() <= 3 && !title.starts_with(' '));
        if let Some(title) = title {
            let end_of_table = if std::mem::take(&mut in_table) { ".fi\n" } else { "" };
            text.push_str(&format!("{end_of_table}.SS {title}\n.in 0\n"));
            continue;
        }
        let is_table = line.starts_with(' ') || (in_table && line.is_empty());
        if is_table != in_table {
            text.push_str(if is_table { ".nf\n" } else { ".fi\n" });
            in_table = is_table;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
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
