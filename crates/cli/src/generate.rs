//! `pando version`, `pando completions` and `pando man`: made from the definitions of the command
//! line.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_complete::Shell;
use pando_console::{
    failure::{Failure, Result},
    output::print,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options of `pando version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Print a JSON object: {"name", "version", "os", "arch"}
    #[arg(long)]
    pub json: bool,
}

/// Options of `pando completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Options of `pando man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory to write them to (created if missing)
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Prints a completion script for all of `command`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pando", &mut script);
    print(&script)
}

/// Writes `pando.1` and a page for each subcommand of `command`.
///
/// # Errors
/// The directory or a page cannot be written.
pub fn man(args: &ManArgs, mut command: Command) -> Result<()> {
    let dir = args.out.as_path();
    std::fs::create_dir_all(dir).map_err(|error| Failure::system(dir.display(), &error))?;
    command.build();
    pages(&command, "pando", dir)
}

/// Writes the page of a command, and those of its subcommands.
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

/// The text of a page. `clap_mangen` leaves out options that the short help leaves out, and its
/// usage shows options without their values. So no option is hidden, and the usage is that of the
/// help.
fn page(command: &Command) -> io::Result<String> {
    let mut command = command.clone().version(VERSION).mut_args(|arg| arg.hide_short_help(false));
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let mut text = Vec::new();
    clap_mangen::Man::new(command).source(format!("pando {VERSION}")).render(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let Some((before, rest)) = text.split_once("\n.SH EXTRA\n") else { return Ok(text.into_owned()) };
    let (notes, after) = rest.split_once("\n.SH ").unwrap_or((rest, ""));
    Ok(format!("{before}\n.SH NOTES\n{}.SH {after}", with_tables(notes)))
}

/// The notes of a page. Indented lines, as in tables, stay as they are. They are as wide as a
/// terminal, so the text is not indented. A line of up to three words and a colon is a title.
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
pub fn version(args: &VersionArgs) -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let line = if args.json {
        format!("{{\"name\":\"pando\",\"version\":\"{VERSION}\",\"os\":\"{os}\",\"arch\":\"{arch}\"}}\n")
    } else {
        format!("pando {VERSION}\n")
    };
    print(line.as_bytes())
}
