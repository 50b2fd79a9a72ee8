//! `pando bench`: what was asked for.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::LazyLock,
    time::Duration,
};

use clap::{Args, Subcommand};

use crate::{
    conflicts,
    failure::{Failure, While},
    footprint,
    halt::Halt,
    report,
    runner::{self, Plan},
    target::{TARGETS, TargetSpec},
    workload::{Crunl, Shape, Stat, Workload},
};

/// Measure metadata workloads on several targets, side by side in one run.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Each thread creates, closes and unlinks a name of its own, all in one directory
    ///
    /// One operation is the three calls. With a lock per directory the threads take turns; with a lock per name they
    /// do not meet.
    #[command(after_long_help = SIDE_BY_SIDE_HELP.as_str())]
    Crunl(SideBySide),
    /// stat by path, four components deep, random among 1000 directories of 100 files, hot
    #[command(after_long_help = SIDE_BY_SIDE_HELP.as_str())]
    Stat(SideBySide),
    /// Bytes of memory per empty file, and per empty directory
    ///
    /// For targets in process: the growth of this program's resident memory, measured in a fresh process each time.
    /// For dir=PATH: the growth of the kernel's memory, exact only for root (/proc/slabinfo), and meant for tmpfs.
    #[command(after_long_help = FOOTPRINT_HELP.as_str())]
    Footprint(FootprintArgs),
    /// Which cache lines do two operations that commute fight for? (needs no second core to see)
    Conflicts(conflicts::ConflictsArgs),
}

static SIDE_BY_SIDE_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Each target is measured in turn, again and again, so that a machine that drifts drifts for all; \
ratios are formed repeat by repeat. Rates depend on what else the machine does; CPU ns/op (user and \
system time of this process, not that of a FUSE server) depends on it far less.

Examples:
  pando bench crunl mem dir=/dev/shm/bench             in process beside the kernel's tmpfs
  pando bench stat mem mem                             how much two equal things differ here
  pando bench crunl dir=/mnt/grove --threads 1,2,4,8   a mounted tree

{EXIT_CODES}"
    )
});

static FOOTPRINT_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Example:
  pando bench footprint mem dir=/dev/shm/bench

{EXIT_CODES}"
    )
});

const EXIT_CODES: &str = "\
Exit codes: 0 measured, 1 an operation failed, 2 the request cannot be met, 130 interrupted. \
What was made is removed, also after Ctrl-C; what a killed run left, by the next run in the same \
directory.";

#[derive(Debug, Args)]
struct SideBySide {
    /// What to measure; the first is what ratios refer to (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem")]
    targets: Vec<TargetSpec>,
    /// Numbers of threads, measured one after the other
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2", value_parser = threads)]
    threads: Vec<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// What runs before each measurement, uncounted
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    warmup: Duration,
    /// Measurements of each target with each number of threads; the targets take turns
    #[arg(long, value_name = "R", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Where names and orders come from, to do the same again; without it, another each time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Also write the results to this file, as JSON
    ///
    /// An array with one object for each target and number of threads: workload, target, threads, ops_per_s {min,
    /// median, max}, cpu_ns_per_op, ctx_switches_per_s, ratio_to_first {min, median, max}. Fields may be added.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct FootprintArgs {
    /// What to measure (--help lists them)
    #[arg(value_name = "TARGET", default_value = "mem")]
    targets: Vec<TargetSpec>,
    /// How many files, and then how many directories, in one directory
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    count: u64,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let allowed = 0.01..=3600.0;
    if allowed.contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err("not from 0.01 to 3600".into()) }
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| "not a number from 1 to 1024".into())
}

/// Does what was asked for. The exit code is 0; 1 if an operation failed; 2 if the request cannot be met; 130 after
/// Ctrl-C, when everything that was made has been removed.
#[must_use]
pub fn run(args: BenchArgs) -> ExitCode {
    match dispatch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pando bench: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(args: BenchArgs) -> Result<(), Failure> {
    let halt = Halt::default();
    halt.on_signals()?;
    match args.command {
        Command::Crunl(how) => side_by_side(&Crunl, &how, &halt),
        Command::Stat(how) => side_by_side(&Stat::new(Shape::default()), &how, &halt),
        Command::Conflicts(how) => print(&conflicts::run(&how)?),
        Command::Footprint(FootprintArgs { targets, count }) => print(&footprint::run(&targets, count, &halt)?),
    }
}

fn side_by_side(workload: &dyn Workload, how: &SideBySide, halt: &Halt) -> Result<(), Failure> {
    let seed = how.seed.unwrap_or_else(|| fastrand::u64(..));
    let plan = Plan { threads: how.threads.clone(), time: how.seconds, warm_up: how.warmup, repeat: how.repeat, seed };
    let results = runner::run(workload, &how.targets, &plan, halt)?;
    let rows = report::rows(&results);
    if let Some(path) = &how.json {
        report::json::write(&rows, path)?;
    }
    print(&format!("{}seed: {seed}\n", report::table::render(&rows, results.loop_ns_per_op)))
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
    fn arguments_are_checked() {
        let args = parse("bench crunl dir=/x --threads 1,4 --seconds 0.5 --repeat 3").expect("fine");
        let Command::Crunl(how) = args.command else { panic!("crunl was asked for") };
        assert_eq!((how.threads, how.seconds, how.repeat), (vec![1, 4], Duration::from_millis(500), 3));
        for (line, complaint) in [
            ("bench stat dir=/x --threads 0", "1 to 1024"),
            ("bench stat dir=/x --seconds nan", "0.01 to 3600"),
            ("bench stat dir=/x --seconds 1e9", "0.01 to 3600"),
            ("bench stat dir=/x --repeat 0", "1..=1000"),
            ("bench stat tmpfs", "dir=PATH"),
            ("bench footprint dir=/x --count 1", "1000"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
