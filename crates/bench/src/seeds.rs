//! `pando bench seeds`: the published measurements again, with their own parameters.
//!
//! Each of the five results that pandofs grew from came with a program and a number. Here the programs' work is done
//! with the numbers of workers and iterations that were published, and the times stand beside the published ones.
//! Those were taken on machines of their day: what can be compared is the ratio of before to after, and of targets
//! here.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use crate::{
    failure::Failure,
    halt::Halt,
    report::{json::Machine, table::aligned},
    runner::{self, Plan},
    target::TargetSpec,
    workload::{Named, parse_all},
};

/// One published measurement.
struct SetUp {
    source: &'static str,
    /// The workload; of in-process targets, `backed` if only that can do it.
    workload: String,
    workers: usize,
    needs_misses: bool,
    /// What was published: seconds before and after.
    published: &'static str,
}

/// What cannot be run again, with the reason and what was published.
const NOT_AGAIN: &[(&str, &str, &str)] = &[
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

/// Bytes that the kernel, or a store in process, keeps for each file of a tree: inode, dentry and what belongs to them.
const BYTES_PER_FILE: u64 = 1536;

/// Workers, directories of each, and files in each directory, of the walk of 2024.
const WALK: (u64, u64, u64) = (20, 1000, 1000);

/// Directories of a worker, so that all trees fill at most half of the memory that is available, and need at most nine
/// tenths of these inodes.
fn walk_dirs(available_bytes: u64, inodes: u64, scale: u64) -> u64 {
    let (workers, dirs, files) = WALK;
    let fit = |room: u64| room / workers / (files + 1);
    (dirs / scale).min(fit(available_bytes / 2 / BYTES_PER_FILE)).min(fit(inodes / 10 * 9)).max(1)
}

/// How many inodes the file system of a directory has left, that may not be there yet; without a limit, very many.
fn free_inodes(dir: &Path) -> u64 {
    let mut nearest = dir.ancestors().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let room = nearest.find_map(|dir| rustix::fs::statvfs(dir).ok());
    // Without a number of inodes in all, there is none to come to the end of (btrfs).
    room.filter(|room| room.f_files > 0).map_or(u64::MAX, |room| room.f_favail)
}

fn set_ups(scale: u64, walk_dirs: u64) -> Vec<SetUp> {
    let by = |count: u64| (count / scale).max(1);
    let tmpfs = "parallel directory operations (tmpfs, 2005)";
    let bulk = "xgetdents, dirreadahead (gfs2, 2012-14)";
    let set_up = |source, workload: String, workers, published| SetUp {
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
        set_up(tmpfs, crunl(), 1, "11.95 -> 8.05"),
        set_up(tmpfs, crunl(), 2, "36.2 -> 15.1 (215,000 -> 45 switches/s)"),
        set_up(tmpfs, rename(), 2, "82.4 -> 39.4"),
        set_up("lseek (2009)", format!("lseek:steps={}", by(10_000_000)), 100, "315 -> 13"),
        SetUp {
            needs_misses: true,
            ..set_up(
                "RCU inode look-up (2024)",
                format!("statwalk:dirs={walk_dirs},files={}", WALK.2),
                usize::try_from(WALK.0).expect("twenty"),
                "46.1 -> 21.6",
            )
        },
        set_up(bulk, one_list("xattrs:level=3,max=2"), 1, "0.639 (before), hot"),
        set_up(bulk, one_list("xattrs:level=3,max=2,records=1"), 1, "0.099 (after), hot"),
        set_up(bulk, list("xattrs:level=3,max=2,cold=1"), 1, "2.202 (before), cold"),
        set_up(bulk, list("xattrs:level=3,max=2,cold=1,records=1"), 1, "1.536 (after), cold"),
        set_up(bulk, list("lsl:level=1,cold=1"), 1, "519 and 303 (before), cold"),
        set_up(bulk, list("lsl:level=1,cold=1,records=1"), 1, "27.7 and 52 (after), cold"),
        set_up("dcache (2013)", format!("find-size:files={}", by(100_000)), 1, "no difference"),
        set_up("dcache (2013)", format!("git-diff:files={}", by(100_000)), 1, "no difference"),
    ]
}

fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    // Unknown: a gibibyte is little, and there.
    kib.map_or(1 << 30, |kib| kib << 10)
}

