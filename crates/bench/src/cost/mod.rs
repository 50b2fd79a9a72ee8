//! `pando bench cost`: how many instructions an operation takes, and how many of them are locked.
//!
//! A locked instruction reads and writes memory as one: each compare-and-swap, each count of a reference, each lock. It takes
//! some 20 cycles, however free the line is, where others take a quarter of one.
//!
//! The count is exact and the same in each run of the same program: the hash key is fixed, addresses are, one thread
//! works, and what an operation does once in a while is in it with its share. So a change of a few percent is seen on
//! any machine, however busy, with any number of cores. What it does not see is waiting: for memory, for other cores.
//!
//! The stored table (`crates/bench/cost.json`) is what a change is held against. It is part of the source: a change that costs
//! more than [`TOLERATED_PERCENT`] stores a new one with `--update`, and so says that it does. Another compiler gives other
//! counts: the check says so then, and refuses nothing.

mod stage;

use std::{fs, io, path::Path, path::PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, While},
    halt::Halt,
    lackey::{self, Event},
    output::Output,
    report::table,
};

/// Of the stored table's form.
const VERSION: u32 = 2;
/// The subcommand's name.
const NAME: &str = "cost";
/// What a change may cost without owning up to it.
const TOLERATED_PERCENT: f64 = 5.0;

const HELP: &str = "\
Needs valgrind (Debian: apt install valgrind). Nothing is timed, so a busy machine does not matter. \
The same program gives the same numbers each time; another compiler gives others, and --check \
then says so and compares nothing. Build with --release.

Examples:
  pando bench cost
  pando bench cost --check crates/bench/cost.json   as the gate does
  pando bench cost --update crates/bench/cost.json  own up to a change

Exit codes: 0 measured, and no dearer than stored; 1 dearer, or an operation failed; 2 the request \
cannot be met; 130 interrupted.";

/// Options of `pando bench cost`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CostArgs {
    /// Compare with a stored table; fail if an operation takes over 5 % more instructions, or locked ones, than it says
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    check: Option<PathBuf>,
    /// Store the table
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
}

/// What is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Table {
    version: u32,
    compiler: String,
    /// Built with debug assertions.
    debug: bool,
    operations: Vec<Cost>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cost {
    name: String,
    instructions: f64,
    /// Those that read and write memory as one. Not known of every processor.
    locked: Option<f64>,
}

/// Does what was asked for; returns what to print, and whether it could be stored.
///
/// # Errors
/// That valgrind is missing, what an operation answered, that an operation costs more than stored; interrupted.
pub(crate) fn run(args: &CostArgs, halt: &Halt) -> Result<(String, Result<(), Failure>), Failure> {
    if lackey::order().is_some() {
        return Ok((stage::run(halt)?, Ok(())));
    }
    // Read first: counting takes seconds.
    let stored = args.check.as_deref().map(read).transpose()?;
    let store = args.update.as_deref().map(Output::open).transpose()?;
    let now = measure(halt)?;
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

/// A stored table.
fn parse(text: &str) -> io::Result<Table> {
    let table: Table = serde_json::from_str(text)?;
    if table.version == VERSION {
        return Ok(table);
    }
    Err(io::Error::other(format!("it is of version {}, not {VERSION}: store it anew with --update", table.version)))
}

fn measure(halt: &Halt) -> Result<Table, Failure> {
    let traced = lackey::trace::<Vec<stage::Turn>>(lackey::arguments_of(NAME, NAME), NAME, halt)?;
    let mut operations = Vec::new();
    for stage::Turn { name, times, copy } in &traced.body {
        let (mut instructions, mut locked) = (0_u64, 0_u64);
        traced.scan(*copy, halt, |event| {
            if let Event::Instruction(address) = event {
                instructions += 1;
                locked += u64::from(traced.symbols.is_locked(address));
            }
        })?;
        let each = |count: u64| (10.0 * count as f64 / f64::from(*times)).round() / 10.0;
        let locked = cfg!(target_arch = "x86_64").then(|| each(locked));
        operations.push(Cost { name: name.clone(), instructions: each(instructions), locked });
    }
    // Whose counts they are must be known: those of another compiler are not compared.
    let unnamed =
        || io::Error::other("the program does not say what compiler built it: is it stripped of its .comment?");
    let compiler = traced.symbols.compiler().ok_or_else(unnamed).during(|| "counting instructions".into())?.to_owned();
    Ok(Table { version: VERSION, compiler, debug: cfg!(debug_assertions), operations })
}

fn print(now: &Table) -> String {
    let row = |cost: &Cost| vec![cost.name.clone(), number(Some(cost.instructions)), number(cost.locked)];
    let text = table::aligned(&["operation", "instructions", "locked"], now.operations.iter().map(row));
    format!("{text}\n{}{}\n", now.compiler, debug_note(now))
}

fn number(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.1}"))
}

