//! The order of measurements. In each repeat, every target is measured once with each number of
//! workers, so that a machine whose speed drifts drifts for all targets.

use std::{collections::BTreeSet, io, path::Path, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
    },
    run::{
        pool::{Job, Sample},
        processes,
    },
    target::{Nothing, Session, TargetSpec},
    workload::{Pace, Workload, WorkloadSpec},
};

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Numbers of workers, without duplicates ([`without_duplicates`]).
    pub(crate) threads: Vec<usize>,
    /// The length of one measurement.
    pub(crate) time: Duration,
    /// The time that each measurement runs before it counts.
    pub(crate) warm_up: Duration,
    /// Measurements of each target with each number of workers.
    pub(crate) repeat: u32,
    /// Seed of names and orders.
    pub(crate) seed: u64,
    /// Whether the time of each step is taken.
    pub(crate) latency: bool,
    /// Whether workers are processes, not threads.
    pub(crate) processes: bool,
}

impl Plan {
    /// Number of measurements of one workload on `targets` targets.
    pub(crate) fn measurements(&self, targets: usize) -> usize {
        targets * self.threads.len() * self.repeat as usize
    }
}

/// Numbers of workers in ascending order, without duplicates: a number that occurs twice in a
/// repeat would have no partner for its ratio.
pub(crate) fn without_duplicates(numbers: impl IntoIterator<Item = usize>) -> Vec<usize> {
    numbers.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// All repeats of one target with one number of workers.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) target: String,
    pub(crate) threads: usize,
    /// By repeat: samples at the same index were measured next to each other.
    pub(crate) samples: Vec<Sample>,
    /// The reason why there are no samples.
    pub(crate) missing: Option<String>,
}

/// The results of a run of one workload.
#[derive(Debug, Clone)]
pub(crate) struct Results {
    pub(crate) workload: String,
    /// Whether the workers were processes.
    pub(crate) processes: bool,
    /// CPU time of the loop itself, measured with a target that does nothing. None if the workload
    /// needs results that such a target cannot give.
    pub(crate) loop_ns_per_op: Option<f64>,
    /// The helpers that disturb the workers; none if the workload has none.
    pub(crate) helpers: Option<Helpers>,
    /// Ordered by number of threads, then by target as given.
    pub(crate) series: Vec<Series>,
}

/// Threads that disturb the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Helpers {
    pub(crate) count: usize,
    /// Their operation, as a plural noun.
    pub(crate) what: &'static str,
    /// Requested operations per second, of all helpers together. None if they run at full speed.
    pub(crate) asked_per_s: Option<u64>,
}

impl Helpers {
    fn of(workload: &dyn Workload) -> Option<Self> {
        let count = workload.helpers();
        (count > 0).then(|| Self { count, what: workload.helpers_do(), asked_per_s: workload.helpers_per_s() })
    }
}

/// Length of the measurement of the loop itself. It does not call the file system, so little
/// disturbs it.
const LOOP_TIME: Duration = Duration::from_millis(200);

/// Measures a workload on all targets, and advances the bar by [`Plan::measurements`]. Returns the
/// results, and whether the measured files could be removed.
///
/// # Errors
/// A target's error, or [`Failure::Interrupted`]. The measured files are removed in both cases.
pub(crate) fn run(
    spec: &WorkloadSpec,
    targets: &[TargetSpec],
    plan: &Plan,
    bar: &ProgressBar,
    cancel: &Cancel,
) -> Result<(Results, Result<(), Failure>), Failure> {
    let dirs: Vec<&Path> = targets.iter().filter_map(TargetSpec::dir).collect();
    if let Some(twice) = (1..dirs.len()).find(|&n| dirs[..n].contains(&dirs[n])) {
        let why = format!("dir={} is named twice: give each a directory of its own", dirs[twice].display());
        return Err(Failure::Refused(why));
    }
    let workload = spec.workload();
    bar.set_message(format!("{}: the loop itself", spec.name()));
    let loop_ns_per_op = loop_alone(&*workload, plan, cancel)?;
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    let mut sessions = Vec::with_capacity(targets.len());
    for target in targets {
        bar.set_message(format!("{}: preparing {}", spec.name(), target.name()));
        let prepared = Prepared::new(&*workload, target, most, plan.processes, cancel);
        sessions.push(prepared.map_err(|failure| failure.of(format_args!("{} on {}", spec.name(), target.name())))?);
    }
    let mut series = Vec::with_capacity(targets.len() * plan.threads.len());
    for &threads in &plan.threads {
        series.extend(sessions.iter().map(|prepared| Series {
            target: prepared.name.clone(),
            threads,
            samples: Vec::new(),
            missing: prepared.missing.clone(),
        }));
    }
    for repeat in 0..plan.repeat {
        for (prepared, series) in sessions.iter().cycle().zip(&mut series) {
            let threads = series.threads;
            let seed = seed_of(plan.seed, threads, repeat);
            bar.set_message(format!("{} {}, {threads} threads", spec.name(), series.target));
            if series.missing.is_none() {
                match prepared.measure(&*workload, spec.name(), (threads, seed), plan, cancel)? {
                    Ok(sample) => series.samples.push(sample),
                    Err(why) => series.missing = Some(why),
                }
            }
            bar.inc(1);
        }
    }
    bar.set_message("cleaning up");
    let cleaned_up = sessions.into_iter().map(|prepared| prepared.session.close()).fold(Ok(()), Result::and);
    let helpers = Helpers::of(&*workload);
    let processes = plan.processes;
    Ok((Results { workload: spec.name().into(), processes, loop_ns_per_op, helpers, series }, cleaned_up))
}

