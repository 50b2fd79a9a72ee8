//! `pando bench conflicts`: finds the cache lines that one operation writes and another one
//! touches.
//!
//! ```text
//!   pairs           the pairs of operations, and why each pair commutes
//!   actor           one of two threads: the files that it makes, and the operations on them
//!   traced_process  both threads, with each operation in a copy of the process (see `lackey`)
//!   touched         what an operation touched, by cache line; where two operations conflict
//!   matrix          the verdicts and the offenders
//!   table           the output for the terminal
//!   svg             the picture
//! ```
//!
//! The traced state is a steady state. Each operation has been done before on other objects, the
//! shared directory is in the state that contention leaves, and access times are not due. Each
//! thread works on files that it made itself (except for the one shared name), among 200 files of
//! another thread.

mod actor;
mod matrix;
mod pairs;
mod svg;
mod table;
pub(crate) mod touched;
mod traced_process;

use std::{io, path::PathBuf};

use clap::Args;
use pando_console::args::number;

pub(crate) use self::{
    matrix::{Matrix, Offender},
    svg::{Layout, svg},
    touched::Class,
    traced_process::KEYS,
};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        output::Output,
    },
    lackey,
};

/// The subcommand's name.
const NAME: &str = "conflicts";

const HELP: &str = "\
Needs valgrind (Debian: apt install valgrind) and at least two cores: with one core, pandofs does not spread its \
counters over cores. Each operation runs alone, in a copy of the same process, and all of its memory accesses are \
recorded. Two operations conflict if one writes a cache line that the other touches. Nothing is timed, so a busy \
machine does not change the result. It takes about a minute.

Examples:
  pando bench conflicts                   the matrix, and the lines that cause conflicts
  pando bench conflicts --svg matrix.svg  the same as a picture
  pando bench conflicts --list            all pairs, and why they commute
  pando bench conflicts --keys 1 --check  check that read-only operations write no shared line

Exit codes: 0 measured, 1 an operation or the check failed, 2 the request cannot be met, 130 interrupted.";

/// Options of `pando bench conflicts`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ConflictsArgs {
    /// Print the pairs and why they commute, without tracing
    #[arg(long)]
    list: bool,
    /// Number of hash keys to trace with; with one, conflicts by chance cannot be told from others
    #[arg(long, value_name = "N", default_value_t = KEYS,
          value_parser = number(1..=KEYS), allow_negative_numbers = true)]
    keys: u32,
    /// Fail if two read-only operations (stat, lseek, read, readdir, d_path, getxattr) conflict on
    /// any line
    #[arg(long, conflicts_with = "list")]
    check: bool,
    /// Also write the verdicts and offenders to this file, as JSON
    ///
    /// {version, compiler, cores, pairs, keys, free_percent, free_percent_with_memory, cases
    /// [{scene, a, b, why_they_commute, verdict: free|chance|memory|conflict, conflicts,
    /// memory_only, offenders (numbers)}], offenders [{class: own|allocator|reclamation, written,
    /// beside, written_at, touched_at, pairs}]}. Fields may be added.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the matrix into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the command. Returns the text to print, and whether the files could be written and the
/// check passed.
pub(crate) fn run(args: &ConflictsArgs, cancel: &Cancel) -> Result<(String, Result<(), Failure>), Failure> {
    if let Some(order) = lackey::order() {
        let keys = order.rsplit_once(KEYS_FOLLOW).and_then(|(_, keys)| keys.parse().ok()).unwrap_or(KEYS);
        return Ok((traced_process::run(keys, cancel)?, Ok(())));
    }
    if args.list {
        return Ok((table::list(), Ok(())));
    }
    let [json, picture] = [&args.json, &args.svg].map(|path| path.as_deref().map(Output::open).transpose());
    let (json, picture) = (json?, picture?);
    let matrix = measure(NAME, args.keys, cancel)?;
    let write = || {
        if let Some(json) = json {
            json.write(serde_json::to_string_pretty(&matrix).during(|| "writing verdicts".into())? + "\n")?;
        }
        picture.map_or(Ok(()), |picture| picture.write(svg(&matrix, Layout::Wide)))
    };
    let check = || match matrix.check_read_only() {
        Err(why) if args.check => {
            Err(io::Error::other(why)).during(|| "checking that read-only operations do not conflict".into())
        }
        _ => Ok(()),
    };
    Ok((table::render(&matrix), write().and_then(|()| check())))
}

/// Precedes the number of keys in the order to a traced process.
const KEYS_FOLLOW: char = '=';

/// Traces all operations and compares them, under `keys` hash keys. `asked_by` is the subcommand of
/// this process.
///
/// # Errors
/// [`Failure::Refused`] if valgrind is missing or there is only one core; the error of an
/// operation; [`Failure::Interrupted`].
pub(crate) fn measure(asked_by: &str, keys: u32, cancel: &Cancel) -> Result<Matrix, Failure> {
    if traced_process::cores() < 2 {
        return Err(Failure::Refused(
            "pandofs spreads nothing over cores if there is only one: use a machine with two or more".into(),
        ));
    }
    let arguments = lackey::arguments_of(asked_by, NAME);
    Matrix::new(&lackey::trace(arguments, &format!("{NAME} keys{KEYS_FOLLOW}{keys}"), cancel)?, cancel)
}

/// A matrix in which the first pair has one offender.
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

#[cfg(test)]
mod tests;
