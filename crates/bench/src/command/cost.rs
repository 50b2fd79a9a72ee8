//! `pando bench cost`: the number of instructions of an operation, and the number of atomic
//! read-modify-writes among them.
//!
//! Each compare-and-swap, each reference count and each lock is an atomic read-modify-write. It
//! takes some 20 cycles even if the cache line is not contended, where other instructions take a
//! quarter of a cycle.
//!
//! The count is exact, and the same in each run of the same program: the hash key and the addresses
//! are fixed, there is one thread, and work that an operation does only occasionally is included
//! with its share. So a change of a few percent is visible on any machine, however busy, with any
//! number of cores. Waiting for memory or for other cores is not visible.
//!
//! The stored table (`crates/bench/cost.json`) is the baseline of a change, and part of the source.
//! A change that costs more than [`TOLERATED_PERCENT`] must store a new table with `--update`,
//! which makes the cost visible in review. Another compiler gives other counts. The check then
//! reports that, and does not fail.

mod traced_process;

use std::{fs, io, path::Path, path::PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        output::Output,
    },
    lackey::{self, Event},
    report::table,
};

/// Version of the stored table's format.
const VERSION: u32 = 2;
/// The subcommand's name.
const NAME: &str = "cost";
/// Increase of a count that is accepted without a new table.
const TOLERATED_PERCENT: f64 = 5.0;

const HELP: &str = "\
Needs valgrind (Debian: apt install valgrind). Nothing is timed, so a busy machine does not change the result. \
The same program gives the same numbers in every run. Another compiler gives other numbers; --check then reports \
that and compares nothing. Build with --release.

Examples:
  pando bench cost
  pando bench cost --check crates/bench/cost.json   compare, as CI does
  pando bench cost --update crates/bench/cost.json  accept the new numbers

Exit codes: 0 measured, and no operation costs more than stored; 1 an operation costs more, or failed; 2 the \
request cannot be met; 130 interrupted.";

/// Options of `pando bench cost`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CostArgs {
    /// Compare with a stored table; fail if an operation has over 5 % more instructions or atomic
    /// read-modify-writes
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    check: Option<PathBuf>,
    /// Store the table
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
}

/// The stored table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Table {
    version: u32,
    compiler: String,
    /// Whether it was built with debug assertions.
    debug: bool,
    operations: Vec<Cost>,
}

/// The counts of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cost {
    name: String,
    instructions: f64,
    /// Atomic read-modify-writes. None on architectures whose instructions are not decoded.
    locked: Option<f64>,
}

/// Runs the command. Returns the text to print, and whether the table could be stored.
///
/// # Errors
/// valgrind is missing; an operation failed or costs more than stored; [`Failure::Interrupted`].
pub(crate) fn run(args: &CostArgs, cancel: &Cancel) -> Result<(String, Result<(), Failure>), Failure> {
    if lackey::order().is_some() {
        return Ok((traced_process::run(cancel)?, Ok(())));
    }
    // Read first, because counting takes seconds.
    let stored = args.check.as_deref().map(read).transpose()?;
    let store = args.update.as_deref().map(Output::open).transpose()?;
    let now = measure(cancel)?;
    let text = match (stored, &args.check) {
        (Some(stored), Some(path)) => compare(&stored, &now, path)?,
        _ => print(&now),
    };
    let table = serde_json::to_string_pretty(&now).during(|| "storing the table".into())? + "\n";
    Ok((text, store.map_or(Ok(()), |store| store.write(table))))
}

fn read(path: &Path) -> Result<Table, Failure> {
    let during = || format!("reading {}", path.display());
    parse(&fs::read_to_string(path).during(during)?).during(during)
}

/// Parses a stored table.
fn parse(text: &str) -> io::Result<Table> {
    let table: Table = serde_json::from_str(text)?;
    if table.version == VERSION {
        return Ok(table);
    }
    Err(io::Error::other(format!(
        "the table has version {}, not {VERSION}: store a new one with --update",
        table.version
    )))
}

fn measure(cancel: &Cancel) -> Result<Table, Failure> {
    let traced = lackey::trace::<Vec<traced_process::TracedRun>>(lackey::arguments_of(NAME, NAME), NAME, cancel)?;
    let mut operations = Vec::new();
    for traced_process::TracedRun { name, times, copy } in &traced.body {
        let (mut instructions, mut locked) = (0_u64, 0_u64);
        traced.scan(*copy, cancel, |event| {
            if let Event::Instruction(address) = event {
                instructions += 1;
                locked += u64::from(traced.symbols.is_atomic_rmw(address));
            }
        })?;
        let each = |count: u64| (10.0 * count as f64 / f64::from(*times)).round() / 10.0;
        let locked = cfg!(target_arch = "x86_64").then(|| each(locked));
        operations.push(Cost { name: name.clone(), instructions: each(instructions), locked });
    }
    // The compiler must be known: counts of different compilers are not compared.
    let unnamed = || io::Error::other("the program does not name its compiler: was its .comment section stripped?");
    let compiler = traced.symbols.compiler().ok_or_else(unnamed).during(|| "counting instructions".into())?.to_owned();
    Ok(Table { version: VERSION, compiler, debug: cfg!(debug_assertions), operations })
}

fn print(now: &Table) -> String {
    let row = |cost: &Cost| vec![cost.name.clone(), number(Some(cost.instructions)), number(cost.locked)];
    let text = table::aligned(&["operation", "instructions", "atomic RMW"], now.operations.iter().map(row));
    format!("{text}\n{}{}\n", now.compiler, debug_note(now))
}

