//! The measurements of the report, and the published results.

use std::time::Duration;

use super::{
    args::ReportArgs,
    listing::{QUICK_SIZES, SIZES, Way},
};
use crate::{
    report::json::Record,
    run::schedule::{Plan, without_duplicates},
    target::TargetSpec,
    workload::{Named, WorkloadSpec, parse_all},
};

/// One of the published results.
pub(super) struct PublishedResult {
    /// The technique.
    pub(super) what: &'static str,
    pub(super) source: &'static str,
    /// The workload that measures it here, modelled on the published program.
    pub(super) workload: &'static str,
    /// Its target.
    pub(super) target: &'static str,
    pub(super) published: &'static str,
    /// The published ratio, after divided by before.
    pub(super) published_ratio: f64,
    /// The quantity of the published figure, if it is not time.
    pub(super) note: &'static str,
}

/// The workload of the listings. It is measured with one call for each entry, and with one for
/// many.
pub(super) const LISTING: &str = "xattrs";

pub(super) const PUBLISHED: &[PublishedResult] = &[
    PublishedResult {
        what: "One lock per name instead of one per directory",
        source: "parallel directory operations, tmpfs, 2005",
        workload: "crunl",
        target: "mem",
        published: "36.2 s → 15.1 s, 2 processes",
        published_ratio: 36.2 / 15.1,
        note: "",
    },
    PublishedResult {
        what: "The same, with renames",
        source: "parallel directory operations, tmpfs, 2005",
        workload: "rndrename",
        target: "mem",
        published: "82.4 s → 39.4 s, 2 processes",
        published_ratio: 82.4 / 39.4,
        note: "",
    },
    PublishedResult {
        what: "lseek without the inode lock",
        source: "ext2, ext3, ext4, 2009",
        workload: "lseek",
        target: "mem",
        published: "315 s → 13 s, 100 processes",
        published_ratio: 315.0 / 13.0,
        note: "",
    },
    PublishedResult {
        what: "Inode look-up without the inode hash lock",
        source: "RCU inode look-up, 2024",
        workload: "statwalk",
        target: "backed",
        published: "46.1 s → 21.6 s, 20 threads",
        published_ratio: 46.1 / 21.6,
        note: "",
    },
    PublishedResult {
        what: "The same, over a directory of the host",
        source: "RCU inode look-up, 2024",
        workload: "statwalk",
        target: "host",
        published: "46.1 s → 21.6 s, 20 threads",
        published_ratio: 46.1 / 21.6,
        note: "",
    },
    PublishedResult {
        what: "Names, attributes and xattrs in one call",
        source: "xgetdents, gfs2, 2012 to 2014, hot",
        workload: LISTING,
        target: "mem",
        published: "0.639 s → 0.099 s",
        published_ratio: 0.639 / 0.099,
        note: "here: one call per entry against one call for many. These run one after the other, so the ratio is one of \
               medians, not computed within repeats",
    },
    PublishedResult {
        what: "The same, by system calls on a mount",
        source: "xgetdents, gfs2, 2012 to 2014, hot",
        workload: LISTING,
        target: "mount",
        published: "0.639 s → 0.099 s",
        published_ratio: 0.639 / 0.099,
        note: "here: as above, with an ioctl for the call",
    },
    PublishedResult {
        what: "Path rendering that does not wait for renames",
        source: "dcache, 2013",
        workload: "dpath",
        target: "mem",
        published: "24.5 % → 4.2 % of the time in spin locks",
        published_ratio: 24.5 / 4.2,
        note: "published: share of time in locks; here: rate beside a renamer",
    },
];

/// Workloads beyond those of [`PUBLISHED`].
pub(super) const MORE: &[(&str, &str)] = &[
    ("dpath-full", "Path rendering beside renames at full speed"),
    ("lseek-shared", "All threads seek in one open file"),
    ("stat-dir", "stat of random files in one directory"),
    ("open-same", "open and close of one file"),
];

/// The length of one measurement, and the number of repeats.
const QUICK: (Duration, u32) = (Duration::from_millis(400), 3);
const FULL: (Duration, u32) = (Duration::from_secs(2), 7);

/// The duration of the report.
pub(super) struct Speed {
    quick: bool,
    threads: Vec<usize>,
    /// Length of one measurement.
    time: Duration,
    repeat: u32,
    names: u64,
}

impl Speed {
    pub(super) fn new(args: &ReportArgs) -> Self {
        let (quick, threads) = (args.quick, &args.threads);
        let (time, repeat) = if quick { QUICK } else { FULL };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let powers = || std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < cores).chain([cores]);
        let threads =
            if threads.is_empty() { powers().collect() } else { without_duplicates(threads.iter().map(|&n| n.into())) };
        let names = args.count.unwrap_or(if quick { 200_000 } else { 1_000_000 });
        Self { quick, threads, names, time: args.seconds.unwrap_or(time), repeat: args.repeat.unwrap_or(repeat) }
    }

    /// Number of files and directories whose bytes are counted.
    pub(super) fn names(&self) -> u64 {
        self.names
    }
}

