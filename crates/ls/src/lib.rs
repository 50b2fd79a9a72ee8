//! `pando ls`: lists directories of the host, from the record stream of `pando-scan`.
//!
//! ```text
//!  words -> values -> options -> choices -> args -> plan     the command line, resolved once
//!  argument            the paths on the command line
//!  list                directories: from records to the sorter, or directly to the rows
//!  pattern             the entries that are left out
//!  sorter, order, version     entries in order, within a memory limit
//!  row                 an entry in the requested form, with the help of
//!    long, columns, json, csv    the forms
//!    colours, hyperlink, time, scale, owner    the parts of a line
//!    dired             the places of names in the output
//!  output, interrupt, failed    stdout in large pieces, signals, messages and the exit status
//! ```

mod args;
mod argument;
mod choices;
mod colours;
mod columns;
mod csv;
mod dired;
mod entry;
mod failed;
mod human;
mod hyperlink;
mod interrupt;
mod json;
mod list;
mod long;
mod options;
mod order;
mod output;
mod owner;
mod pattern;
mod plan;
mod row;
mod scale;
mod sorter;
mod time;
mod values;
mod version;
mod words;

pub use self::{args::LsArgs, words::exit_code};

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use pando_console::failure::say;

use self::{failed::Status, list::Lister, plan::Plan};

/// Lists the paths of the arguments. Failures are reported, and change the exit code.
pub fn run(args: &LsArgs) -> ExitCode {
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(error) => {
            let mut status = Status::Well;
            status.say(Status::Serious, error);
            return status.into();
        }
    };
    let here = [PathBuf::from(".")];
    let paths: &[PathBuf] = if args.options.paths.is_empty() { &here } else { &args.options.paths };
    let listed = Lister::new(&plan).run(paths.iter().map(PathBuf::as_path).collect::<Vec<&Path>>().as_slice());
    // Standard output or a temporary file cannot be written. As in ls, that is serious.
    listed.unwrap_or_else(|failure| {
        say(failure);
        Status::Serious.into()
    })
}
