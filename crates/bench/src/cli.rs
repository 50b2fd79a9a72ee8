//! `pando bench`: what was asked for.

mod short;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::LazyLock,
    time::Duration,
};

use clap::{Args, Subcommand};
use pando_console::args::{number, seconds};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::short::Short;
use crate::{
    child, conflicts, cost,
    failure::{Failure, While, say},
    footprint,
    halt::Halt,
    output::Output,
    page, processes,
    report::{self, Run},
    runner::{self, Plan},
    seeds,
    target::{TARGETS, TargetSpec},
    workload::{Named, WorkloadSpec, describe, parse_all, tree},
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
    #[command(long_about = "Measure workloads on targets (both are listed below)", after_long_help = RUN_HELP.as_str())]
    Run(RunArgs),
    #[command(flatten)]
    Short(Short),
    /// What changed between two reports, beyond the noise
    ///
    /// Reports are what `pando bench run --json` writes. Measurements with the same workload, target and number of
    /// threads are compared: one has changed if all repeats of one run lie above all repeats of the other. Of fewer than
    /// four repeats nothing is said.
    #[command(after_long_help = COMPARE_HELP)]
    Compare(CompareArgs),
    /// Measure the five results, and draw them on one page
    ///
    /// Published before and after, the same here with the locks of old kernels and without, and the kernel's tmpfs
    /// beside it: throughput over threads, context switches, bytes per file, a table under each plot. The page is
    /// DIR/index.html, needs no script, and lies beside its figures (JSON) and plots (SVG).
    #[command(after_long_help = REPORT_HELP)]
    Report(page::ReportArgs),
    /// Bytes of memory per empty file, per empty directory, per cached inode
    ///
    /// For targets in process: the growth of this program's resident memory, measured in a fresh process each time.
    /// For dir=PATH: the growth of the kernel's memory, exact only for root (/proc/slabinfo), and meant for tmpfs.
    #[command(after_long_help = FOOTPRINT_HELP.as_str())]
    Footprint(FootprintArgs),
    /// The five published measurements again, with their own parameters
    ///
    /// Each is done once, with the number of workers and iterations that were published; real, user and system time and
    /// context switches stand beside the published times. What cannot be run again is listed with the reason. Takes
    /// minutes; give a directory on tmpfs, and as root one on ext4 for what needs cold caches.
    #[command(after_long_help = SEEDS_HELP.as_str())]
    Seeds(SeedsArgs),
    /// Make a directory of many files with extended attributes
    ///
    /// The same seed gives the same files: names of 4 to 40 letters and a number, each file with up to MAXXATTRS
    /// extended attributes (user.*) of up to 64 bytes.
    #[command(after_long_help = MKTREE_HELP)]
    Mktree(MktreeArgs),
    /// Which cache lines do two operations that commute fight for? (needs no second core to see)
    Conflicts(conflicts::ConflictsArgs),
    /// How many instructions does an operation take? (the same number in each run)
    Cost(cost::CostArgs),
}

const OTHERS: &str = "\
Every other workload is a command, too, as in `pando bench dpath mem`: `pando bench run --help` lists them.";

static RUN_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}
{TARGETS}

Each target is measured in turn with each number of threads, again and again, so that a machine that \
drifts drifts for all; ratios are formed repeat by repeat. Rates depend on what else the machine does; CPU ns/op (user and \
system time of the workers, not that of a FUSE server) depends on it far less. What a target cannot \
do is n/a.

Examples:
  pando bench run crunl rndrename --target mem --target dir=/dev/shm/bench
      in process beside the kernel's tmpfs
  pando bench run stat --target mem --target mem
      how much two equal things differ here
  pando bench run statwalk:dirs=100 --target dir=/mnt/ext4/new --threads 1,2,4
      with settings
  pando bench crunl mem dir=/dev/shm/bench
      the first, of one workload, in short

{EXIT_CODES}",
        describe()
    )
});

static SHORT_HELP: LazyLock<String> = LazyLock::new(|| {
    format!("Short for `pando bench run` of this one workload; see there for all of them.\n\n{TARGETS}\n\n{EXIT_CODES}")
});

static FOOTPRINT_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Example:
  pando bench footprint mem dir=/dev/shm/bench