/// Runs all set-ups on all targets, one after the other; returns the table, and what failed first, if something did: that
/// ends its own set-up, on its own target. If a target refuses, or the run was interrupted, the table has what was done before.
///
/// # Errors
/// That nothing was done before.
pub(crate) fn run(targets: &[TargetSpec], scale: u64, halt: &Halt) -> Result<(String, Result<(), Failure>), Failure> {
    let inodes = targets.iter().filter_map(TargetSpec::dir).map(free_inodes).min().unwrap_or(u64::MAX);
    let walk_dirs = walk_dirs(available_bytes(), inodes, scale);
    let set_ups = set_ups(scale, walk_dirs);
    let bar = runner::progress(set_ups.len() * targets.len());
    let (mut rows, mut outcome) = (Vec::new(), Ok(()));
    'all: for set_up in &set_ups {
        for target in targets.iter().map(|target| stand_in(set_up, target)) {
            rows.push(match measure(set_up, &target, &bar, halt) {
                Err(failure @ Failure::Io(..)) => {
                    let row = without_figures(set_up, &target, &format!("failed: {failure}"));
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
    for of_one_source in set_ups.chunk_by(|a, b| a.source == b.source) {
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
        "\nHere: {} cores, {}, {}. The published machines were others, each of its day.\n\
         Workers are processes in a directory of the kernel's, as published, and threads in process.\n\
         Scale: iterations and files 1/{scale}; statwalk {workers} x {walk_dirs} x {files} of {workers} x {dirs} x {files} \
         (trees fit into half of the memory, and into a directory's file system).\n\
         The xgetdents measurement is known by its times alone; it is done with as many files as the listings.\n\
         Caches are emptied by root only, and tmpfs keeps what it has: n/a there.\n\nNot run again:",
        machine.cores, machine.cpu, machine.kernel
    );
    for (what, why, published) in NOT_AGAIN {
        let _ = writeln!(text, "  {what}: {why}. Published: {published}.");
    }
    Ok((text, outcome))
}

/// What a set-up is done to: only trees that are elsewhere miss their inodes.
fn stand_in(set_up: &SetUp, target: &TargetSpec) -> TargetSpec {
    let misses = match target.name() {
        "mem" => "backed",
        "mem:before" => "backed:before",
        _ => return target.clone(),
    };
    if set_up.needs_misses { misses.parse().expect("a target") } else { target.clone() }
}

/// A row, up to its figures.
fn row_of(set_up: &SetUp, target: &TargetSpec) -> Vec<String> {
    vec![set_up.workload.clone(), target.name().into(), set_up.workers.to_string()]
}

/// A row without figures, and why it has none.
fn without_figures(set_up: &SetUp, target: &TargetSpec, why: &str) -> Vec<String> {
    let figures = ["n/a", "", "", "", set_up.published, why].map(str::to_owned);
    row_of(set_up, target).into_iter().chain(figures).collect()
}

/// One set-up on one target: once, from the start of the first worker to the end of the last. Also returns whether what was
/// made could be removed.
fn measure(
    set_up: &SetUp,
    target: &TargetSpec,
    bar: &indicatif::ProgressBar,
    halt: &Halt,
) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let named: Named = set_up.workload.parse().expect("a workload with its settings");
    let spec = &parse_all(&[named])[0];
    let plan = Plan {
        threads: vec![set_up.workers],
        time: Duration::ZERO,
        warm_up: Duration::ZERO,
        repeat: 1,
        seed: 2005,
        latency: false,
        processes: target.dir().is_some() && spec.workload().may_be_processes(),
    };
    let (results, cleaned_up) = runner::run(spec, std::slice::from_ref(target), &plan, bar, halt)?;
    let series = &results.series[0];
    let Some(sample) = series.samples.first() else {
        return Ok((without_figures(set_up, target, series.missing.as_deref().unwrap_or_default()), cleaned_up));
    };
    let seconds = [sample.seconds, sample.used.user().as_secs_f64(), sample.used.system().as_secs_f64()];
    let mut row = row_of(set_up, target);
    row.extend(seconds.map(|seconds| format!("{seconds:.3}")));
    row.extend([format!("{:.0}", sample.ctx_switches_per_s()), set_up.published.into(), String::new()]);
    Ok((row, cleaned_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_set_ups_are_workloads_at_any_scale() {
        for scale in [1, 7, 1_000_000_000] {
            for set_up in set_ups(scale, 1) {
                let named = set_up.workload.parse::<Named>();
                assert_eq!(named.map(|named| parse_all(&[named]).len()), Ok(1), "{}", set_up.workload);
            }
        }
    }

    #[test]
    fn a_walk_fits_into_memory() {
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