fn debug_note(table: &Table) -> &'static str {
    if table.debug { ", not optimised: a build without --release" } else { "" }
}

/// The table of differences; an error if something costs more than it is known to.
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
    let text = table::aligned(&["operation", "stored", "now", "change", "locked: stored", "now"], rows);
    let how = format!("pando bench cost --update {}", path.display());
    if stored.debug != now.debug || stored.compiler != now.compiler {
        return Ok(format!(
            "{text}\nNot compared: stored by {}{}, this program was built by {}{}. To store it anew: {how}\n",
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
        let locked = known.locked.zip(cost.locked).map(|(before, now)| ("locked instructions", before, now));
        let measures = [Some(("instructions", known.instructions, cost.instructions)), locked];
        for (what, before, now) in measures.into_iter().flatten() {
            if rise_percent(before, now) > TOLERATED_PERCENT {
                wrong.push(format!("{} takes {now:.1} {what}, stored are {before:.1}", cost.name));
            }
        }
    }
    wrong.extend(stored.operations.iter().filter_map(|old| {
        let gone = now.operations.iter().all(|cost| cost.name != old.name);
        gone.then(|| format!("{} is in the table and was not counted", old.name))
    }));
    if wrong.is_empty() {
        return Ok(format!("{text}\nNothing costs over {TOLERATED_PERCENT} % more than stored. {}\n", now.compiler));
    }
    let why = format!("{}\n{text}\nIf that is worth it, own up to it: {how}", wrong.join("; "));
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
    fn a_rise_must_be_owned_up_to_and_a_fall_need_not() {
        let stored = table("rustc 1", &[("stat", 100.0), ("open", 200.0)]);
        assert!(verdict(&stored, &table("rustc 1", &[("stat", 104.9), ("open", 100.0)])).is_ok());
        let error = verdict(&stored, &table("rustc 1", &[("stat", 105.1), ("open", 200.0)])).expect_err("a rise");
        assert!(error.contains("stat takes 105.1") && error.contains("--update t.json"), "{error}");
    }

    #[test]
    fn so_must_a_rise_of_locked_instructions() {
        let with_locked = |locked| {
            let mut table = table("rustc 1", &[("create", 1000.0)]);
            table.operations[0].locked = locked;
            table
        };
        assert!(verdict(&with_locked(Some(30.0)), &with_locked(Some(31.0))).is_ok());
        let error = verdict(&with_locked(Some(30.0)), &with_locked(Some(32.0))).expect_err("a rise");
        assert!(error.contains("create takes 32.0 locked instructions, stored are 30.0"), "{error}");
        // Of a processor, or by a program, that does not count them.
        assert!(verdict(&with_locked(Some(30.0)), &with_locked(None)).is_ok());
    }

    #[test]
    fn what_is_in_one_table_only_is_named() {
        let (one, two) = (table("rustc 1", &[("stat", 1.0)]), table("rustc 1", &[("stat", 1.0), ("open", 2.0)]));
        assert!(verdict(&one, &two).expect_err("new").contains("open is not in the table"));
        assert!(verdict(&two, &one).expect_err("gone").contains("open is in the table"));
    }

    #[test]
    fn a_table_of_another_form_is_not_read() {
        let mut stored = table("rustc 1", &[("stat", 1.0)]);
        let text = |table: &Table| serde_json::to_string(table).expect("text");
        assert_eq!(parse(&text(&stored)).expect("of this form"), stored);
        stored.version += 1;
        let error = parse(&text(&stored)).expect_err("of another").to_string();
        assert!(error.contains("version 3, not 2") && error.contains("--update"), "{error}");
    }

    #[test]
    fn another_compiler_is_not_held_against_it() {
        let text =
            verdict(&table("rustc 1", &[("stat", 1.0)]), &table("rustc 2", &[("stat", 9.0)])).expect("a warning");
        assert!(text.contains("Not compared"), "{text}");
    }
}