{EXIT_CODES}"
    )
});

static SEEDS_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Example:
  pando bench seeds mem dir=/dev/shm/bench dir=/mnt/ext4/bench

{EXIT_CODES}"
    )
});

const REPORT_HELP: &str = "\
The matrix of conflicts needs valgrind (Debian: apt install valgrind) and two cores; the page says so \
where it is missing. With --quick it is made under one hash key, otherwise under three.

Example:
  pando bench report --quick --out report    two minutes; see report/index.html

Exit codes: 0 measured and drawn, 1 an operation failed, 2 the request cannot be met, 130 interrupted.";

const COMPARE_HELP: &str = "\
Exit codes: 0 compared, 1 a report cannot be read, 2 one is no report, or nothing was measured in both.";

const MKTREE_HELP: &str = "\
Exit codes: 0 made, 1 an operation failed, 2 the request cannot be met, 130 interrupted. \
What was made is removed again if it fails.";

const EXIT_CODES: &str = "\
Exit codes: 0 measured, 1 an operation failed, 2 the request cannot be met, 130 interrupted. \
What was made is removed, also after Ctrl-C; what a killed run left, by the next run in the same \
directory.";

#[derive(Debug, Args)]
struct RunArgs {
    /// What is done, as NAME or NAME:KEY=VALUE,...
    #[arg(value_name = "WORKLOAD", required = true)]
    workloads: Vec<Named>,
    /// To whom; the first is what ratios refer to
    #[arg(long = "target", short = 't', value_name = "TARGET", default_value = "mem")]
    targets: Vec<TargetSpec>,
    #[command(flatten)]
    how: How,
}

/// How to measure, whatever it is.
#[derive(Debug, Args)]
struct How {
    /// Numbers of threads: in each repeat every target is measured with each
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2",
          value_parser = number(1_usize..=1024), allow_negative_numbers = true)]
    threads: Vec<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// What runs before each measurement, uncounted
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds, allow_negative_numbers = true)]
    warmup: Duration,
    /// Measurements of each target with each number of threads; the targets take turns
    #[arg(long, value_name = "R", default_value = "5",
          value_parser = number(1_u32..=1000), allow_negative_numbers = true)]
    repeat: u32,
    /// Where names and orders come from, to do the same again; without it, another each time
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX), allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Take the time of each step: percentiles 50 and 99
    ///
    /// The clock is read once in each step, which slows fast targets down.
    #[arg(long)]
    latency: bool,
    /// Processes instead of threads, as the measurements of 2005 and 2009 had them (dir= only)
    #[arg(long)]
    processes: bool,
    /// Also write the results to this file, as JSON
    ///
    /// An array with one object for each workload, target and number of threads; docs/bench.md describes it. Its
    /// version is 1; fields may be added.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The report of the run before
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The report of the run after
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

#[derive(Debug, Args)]
struct FootprintArgs {
    /// What to measure (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem", long_help = "What to measure (listed below)")]
    targets: Vec<TargetSpec>,
    /// How many files, and then how many directories, in one directory
    #[arg(long, value_name = "N", default_value = "1000000",
          value_parser = number(1000_u64..=100_000_000), allow_negative_numbers = true)]
    count: u64,
}

#[derive(Debug, Args)]
struct SeedsArgs {
    /// What to measure (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem", long_help = "What to measure (listed below)")]
    targets: Vec<TargetSpec>,
    /// Do only one in so many iterations, with one in so many files
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = number(1_u64..=1_000_000), allow_negative_numbers = true)]
    scale: u64,
}

#[derive(Debug, Args)]
struct MktreeArgs {
    /// The directory: empty, or not there yet
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where names and attributes come from
    #[arg(value_name = "SEED", value_parser = number(0..=u64::MAX), allow_negative_numbers = true)]
    seed: u64,
    /// How many files
    #[arg(value_name = "FILES", value_parser = number(0..=100_000_000_u64), allow_negative_numbers = true)]
    files: u64,
    /// The most extended attributes that a file has
    #[arg(value_name = "MAXXATTRS", value_parser = number(0..=1000_u64), allow_negative_numbers = true)]
    max_xattrs: u64,
}

