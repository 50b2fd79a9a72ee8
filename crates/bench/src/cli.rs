//! `pando bench`: the command line and the dispatch of its subcommands.

mod help;
mod options;
mod short;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand};
use pando_console::args::number;

use self::{
    help::{COMPARE_HELP, FOOTPRINT_HELP, MKTREE_HELP, OTHERS, REPORT_HELP, RUN_HELP, SEEDS_HELP},
    options::How,
    short::Short,
};
pub use crate::base::cancel::SIGNALS;
use crate::{
    base::{
        cancel::Cancel,
        child,
        failure::{During, Failure, print_error},
        output::Output,
    },
    command::{conflicts, cost, footprint, page, seeds},
    report::{self, Run},
    run::{
        processes,
        schedule::{self, Plan},
    },
    target::TargetSpec,
    workload::{Named, WorkloadSpec, parse_all, tree},
};

/// Measure metadata workloads on several targets, side by side in one run.
#[derive(Debug, Args)]
#[command(after_help = OTHERS)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure workloads on targets (--help lists both)
    #[command(long_about = "Measure workloads on targets (both are listed below)",
              after_long_help = RUN_HELP.as_str())]
    Run(RunArgs),
    #[command(flatten)]
    Short(Short),
    /// Compare two reports and name the changes beyond the noise
    ///
    /// Reports are the files that `pando bench run --json` writes. Measurements with the same
    /// workload, target and number of threads are compared. A rate has changed if all repeats of
    /// one run lie above all repeats of the other. With fewer than four repeats, no change is
    /// reported.
    #[command(after_long_help = COMPARE_HELP)]
    Compare(CompareArgs),
    /// Measure the five published results and draw them on one page
    ///
    /// The page shows each result as published (before and after), as measured here with the locks
    /// of old kernels and without them, and on the kernel's tmpfs. It has throughput over threads,
    /// context switches and bytes per file, with a table under each plot. The page is
    /// DIR/index.html. It needs no script. Its figures (JSON) and plots (SVG) are in the same
    /// directory.
    #[command(after_long_help = REPORT_HELP)]
    Report(page::ReportArgs),
    /// Measure bytes of memory per empty file, empty directory and cached inode
    ///
    /// In-process targets: the growth of this program's resident memory, measured in a fresh
    /// process each time. dir=PATH: the growth of the kernel's memory. This is meant for tmpfs, and
    /// exact only for root, who can read /proc/slabinfo.
    #[command(after_long_help = FOOTPRINT_HELP.as_str())]
    Footprint(FootprintArgs),
    /// Repeat the five published measurements with their own parameters
    ///
    /// Each measurement runs once, with the published number of workers and iterations. The table
    /// shows real, user and system time and context switches beside the published times.
    /// Measurements that cannot be repeated are listed with the reason. The command takes minutes.
    /// Give it a directory on tmpfs and, as root, one on ext4 for the measurements that need cold
    /// caches.
    #[command(after_long_help = SEEDS_HELP.as_str())]
    Seeds(SeedsArgs),
    /// Make a directory of many files with extended attributes
    ///
    /// The same seed gives the same files: names of 4 to 40 letters and a number, each file with up
    /// to MAXXATTRS extended attributes (user.*) of up to 64 bytes.
    #[command(after_long_help = MKTREE_HELP)]
    Mktree(MktreeArgs),
    /// Find the cache lines for which two commuting operations compete (nothing is timed)
    Conflicts(conflicts::ConflictsArgs),
    /// Count the instructions of each operation (the same number in every run)
    Cost(cost::CostArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The workloads, as NAME or NAME:KEY=VALUE,...
    #[arg(value_name = "WORKLOAD", required = true)]
    workloads: Vec<Named>,
    /// The targets; ratios refer to the first one
    #[arg(long = "target", short = 't', value_name = "TARGET", default_value = "mem")]
    targets: Vec<TargetSpec>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The report of the first run
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The report of the second run
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

#[derive(Debug, Args)]
struct FootprintArgs {
    /// The targets to measure (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem", long_help = "The targets (listed below)")]
    targets: Vec<TargetSpec>,
    /// Number of files, and then of directories, in one directory
    #[arg(long, value_name = "N", default_value = "1000000",
          value_parser = number(1000_u64..=100_000_000), allow_negative_numbers = true)]
    count: u64,
}

