//! `pando bench report`: the five results reproduced, on one page.
//!
//! ```text
//!   plan    what is measured, and what was published about it
//!   html    the page: headings, words, tables
//!   plot    the pictures, as SVG
//!   kept    what path rendering keeps beside renames
//!   matrix  which cache lines operations would fight for
//! ```
//!
//! The page is made of what was written to `report.json`, `footprint.json`, `conflicts.json` and `command.txt` beside it, and
//! can be drawn again from there. It needs no script and nothing from elsewhere.

mod html;
mod kept;
mod matrix;
mod plan;
mod plot;

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use pando_console::args::{number, seconds};

use self::{matrix::Seen, plan::Speed};
use crate::{
    failure::{Failure, While, say},
    footprint::{self, Bytes},
    halt::Halt,
    output::Output,
    report::{self, Run, json::Record},
    runner,
    target::TargetSpec,
};

/// Options of `pando bench report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Where the page, its plots and its figures go; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// About two minutes instead of twenty
    #[arg(long)]
    quick: bool,
    /// A directory of the kernel's to compare with: empty, or not there yet
    ///
    /// On tmpfs by default: a file system in memory is compared with one.
    #[arg(long, value_name = "PATH", default_value = "/dev/shm/pando-bench-report")]
    dir: PathBuf,
    /// Numbers of threads [default: powers of two up to the number of cores]
    #[arg(long, value_name = "N,..", value_delimiter = ',',
          value_parser = number(1_u16..=1024), allow_negative_numbers = true)]
    threads: Vec<u16>,
    /// Length of one measurement [default: 2; with --quick 0.4]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Measurements of each target with each number of threads [default: 7; with --quick 3]
    #[arg(long, value_name = "R", value_parser = number(1_u32..=1000), allow_negative_numbers = true)]
    repeat: Option<u32>,
    /// Files, and then directories, whose bytes are counted [default: 1000000; with --quick 200000]
    #[arg(long, value_name = "N", value_parser = number(1000_u64..=100_000_000), allow_negative_numbers = true)]
    count: Option<u64>,
    /// Measure nothing: draw the page again from the figures in --out
    #[arg(long, conflicts_with_all = ["quick", "threads", "seconds", "repeat", "count"])]
    redraw: bool,
}

/// The figures, beside the page.
const FIGURES: &str = "report.json";
const FOOTPRINT: &str = "footprint.json";
/// The command that measured them.
const COMMAND: &str = "command.txt";
/// The subcommand's name.
const NAME: &str = "report";

/// Measures, and draws the page; returns what to tell, and whether tracing failed, which the page is drawn without.
///
/// # Errors
/// What a target or the file system answers, or that the run was interrupted.
pub(crate) fn run(args: &ReportArgs, halt: &Halt) -> Result<(String, Result<(), Failure>), Failure> {
    let speed = Speed::new(args);
    let kernel = dir_target(&args.dir)?;
    if footprint::is_child() {
        return footprint::run(&footprint_targets(&kernel), speed.names(), halt);
    }
    let traced = if args.redraw { Ok(()) } else { measure(args, &speed, &kernel, halt)? };
    let records = report::json::read(&args.out.join(FIGURES))?;
    let bytes = read_bytes(&args.out.join(FOOTPRINT))?;
    let seen = matrix::read(&args.out)?;
    let command = match fs::read_to_string(args.out.join(COMMAND)) {
        // A report of before it was kept.
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("pando bench {NAME}"),
        command => command.during(|| format!("reading {}", args.out.join(COMMAND).display()))?,
    };
    let page = html::page(&records, &bytes, seen.as_ref(), command.trim_end());
    for (name, svg) in &page.plots {
        let path = args.out.join(format!("{name}.svg"));
        fs::write(&path, svg).during(|| format!("writing {}", path.display()))?;
    }
    let path = args.out.join("index.html");
    fs::write(&path, &page.html).during(|| format!("writing {}", path.display()))?;
    let missing = match &seen {
        Some(Seen::NotMeasured { not_measured }) => format!("without the matrix of conflicts: {not_measured}\n"),
        _ => String::new(),
    };
    let told = format!("{missing}{}: {} plots, {} measurements\n", path.display(), page.plots.len(), records.len());
    Ok((told, traced))
}