/// One run.
pub(super) struct Job {
    pub(super) workload: WorkloadSpec,
    pub(super) targets: Vec<TargetSpec>,
    pub(super) plan: Plan,
}

/// A workload's name without its settings.
pub(super) fn name(workload: &str) -> &str {
    workload.split(':').next().unwrap_or(workload)
}

/// Records of one workload.
pub(super) fn records_of<'a>(records: &'a [Record], workload: &str) -> Vec<&'a Record> {
    records.iter().filter(|record| name(&record.workload) == workload).collect()
}

/// The longest time of one measurement of a listing, and the number of repeats. A listing that
/// takes longer is measured once in each repeat.
const LISTING_TIME: Duration = Duration::from_millis(500);
const LISTING_REPEAT: u32 = 3;

/// The directories of the kernel: one to compare a tree in memory with, and two on a disk, of which
/// the second is for a tree over it.
pub(super) struct Directories {
    pub(super) kernel: TargetSpec,
    pub(super) disk: TargetSpec,
    pub(super) host: TargetSpec,
    pub(super) host_before: TargetSpec,
}

/// The runs of the report, in order.
pub(super) fn jobs(speed: &Speed, directories: &Directories, seed: u64) -> Vec<Job> {
    let Directories { kernel, disk, host, host_before } = directories;
    let target = |name: &str| name.parse::<TargetSpec>().expect("a target");
    let usual = || vec![target("mem"), target("mem:before"), kernel.clone()];
    let (time, repeat) = (speed.time, speed.repeat);
    let job = |workload: &str, targets: Vec<TargetSpec>, threads: &[usize]| {
        let named: Named = workload.parse().expect("a workload");
        let [workload] = <[WorkloadSpec; 1]>::try_from(parse_all(&[named])).expect("one workload");
        let warm_up = Duration::from_millis(if speed.quick { 50 } else { 200 });
        let threads = threads.to_vec();
        Job { workload, targets, plan: Plan { threads, time, warm_up, repeat, seed, latency: false, processes: false } }
    };
    let walk = if speed.quick { "statwalk:dirs=10,files=500" } else { "statwalk:dirs=50,files=1000" };
    let mut jobs = Vec::new();
    for result in PUBLISHED {
        match (result.workload, result.target) {
            ("statwalk", "host") => {
                jobs.push(job(walk, vec![host.clone(), host_before.clone(), disk.clone()], &speed.threads));
            }
            ("statwalk", _) => jobs.push(job(walk, vec![target("backed"), target("backed:before")], &speed.threads)),
            (LISTING, "mem") => {
                for &files in if speed.quick { QUICK_SIZES } else { SIZES } {
                    let hot = [target("mem"), target("mount"), kernel.clone(), host.clone(), disk.clone()];
                    let cold = [host.clone(), disk.clone()];
                    let hot = Way::HOT.iter().map(|way| job(&way.workload(files, false), hot.to_vec(), &[1]));
                    let cold = Way::COLD.iter().map(|way| job(&way.workload(files, true), cold.to_vec(), &[1]));
                    jobs.extend(hot.chain(cold).map(|job| {
                        let (time, repeat) = (job.plan.time.min(LISTING_TIME), repeat.min(LISTING_REPEAT));
                        Job { plan: Plan { time, repeat, ..job.plan }, ..job }
                    }));
                }
            }
            (LISTING, _) => {}
            (name, _) => jobs.push(job(name, usual(), &speed.threads)),
        }
    }
    jobs.extend(MORE.iter().map(|(name, _)| job(name, usual(), &speed.threads)));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(quick: bool, threads: Vec<u16>) -> Speed {
        let [out, dir, disk] = ["/nowhere"; 3].map(Into::into);
        Speed::new(&ReportArgs {
            out,
            quick,
            dir,
            disk,
            threads,
            seconds: None,
            repeat: None,
            count: None,
            redraw: false,
        })
    }

    #[test]
    fn every_result_has_a_measurement() {
        let [kernel, disk, host, host_before] =
            ["dir=/x", "dir=/y", "host=/z", "host:before=/z"].map(|name| name.parse().expect("a target"));
        let directories = Directories { kernel, disk, host, host_before };
        for quick in [true, false] {
            let jobs = jobs(&speed(quick, vec![1, 3]), &directories, 1);
            for workload in PUBLISHED.iter().map(|result| result.workload).chain(MORE.iter().map(|more| more.0)) {
                assert!(jobs.iter().any(|job| name(job.workload.name()) == workload), "{workload}");
            }
        }
    }

    #[test]
    fn default_threads_are_powers_of_two_and_all_cores() {
        let threads = speed(true, Vec::new()).threads;
        assert_eq!(threads[0], 1);
        assert!(threads.is_sorted_by(|a, b| a < b));
        assert_eq!(threads.last().copied(), std::thread::available_parallelism().map(usize::from).ok());
        assert_eq!(speed(true, vec![2, 1, 2]).threads, [1, 2], "without duplicates");
    }
}