fn number(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.1}"))
}

fn debug_note(table: &Table) -> &'static str {
    if table.debug { ", not optimised: a build without --release" } else { "" }
}

/// The table of differences. Fails if an operation costs more than stored.
fn compare(stored: &Table, now: &Table, path: &Path) -> Result<String, Failure> {
    let known = |name: &str| stored.operations.iter().find(|cost| cost.name == name);
    let rows = now.operations.iter().map(|cost| {
        let known = known(&cost.name);
        let change = known.map(|known| rise_percent(known.instructions, cost.instructions));
        vec![
            cost.name.clone(),
            number(known.map(|known| known.instructions)),
            number(Some(cost.instructions)),
            change.map_or("new".to_owned(), |change| format!("{change:+.1} %")),
            number(known.and_then(|known| known.locked)),
            number(cost.locked),
        ]
    });
    let text = table::aligned(&["operation", "stored", "now", "change", "atomic RMW: stored", "now"], rows);
    let how = format!("pando bench cost --update {}", path.display());
    if stored.debug != now.debug || stored.compiler != now.compiler {
        return Ok(format!(
            "{text}\nNot compared: the table was stored by {}{}, but this program was built by {}{}. To store a new table: {how}\n",
            stored.compiler,
            debug_note(stored),
            now.compiler,
            debug_note(now)
        ));
    }
    let mut wrong: Vec<String> = Vec::new();
    for cost in &now.operations {
        let Some(known) = known(&cost.name) else {
            wrong.push(format!("{} is not in the table", cost.name));
            continue;
        };
        let locked = known.locked.zip(cost.locked).map(|(before, now)| ("atomic read-modify-writes", before, now));
        let measures = [Some(("instructions", known.instructions, cost.instructions)), locked];
        for (what, before, now) in measures.into_iter().flatten() {
            if rise_percent(before, now) > TOLERATED_PERCENT {
                wrong.push(format!("{} takes {now:.1} {what}, stored: {before:.1}", cost.name));
            }
        }
    }
    wrong.extend(stored.operations.iter().filter_map(|old| {
        let gone = now.operations.iter().all(|cost| cost.name != old.name);
        gone.then(|| format!("{} is in the table and was not counted", old.name))
    }));
    if wrong.is_empty() {
        return Ok(format!(
            "{text}\nNo operation costs over {TOLERATED_PERCENT} % more than stored. {}\n",
            now.compiler
        ));
    }
    let why = format!("{}\n{text}\nIf the change is worth this cost, store the new table: {how}", wrong.join("; "));
    Err(Failure::Io(format!("checking {}", path.display()), io::Error::other(why)))
}

fn rise_percent(before: f64, now: f64) -> f64 {
    100.0 * (now / before.max(0.1) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(compiler: &str, operations: &[(&str, f64)]) -> Table {
        let cost = |&(name, instructions): &(&str, f64)| Cost { name: name.to_owned(), instructions, locked: None };
        let operations = operations.iter().map(cost).collect();
        Table { version: VERSION, compiler: compiler.into(), debug: false, operations }
    }

    fn verdict(stored: &Table, now: &Table) -> Result<String, String> {
        compare(stored, now, Path::new("t.json")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn increase_of_instructions_fails_and_decrease_does_not() {
        let stored = table("rustc 1", &[("stat", 100.0), ("open", 200.0)]);
        assert!(verdict(&stored, &table("rustc 1", &[("stat", 104.9), ("open", 100.0)])).is_ok());
        let error = verdict(&stored, &table("rustc 1", &[("stat", 105.1), ("open", 200.0)])).expect_err("a rise");
        assert!(error.contains("stat takes 105.1") && error.contains("--update t.json"), "{error}");
    }

    #[test]
    fn increase_of_atomic_read_modify_writes_fails() {
        let with_locked = |locked| {
            let mut table = table("rustc 1", &[("create", 1000.0)]);
            table.operations[0].locked = locked;
            table
        };
        assert!(verdict(&with_locked(Some(30.0)), &with_locked(Some(31.0))).is_ok());
        let error = verdict(&with_locked(Some(30.0)), &with_locked(Some(32.0))).expect_err("a rise");
        assert!(error.contains("create takes 32.0 atomic read-modify-writes, stored: 30.0"), "{error}");
        // A program on another architecture does not count them.
        assert!(verdict(&with_locked(Some(30.0)), &with_locked(None)).is_ok());
    }

    #[test]
    fn operation_in_one_table_only_is_named() {
        let (one, two) = (table("rustc 1", &[("stat", 1.0)]), table("rustc 1", &[("stat", 1.0), ("open", 2.0)]));
        assert!(verdict(&one, &two).expect_err("new").contains("open is not in the table"));
        assert!(verdict(&two, &one).expect_err("gone").contains("open is in the table"));
    }

    #[test]
    fn table_of_another_version_is_refused() {
        let mut stored = table("rustc 1", &[("stat", 1.0)]);
        let text = |table: &Table| serde_json::to_string(table).expect("text");
        assert_eq!(parse(&text(&stored)).expect("of this form"), stored);
        stored.version += 1;
        let error = parse(&text(&stored)).expect_err("of another").to_string();
        assert!(error.contains("version 3, not 2") && error.contains("--update"), "{error}");
    }

    #[test]
    fn counts_of_another_compiler_are_not_compared() {
        let text =
            verdict(&table("rustc 1", &[("stat", 1.0)]), &table("rustc 2", &[("stat", 9.0)])).expect("a warning");
        assert!(text.contains("Not compared"), "{text}");
    }
}