#[derive(Debug, Args)]
struct SeedsArgs {
    /// The targets to measure (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem", long_help = "The targets (listed below)")]
    targets: Vec<TargetSpec>,
    /// Divide the numbers of iterations and files by N
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = number(1_u64..=1_000_000), allow_negative_numbers = true)]
    scale: u64,
}

#[derive(Debug, Args)]
struct MktreeArgs {
    /// The directory to make; it must be empty or not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Seed of names and attributes
    #[arg(value_name = "SEED", value_parser = number(0..=u64::MAX), allow_negative_numbers = true)]
    seed: u64,
    /// Number of files
    #[arg(value_name = "FILES", value_parser = number(0..=100_000_000_u64),
          allow_negative_numbers = true)]
    files: u64,
    /// Largest number of extended attributes of a file
    #[arg(value_name = "MAXXATTRS", value_parser = number(0..=1000_u64),
          allow_negative_numbers = true)]
    max_xattrs: u64,
}

/// Runs the requested command. The exit code is 0 on success, 1 if an operation failed, and 2 if
/// the request cannot be met. It is 130 after one of `signals`, once every file that the run made
/// has been removed. `signals` are [`SIGNALS`] without those that the parent process has set to be
/// ignored.
#[must_use]
pub fn run(args: BenchArgs, signals: impl IntoIterator<Item = i32>) -> ExitCode {
    match dispatch(args, signals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(format_args!("pando bench: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(args: BenchArgs, signals: impl IntoIterator<Item = i32>) -> Result<(), Failure> {
    if let Some(served) = processes::serve() {
        return served;
    }
    let cancel = Cancel::default();
    cancel.on(signals)?;
    child::unless_interrupted(execute(args.command, &cancel), &cancel)
}

fn execute(command: Command, cancel: &Cancel) -> Result<(), Failure> {
    match command {
        Command::Run(RunArgs { workloads, targets, how }) => {
            run_workloads(&parse_all(&workloads), &targets, &how, cancel)
        }
        Command::Short(Short { workloads, targets, how }) => run_workloads(&workloads, &targets, &how, cancel),
        Command::Compare(CompareArgs { before, after }) => {
            print(&report::compare::render(&report::json::read(&before)?, &report::json::read(&after)?)?)
        }
        Command::Report(how) => print_outcome(page::run(&how, cancel)?),
        Command::Footprint(FootprintArgs { targets, count }) => print_outcome(footprint::run(&targets, count, cancel)?),
        Command::Conflicts(how) => print_outcome(conflicts::run(&how, cancel)?),
        Command::Cost(how) => print_outcome(cost::run(&how, cancel)?),
        Command::Seeds(SeedsArgs { targets, scale }) => print_outcome(seeds::run(&targets, scale, cancel)?),
        Command::Mktree(MktreeArgs { dir, seed, files, max_xattrs }) => {
            let xattrs = tree::mktree(&dir, seed, files, max_xattrs, cancel)?;
            print(&format!("{files} files with {xattrs} extended attributes in {}\n", dir.display()))
        }
    }
}

fn run_workloads(
    workloads: &[WorkloadSpec],
    targets: &[TargetSpec],
    how: &How,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let begun = Run::begin(how.seed.unwrap_or_else(|| fastrand::u64(..)));
    let plan = Plan {
        threads: schedule::without_duplicates(how.threads.iter().copied()),
        time: how.seconds,
        warm_up: how.warmup,
        repeat: how.repeat,
        seed: begun.seed,
        latency: how.latency,
        processes: how.processes,
    };
    let json = how.json.as_deref().map(Output::open).transpose()?;
    let bar = schedule::progress(workloads.len() * plan.measurements(targets.len()));
    let mut rows = Vec::new();
    // The report is written after each workload, and the table is printed whatever the outcome: a
    // long run that ends early keeps its results.
    let outcome = workloads.iter().try_for_each(|workload| {
        let (results, cleaned_up) = schedule::run(workload, targets, &plan, &bar, cancel)?;
        rows.extend(report::rows(&results));
        let kept = json.as_ref().filter(|json| json.is_regular());
        kept.map_or(Ok(()), |json| report::json::write(&rows, begun, json)).and(cleaned_up)
    });
    bar.finish_and_clear();
    if rows.is_empty() {
        return outcome;
    }
    let once = json.as_ref().filter(|json| !json.is_regular());
    let outcome = outcome.and(once.map_or(Ok(()), |json| report::json::write(&rows, begun, json)));
    let advice = report::load_advice(begun.load).map_or_else(String::new, |advice| advice + "\n");
    print(&format!("{}seed: {}\n{advice}", report::table::render(&rows), begun.seed))?;
    outcome?;
    if rows.iter().all(|row| row.figures.is_err()) {
        return Err(Failure::Refused("nothing could be measured".into()));
    }
    Ok(())
}

/// Prints the text, then returns the outcome.
fn print_outcome((text, outcome): (String, Result<(), Failure>)) -> Result<(), Failure> {
    print(&text)?;
    outcome
}

/// Prints to standard output. A reader that has closed the pipe is not an error.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
    .during(|| "writing to standard output".into())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use std::time::Duration;

    use super::*;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, String> {
        Whole::try_parse_from(line.split(' ')).map(|whole| whole.bench).map_err(|error| error.to_string())
    }

    #[test]
    fn command_line_is_consistent() {
        Whole::command().debug_assert();
    }

    #[test]
    fn help_describes_commands() {
        let mut whole = Whole::command();
        let help = whole.render_help().to_string();
        assert!(help.contains("create + close + unlink") && help.contains("stat by path"), "{help}");
        // The help of `run` lists the others.
        assert!(!help.contains("rndrename"), "{help}");
        let run = whole.find_subcommand_mut("run").expect("a subcommand").render_long_help().to_string();
        assert!(run.contains("rndrename") && run.contains("dir=PATH") && run.contains("Min et al."), "{run}");
    }

    #[test]
    fn arguments_are_checked() {
        let args = parse("bench crunl dir=/x --threads 1,4 --seconds 0.5 --repeat 3").expect("fine");
        let Command::Short(Short { workloads, targets, how }) = args.command else { panic!("crunl was asked for") };
        assert_eq!((workloads[0].name(), targets[0].name()), ("crunl", "dir=/x"));
        assert_eq!((how.threads, how.seconds, how.repeat), (vec![1, 4], Duration::from_millis(500), 3));
        let args = parse("bench lsl --set files=7 --set level=0").expect("fine");
        let Command::Short(Short { workloads, .. }) = args.command else { panic!("lsl was asked for") };
        assert_eq!(workloads[0].name(), "lsl:files=7,level=0");
        let args = parse("bench mdtest-hard dir=/x").expect("fine");
        let Command::Short(Short { workloads, .. }) = args.command else { panic!("mdtest-hard was asked for") };
        assert_eq!(workloads.len(), 4);
        let args = parse("bench run crunl lsl:files=7 -t mem --target dir=/x --latency").expect("fine");
        let Command::Run(RunArgs { workloads, targets, how }) = args.command else { panic!("run was asked for") };
        assert_eq!((parse_all(&workloads).len(), targets.len(), how.latency, how.processes), (2, 2, true, false));
        for (line, complaint) in [
            ("bench stat dir=/x --threads 0", "1 to 1024"),
            ("bench stat dir=/x --seconds nan", "0.01 to 3600"),
            ("bench stat dir=/x --seconds 1e9", "0.01 to 3600"),
            ("bench stat dir=/x --repeat 0", "not a number from 1 to 1000"),
            ("bench stat dir=/x --seconds -1", "not from 0.01 to 3600"),
            ("bench report --out x --threads -1", "not a number from 1 to 1024"),
            ("bench conflicts --keys 0", "not a number from 1 to "),
            ("bench mktree /x x 1 2", "not a number from 0 to "),
            ("bench mktree /x 1 -5 2", "not a number from 0 to 100000000"),
            ("bench stat --set files=0", "'--set <KEY=VALUE>': files must be a number from 1 to"),
            ("bench stat tmpfs", "dir=PATH"),
            ("bench footprint dir=/x --count 1", "1000"),
            ("bench run", "WORKLOAD"),
            ("bench run crunl:files=7", "only setting"),
            ("bench run nothing", "rndrename"),
            ("bench lsl --set level=4", "from 0 to 3"),
            ("bench nothing", "unrecognized"),
            ("bench mktree /x 1 2", "MAXXATTRS"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
