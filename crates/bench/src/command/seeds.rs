//! `pando bench seeds`: repeats the published measurements with their own parameters.
//!
//! pandofs builds on five published results, each with a program and a measurement. This module
//! does the work of these programs with the published numbers of workers and iterations, and prints
//! the times beside the published ones. Those were measured on machines of their time. Comparable
//! are the ratios of before to after, and of the targets measured here.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use crate::{
    base::{cancel::Cancel, child, failure::Failure},
    report::{json::Machine, table::aligned},
    run::schedule::{self, Plan},
    target::TargetSpec,
    workload::{Named, parse_all},
};

/// One published measurement.
struct PublishedRun {
    source: &'static str,
    /// The workload. Instead of an in-process target, `backed` is used if `needs_misses` is set.
    workload: String,
    workers: usize,
    needs_misses: bool,
    /// The published result: seconds before and after.
    published: &'static str,
}

/// Measurements that cannot be repeated, with the reason and the published result.
const NOT_REPEATABLE: &[(&str, &str, &str)] = &[
    (
        "AIM7 (dcache, 2013)",
        "a load generator of many parts of a system, for machines with many cores; not in Debian",
        "time in spin locks 24.5 % -> 4.2 %",
    ),
    (
        "Oracle SLOB (dcache, 2013)",
        "needs the Oracle database, which is not free to be run here",
        "a profile, in which path rendering held a lock; see the workload dpath",
    ),
];

/// Bytes that the kernel, or an in-process store, needs for each file of a tree: inode, dentry and
/// related objects.
const BYTES_PER_FILE: u64 = 1536;

/// Workers, directories of each worker, and files in each directory, of the 2024 tree walk.
const WALK: (u64, u64, u64) = (20, 1000, 1000);

/// Directories of a worker. All trees together fill at most half of the available memory, and need
/// at most nine tenths of these inodes.
fn walk_dirs(available_bytes: u64, inodes: u64, scale: u64) -> u64 {
    let (workers, dirs, files) = WALK;
    let fit = |room: u64| room / workers / (files + 1);
    (dirs / scale).min(fit(available_bytes / 2 / BYTES_PER_FILE)).min(fit(inodes / 10 * 9)).max(1)
}

/// Free inodes of the file system of a directory, which need not exist yet. `u64::MAX` if the file
/// system has no limit.
fn free_inodes(dir: &Path) -> u64 {
    let mut nearest = dir.ancestors().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let room = nearest.find_map(|dir| rustix::fs::statvfs(dir).ok());
    // btrfs reports a total of 0 inodes: it has no limit.
    room.filter(|room| room.f_files > 0).map_or(u64::MAX, |room| room.f_favail)
}

fn published_runs(scale: u64, walk_dirs: u64) -> Vec<PublishedRun> {
    let by = |count: u64| (count / scale).max(1);
    let tmpfs = "parallel directory operations (tmpfs, 2005)";
    let bulk = "xgetdents, dirreadahead (gfs2, 2012-14)";
    let published_run = |source, workload: String, workers, published| PublishedRun {
        source,
        workload,
        workers,
        needs_misses: false,
        published,
    };
    let crunl = || format!("crunl:steps={}", by(1_000_000));
    let rename = || format!("rndrename:steps={}", by(1_000_000));
    let list = |settings: &str| format!("{settings},files={}", by(100_000));
    let one_list = |settings: &str| format!("{settings},files={0},steps={0}", by(100_000));
    vec![
        published_run(tmpfs, crunl(), 1, "11.95 -> 8.05"),
        published_run(tmpfs, crunl(), 2, "36.2 -> 15.1 (215,000 -> 45 switches/s)"),
        published_run(tmpfs, rename(), 2, "82.4 -> 39.4"),
        published_run("lseek (2009)", format!("lseek:steps={}", by(10_000_000)), 100, "315 -> 13"),
        PublishedRun {
            needs_misses: true,
            ..published_run(
                "RCU inode look-up (2024)",
                format!("statwalk:dirs={walk_dirs},files={}", WALK.2),
                usize::try_from(WALK.0).expect("twenty"),
                "46.1 -> 21.6",
            )
        },
        published_run(bulk, one_list("xattrs:level=3,max=2"), 1, "0.639 (before), hot"),
        published_run(bulk, one_list("xattrs:level=3,max=2,records=1"), 1, "0.099 (after), hot"),
        published_run(bulk, list("xattrs:level=3,max=2,cold=1"), 1, "2.202 (before), cold"),
        published_run(bulk, list("xattrs:level=3,max=2,cold=1,records=1"), 1, "1.536 (after), cold"),
        published_run(bulk, list("lsl:level=1,cold=1"), 1, "519 and 303 (before), cold"),
        published_run(bulk, list("lsl:level=1,cold=1,records=1"), 1, "27.7 and 52 (after), cold"),
        published_run("dcache (2013)", format!("find-size:files={}", by(100_000)), 1, "no difference"),
        published_run("dcache (2013)", format!("git-diff:files={}", by(100_000)), 1, "no difference"),
    ]
}

fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    // If it cannot be read, assume a gibibyte, which every machine has.
    kib.map_or(1 << 30, |kib| kib << 10)
}

/// Runs all measurements on all targets, one after the other. Returns the table, and the first
/// failure, if there was one. A failure ends its own measurement on its own target. If a target
/// refuses or the run is interrupted, the table has the measurements so far.
///
/// # Errors
/// Nothing was measured before.
pub(crate) fn run(
    targets: &[TargetSpec],
    scale: u64,
    cancel: &Cancel,
) -> Result<(String, Result<(), Failure>), Failure> {
    let inodes = targets.iter().filter_map(TargetSpec::dir).map(free_inodes).min().unwrap_or(u64::MAX);
    let walk_dirs = walk_dirs(available_bytes(), inodes, scale);
    let published_runs = published_runs(scale, walk_dirs);
    let bar = schedule::progress(published_runs.len() * targets.len());
    let (mut rows, mut outcome) = (Vec::new(), Ok(()));
    'all: for published_run in &published_runs {
        for target in targets.iter().map(|target| target_of(published_run, target)) {
            let measured = measure(published_run, &target, &bar, cancel);
            rows.push(match child::unless_interrupted(measured, cancel) {
                Err(failure @ Failure::Io(..)) => {
                    let row = without_figures(published_run, &target, &format!("failed: {failure}"));
                    outcome = outcome.and(Err(failure));
                    row
                }
                Err(end) if rows.is_empty() => return Err(end),
                Err(end) => {
                    outcome = Err(end);
                    break 'all;
                }
                Ok((row, cleaned_up)) => {
                    outcome = outcome.and(cleaned_up);
                    row
                }
            });
        }
    }
    bar.finish_and_clear();
    let heading = ["work", "target", "workers", "real s", "user s", "system s", "switches/s", "published, s", ""];
    let mut text = String::new();
    let mut rows = rows.into_iter().peekable();
    for of_one_source in published_runs.chunk_by(|a, b| a.source == b.source) {
        if rows.peek().is_none() {
            break;
        }
        let _ = writeln!(text, "\n{}", of_one_source[0].source);
        text.push_str(&aligned(&heading, rows.by_ref().take(of_one_source.len() * targets.len())));
    }
    let machine = Machine::here();
    let (workers, dirs, files) = WALK;
    let _ = writeln!(
        text,
        "\nMeasured here: {} cores, {}, {}. The published results are from other machines, each of its time.\n\
         Workers are processes on dir= targets, as published, and threads in process.\n\
         Scale: iterations and files 1/{scale}; statwalk {workers} x {walk_dirs} x {files} of {workers} x {dirs} x {files} \
         (all trees must fit into half of the memory, and into the directory's file system).\n\
         For xgetdents only times were published. It runs with as many files as the listings.\n\
         Only root can empty caches, and tmpfs has no cache to empty: n/a in these cases.\n\nNot repeated:",
        machine.cores, machine.cpu, machine.kernel
    );
    for (what, why, published) in NOT_REPEATABLE {
        let _ = writeln!(text, "  {what}: {why}. Published: {published}.");
    }
    Ok((text, outcome))
}