/// The signals that end a run early.
pub const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Does what was asked for. The exit code is 0; 1 if an operation failed; 2 if the request cannot be met; 130 after
/// one of `signals`, when everything that was made has been removed: [`SIGNALS`], but for those that whoever started the
/// process has set to be ignored.
#[must_use]
pub fn run(args: BenchArgs, signals: impl IntoIterator<Item = i32>) -> ExitCode {
    match dispatch(args, signals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("pando bench: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(args: BenchArgs, signals: impl IntoIterator<Item = i32>) -> Result<(), Failure> {
    if let Some(served) = processes::serve() {
        return served;
    }
    let halt = Halt::default();
    halt.on(signals)?;
    let done = carry_out(args.command, &halt);
    if let Err(Failure::Io(_, error)) = &done {
        // Ctrl-C goes to all processes of a terminal, and may have ended one of ours before we heard of it: then we shall,
        // once the thread that listens has its turn.
        const LATE: Duration = Duration::from_millis(20);
        const PATIENCE: Duration = Duration::from_secs(5);
        let by_signal = child::ended_by(error).is_some_and(|signal| SIGNALS.contains(&signal));
        halt.wait(if by_signal { PATIENCE } else { LATE })?;
    }
    done
}

fn carry_out(command: Command, halt: &Halt) -> Result<(), Failure> {
    match command {
        Command::Run(RunArgs { workloads, targets, how }) => side_by_side(&parse_all(&workloads), &targets, &how, halt),
        Command::Short(Short { workloads, targets, how }) => side_by_side(&workloads, &targets, &how, halt),
        Command::Compare(CompareArgs { before, after }) => {
            print(&report::compare::render(&report::json::read(&before)?, &report::json::read(&after)?)?)
        }
        Command::Report(how) => tell(page::run(&how, halt)?),
        Command::Footprint(FootprintArgs { targets, count }) => tell(footprint::run(&targets, count, halt)?),
        Command::Conflicts(how) => tell(conflicts::run(&how, halt)?),
        Command::Cost(how) => tell(cost::run(&how, halt)?),
        Command::Seeds(SeedsArgs { targets, scale }) => tell(seeds::run(&targets, scale, halt)?),
        Command::Mktree(MktreeArgs { dir, seed, files, max_xattrs }) => {
            let xattrs = tree::mktree(&dir, seed, files, max_xattrs, halt)?;
            print(&format!("{files} files with {xattrs} extended attributes in {}\n", dir.display()))
        }
    }
}

fn side_by_side(workloads: &[WorkloadSpec], targets: &[TargetSpec], how: &How, halt: &Halt) -> Result<(), Failure> {
    let begun = Run::begin(how.seed.unwrap_or_else(|| fastrand::u64(..)));
    let plan = Plan {
        threads: runner::each_once(how.threads.iter().copied()),
        time: how.seconds,
        warm_up: how.warmup,
        repeat: how.repeat,
        seed: begun.seed,
        latency: how.latency,
        processes: how.processes,
    };
    let json = how.json.as_deref().map(Output::open).transpose()?;
    let bar = runner::progress(workloads.len() * plan.measurements(targets.len()));
    let mut rows = Vec::new();
    // Written after each workload, and printed whatever comes after: a long run that ends early has not been for nothing.
    let outcome = workloads.iter().try_for_each(|workload| {
        let (results, cleaned_up) = runner::run(workload, targets, &plan, &bar, halt)?;
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

/// Prints what there is to tell, whatever the outcome.
fn tell((text, outcome): (String, Result<(), Failure>)) -> Result<(), Failure> {
    print(&text)?;
    outcome
}

/// To standard output; a reader that went away is no error.
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
    fn the_command_line_is_consistent() {
        Whole::command().debug_assert();
    }

    #[test]
    fn the_help_says_what_a_command_does() {
        let mut whole = Whole::command();
        let help = whole.render_help().to_string();
        assert!(help.contains("create + close + unlink") && help.contains("stat by path"), "{help}");
        // The others are in the help of `run`.
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
            ("bench stat --set files=0", "'--set <KEY=VALUE>': files is a number from 1 to"),
            ("bench stat tmpfs", "dir=PATH"),
            ("bench footprint dir=/x --count 1", "1000"),
            ("bench run", "WORKLOAD"),
            ("bench run crunl:files=7", "no settings"),
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