/// A target on which a workload has been prepared.
struct Prepared {
    name: String,
    session: Box<dyn Session>,
    /// The reason why the workload cannot be measured on it.
    missing: Option<String>,
}

impl Prepared {
    fn new(
        workload: &dyn Workload,
        target: &TargetSpec,
        most: usize,
        processes: bool,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let name = target.name().to_owned();
        let session =
            if workload.fits_into_cache() { target.target().open_unbounded()? } else { target.target().open()? };
        let missing = Self::prepare(workload, &*session, most, processes, cancel)?;
        Ok(Self { name, session, missing })
    }

    /// Prepares the workload. Returns the reason if it cannot be measured.
    fn prepare(
        workload: &dyn Workload,
        session: &dyn Session,
        most: usize,
        processes: bool,
        cancel: &Cancel,
    ) -> Result<Option<String>, Failure> {
        let mut actor = match or_unsupported(session.actor().during(|| "opening the target".into()))? {
            Ok(actor) => actor,
            Err(why) => return Ok(Some(why)),
        };
        Ok(if processes && !workload.may_be_processes() {
            Some("its workers share memory: not with --processes".to_owned())
        } else if processes && session.tree().is_none() {
            Some("in process: not with --processes".to_owned())
        } else {
            or_unsupported(workload.prepare(&mut *actor, most, cancel))?.err()
        })
    }

    /// One measurement, or the text of what the target does not support.
    fn measure(
        &self,
        workload: &dyn Workload,
        name: &str,
        (workers, seed): (usize, u64),
        plan: &Plan,
        cancel: &Cancel,
    ) -> Result<Result<Sample, String>, Failure> {
        let (warm_up, time, latency) = (plan.warm_up, plan.time, plan.latency);
        let job = Job { workload, session: &*self.session, workers, seed, warm_up, time, latency, alone: false };
        let measured = match self.session.tree() {
            Some(tree) if plan.processes => processes::measure(&job, name, tree, cancel),
            _ => job.measure(cancel),
        };
        or_unsupported(measured.map_err(|failure| failure.of(format_args!("{name} on {}", self.name))))
    }
}

/// A target that does not support an operation is a result, not a failure.
fn or_unsupported<T>(result: Result<T, Failure>) -> Result<Result<T, String>, Failure> {
    match result {
        Err(Failure::Io(_, error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(Err(error.get_ref().map_or_else(|| "the target does not have this".into(), ToString::to_string)))
        }
        Err(failure) => Err(failure),
        Ok(value) => Ok(Ok(value)),
    }
}

/// CPU time per operation of the loop itself.
fn loop_alone(workload: &dyn Workload, plan: &Plan, cancel: &Cancel) -> Result<Option<f64>, Failure> {
    // A loop that begins with cold caches cannot be repeated without a target: its rounds are as
    // long as the work.
    let (warm_up, time) = (plan.warm_up.min(LOOP_TIME), plan.time.min(LOOP_TIME));
    let latency = false;
    let job = Job { workload, session: &Nothing, workers: 1, seed: plan.seed, warm_up, time, latency, alone: false };
    if workload.pace() != Pace::Timed || workload.helpers() > 0 {
        return Ok(None);
    }
    Ok(or_unsupported(job.measure(cancel))?.ok().map(|sample| sample.cpu_ns_per_op()))
}

/// The progress bar on standard error. It draws nothing unless that is a terminal.
pub(crate) fn progress(measurements: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} (left: {eta})").expect("a valid template");
    ProgressBar::new(measurements as u64).with_style(style)
}

/// The seed of a repeat. The seeds of its workers are derived from it.
fn seed_of(seed: u64, threads: usize, repeat: u32) -> u64 {
    fastrand::Rng::with_seed(seed ^ ((threads as u64) << 32) ^ u64::from(repeat)).u64(..)
}

#[cfg(test)]
mod tests;
