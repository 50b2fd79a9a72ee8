//! `pando bench conflicts`: which cache lines does one operation write that the other touches?
//!
//! ```text
//!   pairs    the pairs that are looked at, and why each commutes
//!   actor    one of two threads: what it makes, and the operations on it
//!   stage    the traced process: both threads, each operation in a copy of the process (see `lackey`)
//!   touched  what an operation touched, by cache line; where two of them meet
//!   matrix   the verdicts and the offenders
//!   table    the terminal's view;  svg  the report's
//! ```
//!
//! What is traced is the state in which cores do their work, not the first moments of it: each operation has been done
//! before on other things, the common directory is as contention leaves it, access times are not due. Each thread
//! works on files that it made itself (except for the one common name), among 200 that a third party made.

mod actor;
mod matrix;
mod pairs;
mod stage;
mod svg;
mod table;
pub(crate) mod touched;

use std::{fs, path::PathBuf};

use clap::Args;

pub(crate) use self::{matrix::Matrix, stage::HASH_KEY, svg::svg};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    lackey,
};

/// The subcommand's name.
const NAME: &str = "conflicts";

const HELP: &str = "\
Needs valgrind (Debian: apt install valgrind), and two cores or more: on one, nothing is spread.
Each operation runs alone, in a copy of one and the same process, and every access it makes to
memory is written down. Two operations conflict if one writes a cache line that the other
touches. Nothing is timed, so a busy machine does not matter; it takes about a minute.

Examples:
  pando bench conflicts                     the matrix, and what stands in the way
  pando bench conflicts --svg matrix.svg    the same as a picture
  pando bench conflicts --list              which pairs, and why they commute

Exit codes: 0 measured, 1 an operation failed, 2 the request cannot be met, 130 interrupted.";

/// Options of `pando bench conflicts`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ConflictsArgs {
    /// Print the pairs and why they commute, and measure nothing
    #[arg(long)]
    list: bool,
    /// Also write the verdicts and offenders to this file, as JSON
    ///
    /// {version, compiler, cores, pairs, keys, free_percent, free_percent_with_memory, cases [{scene, a, b, why_they_commute,
    /// verdict: free|chance|memory|conflict, conflicts, memory_only, offenders: [number]}], offenders [{class: own|allocator|reclamation, written, beside,
    /// written_at, touched_at, pairs}]}. Fields may be added.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the matrix into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Does what was asked for; returns what to print.
pub(crate) fn run(args: &ConflictsArgs, halt: &Halt) -> Result<String, Failure> {
    if lackey::order().is_some() {
        return stage::run(halt);
    }
    if args.list {
        return Ok(table::list());
    }
    if stage::cores() < 2 {
        return Err(Failure::Refused("on one core nothing is spread over cores: run it where there are two".into()));
    }
    let matrix = measure(halt)?;
    if let Some(path) = &args.json {
        let during = || format!("writing {}", path.display());
        let text = serde_json::to_string_pretty(&matrix).during(during)?;
        fs::write(path, text + "\n").during(during)?;
    }
    if let Some(path) = &args.svg {
        fs::write(path, svg(&matrix)).during(|| format!("writing {}", path.display()))?;
    }
    Ok(table::render(&matrix))
}

/// Traces all operations and compares them.
///
/// # Errors
/// That valgrind is missing, or what an operation answered; interrupted.
pub(crate) fn measure(halt: &Halt) -> Result<Matrix, Failure> {
    Matrix::new(&lackey::trace(lackey::arguments_until(NAME), NAME, halt)?)
}
