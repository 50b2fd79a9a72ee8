//! `pando ls`: lists directories of the host, from the record stream of `pando-scan`.
//!
//! From above:
//!
//! ```text
//!  list       directories, from records to lines; `argument`: the paths on the command line
//!  forms      `row`: an entry in the requested form, with the help of `long`, `json`, `csv`;
//!             `dired`: the places of names
//!  plan       the request of the command line and the terminal, resolved once
//!  options    the command line: `choices` are in effect; `args` has both
//!  entry      an entry; `order` and `sorter`: in order, within a memory limit; `colours`
//!  output     stdout in large pieces; `interrupt`: signals; `failed`: messages, exit status
//!  text       the parts of a line: numbers, times, owners, columns, links; words and patterns
//! ```
#![forbid(unsafe_code)]

mod entry;
mod forms;
mod list;
mod options;
mod output;
mod plan;
mod text;

pub use self::{options::args::LsArgs, text::words::exit_code};

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use pando_console::failure::say;

use self::{list::Lister, output::failed::Status, plan::Plan};

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
