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

use std::{io, path::PathBuf};

use clap::Args;
use pando_console::args::number;

pub(crate) use self::{
    matrix::{Matrix, Offender},
    stage::{HASH_KEY, KEYS},
    svg::{Layout, svg},
    touched::Class,
};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    lackey,
    output::Output,
};

/// The subcommand's name.
const NAME: &str = "conflicts";

const HELP: &str = "\
Needs valgrind (Debian: apt install valgrind), and two cores or more: on one, nothing is spread. \
Each operation runs alone, in a copy of one and the same process, and every access it makes to \
memory is written down. Two operations conflict if one writes a cache line that the other \
touches. Nothing is timed, so a busy machine does not matter; it takes about a minute.

Examples:
  pando bench conflicts                   the matrix, and what stands in the way
  pando bench conflicts --svg matrix.svg  the same as a picture
  pando bench conflicts --list            which pairs, and why they commute
  pando bench conflicts --keys 1 --check  that looking writes nothing

Exit codes: 0 measured, 1 an operation or the check failed, 2 the request cannot be met, 130 interrupted.";

/// Options of `pando bench conflicts`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ConflictsArgs {
    /// Print the pairs and why they commute, and measure nothing
    #[arg(long)]
    list: bool,
    /// Hash keys to try everything under; with one, chance meetings cannot be told from others
    #[arg(long, value_name = "N", default_value_t = KEYS,
          value_parser = number(1..=KEYS), allow_negative_numbers = true)]
    keys: u32,
    /// Fail if two operations that only look (stat, lseek, read, readdir, d_path, getxattr) conflict, on whatever line
    #[arg(long, conflicts_with = "list")]
    check: bool,
    /// Also write the verdicts and offenders to this file, as JSON
    ///
    /// {version, compiler, cores, pairs, keys, free_percent, free_percent_with_memory, cases [{scene, a, b, why_they_commute,
    /// verdict: free|chance|memory|conflict, conflicts, memory_only, offenders (numbers)}], offenders [{class: own|allocator|reclamation, written, beside,
    /// written_at, touched_at, pairs}]}. Fields may be added.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the matrix into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Does what was asked for; returns what to print, and whether it could be written and passed the check.
pub(crate) fn run(args: &ConflictsArgs, halt: &Halt) -> Result<(String, Result<(), Failure>), Failure> {
    if let Some(order) = lackey::order() {
        let keys = order.rsplit_once(KEYS_FOLLOW).and_then(|(_, keys)| keys.parse().ok()).unwrap_or(KEYS);
        return Ok((stage::run(keys, halt)?, Ok(())));
    }
    if args.list {
        return Ok((table::list(), Ok(())));
    }
    let [json, picture] = [&args.json, &args.svg].map(|path| path.as_deref().map(Output::open).transpose());
    let (json, picture) = (json?, picture?);
    let matrix = measure(NAME, args.keys, halt)?;
    let write = || {
        if let Some(json) = json {
            json.write(serde_json::to_string_pretty(&matrix).during(|| "writing verdicts".into())? + "\n")?;
        }
        picture.map_or(Ok(()), |picture| picture.write(svg(&matrix, Layout::Wide)))
    };
    let check = || match matrix.check_looking() {
        Err(why) if args.check => Err(io::Error::other(why)).during(|| "checking that looking writes nothing".into()),
        _ => Ok(()),
    };
    Ok((table::render(&matrix), write().and_then(|()| check())))
}

/// In the order to a traced process, what stands before the number of keys.
const KEYS_FOLLOW: char = '=';

/// Traces all operations and compares them, under so many hash keys. `asked_by` is the subcommand of this process.
///
/// # Errors
/// [`Failure::Refused`] if valgrind is missing or there is one core only; or what an operation answered; interrupted.
pub(crate) fn measure(asked_by: &str, keys: u32, halt: &Halt) -> Result<Matrix, Failure> {
    if stage::cores() < 2 {
        return Err(Failure::Refused("on one core nothing is spread over cores: run it where there are two".into()));
    }
    let arguments = lackey::arguments_of(asked_by, NAME);
    Matrix::new(&lackey::trace(arguments, &format!("{NAME} keys{KEYS_FOLLOW}{keys}"), halt)?, halt)
}

/// One offender, in the first pair.
#[cfg(test)]
pub(crate) fn matrix_for_tests() -> Matrix {
    use self::{
        matrix::{Case, Verdict},
        pairs::{Pair, pairs},
    };

    let offender = Offender {
        class: Class::Own,
        written: "Vec<T> & more".into(),
        beside: None,
        written_at: "a.rs:1".into(),
        touched_at: "b.rs:2".into(),
        pairs: 1,
    };
    let case = |(i, Pair { scene, a, b, why }): (usize, Pair)| Case {
        scene,
        a,
        b,
        why_they_commute: why.into(),
        verdict: if i == 0 { Verdict::Conflict } else { Verdict::Free },
        conflicts: if i == 0 { 3 } else { 0 },
        memory_only: 0,
        offenders: if i == 0 { vec![0] } else { Vec::new() },
    };
    let cases: Vec<Case> = pairs().into_iter().enumerate().map(case).collect();
    Matrix {
        version: 1,
        compiler: "rustc".into(),
        cores: 2,
        pairs: cases.len(),
        keys: 3,
        free_percent: 99.7,
        free_percent_with_memory: 99.7,
        cases,
        offenders: vec![offender],
    }
}