/// The target of a measurement. Only a backed tree can miss its inode cache, so `mem` is replaced
/// by `backed` where misses are needed.
fn target_of(published_run: &PublishedRun, target: &TargetSpec) -> TargetSpec {
    let misses = match target.name() {
        "mem" => "backed",
        "mem:before" => "backed:before",
        _ => return target.clone(),
    };
    if published_run.needs_misses { misses.parse().expect("a target") } else { target.clone() }
}

/// The first columns of a row, before its figures.
fn row_of(published_run: &PublishedRun, target: &TargetSpec) -> Vec<String> {
    vec![published_run.workload.clone(), target.name().into(), published_run.workers.to_string()]
}

/// A row without figures, with the reason.
fn without_figures(published_run: &PublishedRun, target: &TargetSpec, why: &str) -> Vec<String> {
    let figures = ["n/a", "", "", "", published_run.published, why].map(str::to_owned);
    row_of(published_run, target).into_iter().chain(figures).collect()
}

/// Makes one measurement on one target: one run, from the start of the first worker to the end of
/// the last. Also returns whether the measured files could be removed.
fn measure(
    published_run: &PublishedRun,
    target: &TargetSpec,
    bar: &indicatif::ProgressBar,
    cancel: &Cancel,
) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let named: Named = published_run.workload.parse().expect("a workload with its settings");
    let spec = &parse_all(&[named])[0];
    let plan = Plan {
        threads: vec![published_run.workers],
        time: Duration::ZERO,
        warm_up: Duration::ZERO,
        repeat: 1,
        seed: 2005,
        latency: false,
        processes: target.dir().is_some() && spec.workload().may_be_processes(),
    };
    let (results, cleaned_up) = schedule::run(spec, std::slice::from_ref(target), &plan, bar, cancel)?;
    let series = &results.series[0];
    let Some(sample) = series.samples.first() else {
        return Ok((without_figures(published_run, target, series.missing.as_deref().unwrap_or_default()), cleaned_up));
    };
    let seconds = [sample.seconds, sample.used.user().as_secs_f64(), sample.used.system().as_secs_f64()];
    let mut row = row_of(published_run, target);
    row.extend(seconds.map(|seconds| format!("{seconds:.3}")));
    row.extend([format!("{:.0}", sample.ctx_switches_per_s()), published_run.published.into(), String::new()]);
    Ok((row, cleaned_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_measurement_parses_at_any_scale() {
        for scale in [1, 7, 1_000_000_000] {
            for published_run in published_runs(scale, 1) {
                let named = published_run.workload.parse::<Named>();
                assert_eq!(named.map(|named| parse_all(&[named]).len()), Ok(1), "{}", published_run.workload);
            }
        }
    }

    #[test]
    fn tree_walk_fits_into_memory() {
        const MANY: u64 = u64::MAX;
        assert_eq!(walk_dirs(MANY, MANY, 1), 1000);
        assert_eq!((walk_dirs(0, MANY, 1), walk_dirs(MANY, 0, 1)), (1, 1));
        assert_eq!(walk_dirs(MANY, MANY, 100), 10);
        // A tmpfs in a machine of 24 GiB.
        let dirs = walk_dirs(MANY, 3_085_510, 1);
        assert!(dirs * 20 * 1001 <= 3_085_510 && dirs >= 100, "{dirs}");
        // 8 GiB: half of it holds some 2.8 million files, 139 directories for each of 20 workers.
        let dirs = walk_dirs(8 << 30, MANY, 1);
        assert!(dirs * 20 * 1000 * BYTES_PER_FILE <= 4 << 30 && dirs >= 100, "{dirs}");
    }
}