fn dir_target(dir: &Path) -> Result<TargetSpec, Failure> {
    let text = dir.to_str().ok_or_else(|| Failure::Refused(format!("{} is not UTF-8: name another", dir.display())))?;
    format!("dir={text}").parse().map_err(Failure::Refused)
}

fn footprint_targets(kernel: &TargetSpec) -> Vec<TargetSpec> {
    vec!["mem".parse().expect("a target"), "backed".parse().expect("a target"), kernel.clone()]
}

/// Measures everything; returns whether tracing failed.
fn measure(args: &ReportArgs, speed: &Speed, kernel: &TargetSpec, halt: &Halt) -> Result<Result<(), Failure>, Failure> {
    fs::create_dir_all(&args.out).during(|| format!("making {}", args.out.display()))?;
    let begun = Run::begin(fastrand::u64(..));
    let jobs = plan::jobs(speed, kernel, begun.seed);
    let [figures, footprint, asked] = [FIGURES, FOOTPRINT, COMMAND].map(|name| Output::open(&args.out.join(name)));
    let (figures, footprint, asked) = (figures?, footprint?, asked?);
    let bar = runner::progress(jobs.iter().map(|job| job.plan.measurements(job.targets.len())).sum());
    let mut rows = Vec::new();
    for job in &jobs {
        let (results, cleaned_up) = runner::run(&job.workload, &job.targets, &job.plan, &bar, halt)?;
        if rows.is_empty() {
            // What an earlier run found stays until this one has found something, and then goes altogether.
            asked.write(command(env::args_os()) + "\n")?;
            footprint.write("[]\n")?;
            matrix::forget(&args.out)?;
        }
        rows.extend(report::rows(&results));
        report::json::write(&rows, begun, &figures)?;
        cleaned_up?;
    }
    bar.set_message("bytes per file");
    let (bytes, outcome) = footprint::measured(&footprint_targets(kernel), speed.names(), halt);
    bar.finish_and_clear();
    footprint.write(serde_json::to_string_pretty(&bytes).during(|| "writing figures".into())? + "\n")?;
    outcome?;
    if io::stderr().is_terminal() {
        say("cache lines in common: tracing under valgrind");
    }
    matrix::measure(&args.out, args.quick, halt)
}

/// What was asked for, to be asked for again in a shell.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let ours = arguments.skip_while(|argument| argument != NAME);
    let words: Vec<String> = ours.map(|argument| quoted(&argument.to_string_lossy())).collect();
    format!("pando bench {}", words.join(" "))
}

/// As one word of a shell's.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn read_bytes(path: &Path) -> Result<Vec<Bytes>, Failure> {
    let text = fs::read_to_string(path).during(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Refused(format!("{} is not what a report writes: {error}", path.display())))
}

/// Records of one workload.
fn of<'a>(records: &'a [Record], workload: &str) -> Vec<&'a Record> {
    records.iter().filter(|record| plan::name(&record.workload) == workload).collect()
}

/// The length of one measurement, and how often it is repeated.
const QUICK: (Duration, u32) = (Duration::from_millis(400), 3);
const FULL: (Duration, u32) = (Duration::from_secs(2), 7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_given_to_a_shell() {
        let arguments = ["target/release/pando", "bench", "report", "--out=a b", "--threads", "1,2", "--dir", "it's"];
        assert_eq!(
            command(arguments.into_iter().map(OsString::from)),
            r"pando bench report '--out=a b' --threads 1,2 --dir 'it'\''s'"
        );
    }
}
