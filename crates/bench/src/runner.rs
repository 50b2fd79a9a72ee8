//! Turns: for each repeat every target once with each number of workers, so that a machine that drifts drifts for all of them.

use std::{collections::BTreeSet, io, path::Path, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    crew::{Job, Sample},
    failure::{Failure, While},
    halt::Halt,
    processes,
    target::{Nothing, Session, TargetSpec},
    workload::{Pace, Workload, WorkloadSpec},
};

/// How a run is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Numbers of workers, each once ([`each_once`]).
    pub(crate) threads: Vec<usize>,
    /// The length of one measurement.
    pub(crate) time: Duration,
    /// What runs before each measurement, uncounted.
    pub(crate) warm_up: Duration,
    /// Measurements of each target with each number of workers.
    pub(crate) repeat: u32,
    /// Where names and orders come from.
    pub(crate) seed: u64,
    /// Whether the time of each step is taken.
    pub(crate) latency: bool,
    /// Whether workers are processes, not threads.
    pub(crate) processes: bool,
}

impl Plan {
    /// Measurements of one workload on so many targets.
    pub(crate) fn measurements(&self, targets: usize) -> usize {
        targets * self.threads.len() * self.repeat as usize
    }
}

/// Numbers of workers in order, and each once: what was measured twice in a repeat would have no partner.
pub(crate) fn each_once(numbers: impl IntoIterator<Item = usize>) -> Vec<usize> {
    numbers.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// All repeats of one target with one number of workers.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) target: String,
    pub(crate) threads: usize,
    /// By repeat: samples at the same place were measured next to each other.
    pub(crate) samples: Vec<Sample>,
    /// Why there are none.
    pub(crate) missing: Option<String>,
}

/// What a run of one workload found.
#[derive(Debug, Clone)]
pub(crate) struct Results {
    pub(crate) workload: String,
    /// Whether workers were processes.
    pub(crate) processes: bool,
    /// CPU time of the loop itself, with a target that does nothing; none where such a target has nothing to answer.
    pub(crate) loop_ns_per_op: Option<f64>,
    /// Those that disturb the workers; none if there are none.
    pub(crate) helpers: Option<Helpers>,
    /// In the order of threads, then targets as they were named.
    pub(crate) series: Vec<Series>,
}

/// Threads that disturb the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Helpers {
    pub(crate) count: usize,
    /// As a plural.
    pub(crate) what: &'static str,
    /// How much of it they were to do in a second, together; none if it was as much as they can.
    pub(crate) asked_per_s: Option<u64>,
}

impl Helpers {
    fn of(workload: &dyn Workload) -> Option<Self> {
        let count = workload.helpers();
        (count > 0).then(|| Self { count, what: workload.helpers_do(), asked_per_s: workload.helpers_per_s() })
    }
}

/// How long the loop itself is measured: it meets nothing that would disturb it for long.
const LOOP_TIME: Duration = Duration::from_millis(200);

/// Measures a workload on all targets; advances the bar by [`Plan::measurements`]. Returns what was found, and whether
/// what was made could be removed.
///
/// # Errors
/// What a target answers, or that the run was interrupted; what was made is removed either way.
pub(crate) fn run(
    spec: &WorkloadSpec,
    targets: &[TargetSpec],
    plan: &Plan,
    bar: &ProgressBar,
    halt: &Halt,
) -> Result<(Results, Result<(), Failure>), Failure> {
    let dirs: Vec<&Path> = targets.iter().filter_map(TargetSpec::dir).collect();
    if let Some(twice) = (1..dirs.len()).find(|&n| dirs[..n].contains(&dirs[n])) {
        let why = format!("dir={} is named twice: give each a directory of its own", dirs[twice].display());
        return Err(Failure::Refused(why));
    }
    let workload = spec.workload();
    bar.set_message(format!("{}: the loop itself", spec.name()));
    let loop_ns_per_op = loop_alone(&*workload, plan, halt)?;
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    let mut sessions = Vec::with_capacity(targets.len());
    for target in targets {
        bar.set_message(format!("{}: preparing {}", spec.name(), target.name()));
        let prepared = Prepared::new(&*workload, target, most, plan.processes, halt);
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
                match prepared.measure(&*workload, spec.name(), (threads, seed), plan, halt)? {
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
    /// Why nothing can be measured on it.
    missing: Option<String>,
}

impl Prepared {
    fn new(
        workload: &dyn Workload,
        target: &TargetSpec,
        most: usize,
        processes: bool,
        halt: &Halt,
    ) -> Result<Self, Failure> {
        let name = target.name().to_owned();
        let session = target.target().open()?;
        let mut actor = session.actor().during(|| "opening the target".into())?;
        let missing = if processes && !workload.may_be_processes() {
            Some("its workers share memory: not with --processes".to_owned())
        } else if processes && session.tree().is_none() {
            Some("in process: not with --processes".to_owned())
        } else {
            lacking(workload.prepare(&mut *actor, most, halt))?.err()
        };
        drop(actor);
        Ok(Self { name, session, missing })
    }

    /// One measurement; or what the target lacks for it.
    fn measure(
        &self,
        workload: &dyn Workload,
        name: &str,
        (workers, seed): (usize, u64),
        plan: &Plan,
        halt: &Halt,
    ) -> Result<Result<Sample, String>, Failure> {
        let (warm_up, time, latency) = (plan.warm_up, plan.time, plan.latency);
        let job = Job { workload, session: &*self.session, workers, seed, warm_up, time, latency, alone: false };
        let measured = match self.session.tree() {
            Some(tree) if plan.processes => processes::measure(&job, name, tree, halt),
            _ => job.measure(halt),
        };
        lacking(measured.map_err(|failure| failure.of(format_args!("{name} on {}", self.name))))
    }
}

/// An operation that a target does not have is a finding, not a failure.
fn lacking<T>(result: Result<T, Failure>) -> Result<Result<T, String>, Failure> {
    match result {
        Err(Failure::Io(_, error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(Err(error.get_ref().map_or_else(|| "the target does not have this".into(), ToString::to_string)))
        }
        Err(failure) => Err(failure),
        Ok(value) => Ok(Ok(value)),
    }
}

/// CPU time per operation of the loop itself.
fn loop_alone(workload: &dyn Workload, plan: &Plan, halt: &Halt) -> Result<Option<f64>, Failure> {
    // A loop that begins with cold caches has nothing to repeat: its rounds are as long as the work.
    let (warm_up, time) = (plan.warm_up.min(LOOP_TIME), plan.time.min(LOOP_TIME));
    let latency = false;
    let job = Job { workload, session: &Nothing, workers: 1, seed: plan.seed, warm_up, time, latency, alone: false };
    if workload.pace() != Pace::Timed || workload.helpers() > 0 {
        return Ok(None);
    }
    Ok(lacking(job.measure(halt))?.ok().map(|sample| sample.cpu_ns_per_op()))
}

/// On standard error; draws nothing unless that is a terminal.
pub(crate) fn progress(measurements: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} (left: {eta})").expect("a valid template");
    ProgressBar::new(measurements as u64).with_style(style)
}

/// Every repeat has a seed of its own, and from it on one for each of its workers.
fn seed_of(seed: u64, threads: usize, repeat: u32) -> u64 {
    fastrand::Rng::with_seed(seed ^ ((threads as u64) << 32) ^ u64::from(repeat)).u64(..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        path::TreePath,
        target::{Actor, tests::scratch},
        work::Phase,
        workload::{Named, Part, WORKLOADS, parse_all},
    };

    fn short(threads: Vec<usize>) -> Plan {
        let (time, warm_up) = (Duration::from_millis(10), Duration::from_millis(1));
        Plan { threads, time, warm_up, repeat: 2, seed: 1, latency: false, processes: false }
    }

    fn specs(text: &str) -> Vec<WorkloadSpec> {
        parse_all(&[text.parse::<Named>().expect("a workload")])
    }

    fn targets(temp: &tempfile::TempDir) -> Vec<TargetSpec> {
        let mut names = vec!["mem".into(), "backed".into(), format!("dir={}", temp.path().display())];
        if cfg!(feature = "peers") {
            names.extend(["peer:vfs", "peer:rsfs", "map:papaya", "map:scc"].map(String::from));
        }
        names.iter().map(|name| name.parse().expect("a target")).collect()
    }

    /// Runs a workload everywhere; returns how many targets could do it.
    fn check(spec: &WorkloadSpec, plan: &Plan) -> usize {
        let temp = scratch();
        let targets = targets(&temp);
        let bar = ProgressBar::hidden();
        let (results, cleaned_up) = run(spec, &targets, plan, &bar, &Halt::default())
            .unwrap_or_else(|failure| panic!("{}: {failure}", spec.name()));
        cleaned_up.unwrap_or_else(|failure| panic!("{}: {failure}", spec.name()));
        assert_eq!(results.workload, spec.name());
        let order: Vec<_> = results.series.iter().map(|series| (series.threads, series.target.as_str())).collect();
        let by_target = |&n: &usize| targets.iter().map(move |target| (n, target.name())).collect::<Vec<_>>();
        let expected: Vec<_> = plan.threads.iter().flat_map(by_target).collect();
        assert_eq!(order, expected);
        assert_eq!(bar.position() as usize, plan.measurements(targets.len()));
        let mut able = 0;
        for series in &results.series {
            let name = format!("{} on {}", spec.name(), series.target);
            if series.missing.is_some() {
                assert!(series.samples.is_empty(), "{name}");
                continue;
            }
            able += 1;
            assert_eq!(series.samples.len(), plan.repeat as usize, "{name}");
            assert!(series.samples.iter().all(|sample| sample.ops > 0 && sample.ops_per_s() > 0.0), "{name}");
            assert!(series.samples.iter().all(|sample| sample.latency.is_some() == plan.latency), "{name}");
        }
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0, "{}", spec.name());
        able / plan.threads.len()
    }

    /// With settings that make them small, where they have such.
    fn small(name: &str) -> WorkloadSpec {
        let definition = WORKLOADS.iter().find(|definition| definition.name == name).expect("a workload");
        let small = |key: &str| match key {
            "files" => Some(20),
            "dirs" | "fanout" => Some(2),
            "rate" => Some(1000),
            _ => None,
        };
        let settings: Vec<String> =
            definition.keys.iter().filter_map(|key| Some(format!("{}={}", key.name, small(key.name)?))).collect();
        specs(&format!("{name}:{}", settings.join(","))).remove(0)
    }

    #[test]
    fn every_workload_runs_on_every_target_that_can() {
        for definition in WORKLOADS {
            let program = match definition.name {
                "find-size" => "find",
                "git-diff" => "git",
                _ => "ls",
            };
            if !pandofs_testkit::has(&[program]) {
                continue;
            }
            let able = check(&small(definition.name), &short(vec![1, 2]));
            let expected = match definition.name {
                "find-size" | "git-diff" => 1,
                // The cache of `mem` is the tree; and dropping the kernel's is root's, where it helps at all.
                "statwalk" => 1,
                // Extended attributes are the file system's affair.
                "xattrs" => 2,
                // All that pandofs can.
                _ => 3,
            };
            assert!(able >= expected, "{} on {able} targets", definition.name);
        }
    }

    #[test]
    fn what_a_target_lacks_is_said() {
        let target = "mem".parse().expect("a target");
        let results = run(&small("statwalk"), &[target], &short(vec![1]), &ProgressBar::hidden(), &Halt::default());
        let missing = results.expect("a finding, and no failure").0.series.remove(0).missing;
        assert_eq!(missing.as_deref(), Some("the target has no cache beside its tree"));
    }

    #[test]
    fn what_was_measured_outlives_a_failed_clean_up() {
        let temp = scratch();
        let new = temp.path().join("new");
        let targets = [format!("dir={}", new.display()).parse().expect("a target"), "mem".parse().expect("a target")];
        let foreign = new.join("foreign");
        let plan = Plan { time: Duration::from_millis(200), ..short(vec![1]) };
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Somebody else's file comes into the directory, which then cannot be removed.
                while !new.join("pando-bench-tree").exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::fs::write(&foreign, "").expect("the run has not ended yet");
            });
            run(&small("crunl"), &targets, &plan, &ProgressBar::hidden(), &Halt::default())
        });
        let (results, cleaned_up) = measured.expect("it is measured");
        assert!(results.series.iter().all(|series| series.samples.len() == 2));
        let failure = cleaned_up.expect_err("the directory is not empty");
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.to_string().contains("/new"), "{failure}");
        assert!(foreign.exists());
    }

    #[test]
    fn a_directory_is_one_targets() {
        let temp = scratch();
        let dir = |path: &str| format!("dir={}{path}", temp.path().display()).parse().expect("a target");
        for [one, other] in [["/a", "/a"], ["/a", "/a/"]] {
            let ended = run(
                &small("crunl"),
                &[dir(one), dir(other)],
                &short(vec![1]),
                &ProgressBar::hidden(),
                &Halt::default(),
            );
            assert!(matches!(&ended, Err(Failure::Refused(why)) if why.contains("named twice")), "{ended:?}");
        }
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn latency_is_taken_on_request() {
        let plan = Plan { latency: true, ..short(vec![2]) };
        check(&small("crunl"), &plan);
        check(&small("create-shared"), &plan);
    }

    #[test]
    fn renamers_without_a_limit_do_not_stop_path_rendering() {
        check(&specs("dpath:rate=0,renamers=2").remove(0), &short(vec![2]));
        check(&specs("dpath:renamers=0").remove(0), &short(vec![2]));
    }

    #[test]
    fn what_disturbs_is_counted_beside_the_rate_without_it() {
        let target: TargetSpec = "mem".parse().expect("a target");
        let plan = Plan { time: Duration::from_millis(200), ..short(vec![1]) };
        let found = |name: &str| {
            let spec = specs(name).remove(0);
            run(&spec, std::slice::from_ref(&target), &plan, &ProgressBar::hidden(), &Halt::default())
                .expect("measured")
                .0
        };
        for (name, helpers) in [
            ("dpath:rate=2000,renamers=2", Some(("directory renames", Some(4000)))),
            ("dpath-full", Some(("directory renames", None))),
            ("lseek-read", Some(("reads", None))),
            ("dpath:renamers=0", None),
        ] {
            let results = found(name);
            assert_eq!(results.helpers.map(|helpers| (helpers.what, helpers.asked_per_s)), helpers, "{name}");
            for sample in &results.series[0].samples {
                assert_eq!(sample.beside.is_some(), helpers.is_some(), "{name}");
                let counted = cfg!(feature = "lock-stats") && helpers.is_none();
                assert_eq!(sample.locks.is_some(), counted, "{name}: helpers take locks as well");
                let Some(beside) = sample.beside else { continue };
                assert!(beside.alone_ops_per_s > 0.0 && beside.helper_ops_per_s > 0.0, "{name}: {beside:?}");
            }
        }
    }

    #[test]
    fn listings_read_what_their_level_says() {
        for level in 0..4 {
            check(&specs(&format!("xattrs:files=30,level={level}")).remove(0), &short(vec![1]));
            // As far as the file system has extended attributes.
            check(&specs(&format!("xattrs:files=30,level={level},records=1")).remove(0), &short(vec![2]));
        }
    }

    #[test]
    fn repeats_differ() {
        let names: std::collections::HashSet<u64> =
            (1..=8).flat_map(|threads| (0..100).map(move |repeat| seed_of(42, threads, repeat))).collect();
        assert_eq!(names.len(), 800);
    }

    fn job<'a>(workload: &'a dyn Workload, session: &'a dyn Session) -> Job<'a> {
        let (warm_up, time) = (Duration::ZERO, Duration::from_secs(3600));
        Job { workload, session, workers: 2, seed: 1, warm_up, time, latency: false, alone: false }
    }

    #[test]
    fn an_interruption_ends_a_run_and_cleans_up() {
        // One of each pace: to the end of the time, and to the end of the rounds.
        for name in ["crunl", "create-shared"] {
            let temp = scratch();
            let target: TargetSpec = format!("dir={}", temp.path().display()).parse().expect("a target");
            let workload = small(name).workload();
            let session = target.target().open().expect("it opens");
            let halt = Halt::default();
            workload.prepare(&mut *session.actor().expect("an actor"), 2, &halt).expect("prepared");
            let asking = AskOnce { session: &*session, halt: &halt };
            let ended = job(&*workload, &asking).measure(&halt);
            assert!(matches!(ended, Err(Failure::Interrupted)), "{name}");
            drop(session);
            assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
            let plan = Plan { time: Duration::from_secs(3600), ..short(vec![1]) };
            let ended = run(&small(name), &[target], &plan, &ProgressBar::hidden(), &halt);
            assert!(matches!(ended, Err(Failure::Interrupted)), "{name}");
        }
    }

    /// Asks the run to end as soon as a thread has begun to work.
    struct AskOnce<'a> {
        session: &'a dyn Session,
        halt: &'a Halt,
    }

    impl Session for AskOnce<'_> {
        fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
            self.halt.ask();
            self.session.actor()
        }
    }

    /// A target whose creates fail, or panic.
    struct Broken {
        panics: bool,
    }

    impl Session for Broken {
        fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
            Ok(Box::new(Broken { panics: self.panics }))
        }
    }

    impl Actor for Broken {
        fn mkdir(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn create(&mut self, _: &TreePath) -> io::Result<()> {
            assert!(!self.panics, "on purpose");
            Err(io::Error::from_raw_os_error(28))
        }
        fn unlink(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn stat(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_ends_a_measurement_at_once() {
        // While counting, while a round runs, and while a round is prepared.
        for name in ["crunl", "create-shared", "unlink-shared"] {
            let workload = small(name).workload();
            let failure = job(&*workload, &Broken { panics: false }).measure(&Halt::default()).expect_err("it fails");
            assert!(matches!(&failure, Failure::Io(_, error) if error.raw_os_error() == Some(28)), "{failure}");
        }
    }

    #[test]
    fn a_panic_ends_a_measurement_at_once() {
        for name in ["crunl", "create-shared", "unlink-shared"] {
            let workload = small(name).workload();
            let measure = || job(&*workload, &Broken { panics: true }).measure(&Halt::default());
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(measure)).expect_err("it panics");
            assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("on purpose")), "{name}");
        }
    }

    #[test]
    fn what_is_left_before_its_time_is_neither_prepared_nor_taken_back() {
        for name in ["create-shared", "unlink-shared", "rename-shared"] {
            let (workload, phase, mut noting) = (small(name).workload(), Phase::new(), Noting::default());
            let mut task = workload.task(Part { seed: 1, worker: 0, workers: 1, shared: None, phase: &phase });
            task.begin(&mut noting).expect("noting does not fail");
            task.batch(&mut noting, None, u64::MAX).expect("noting does not fail");
            phase.advance(Phase::LEFT);
            let done = noting.0.len();
            task.end(&mut noting).expect("noting does not fail");
            task.begin(&mut noting).expect("noting does not fail");
            assert_eq!(noting.0.len(), done, "{name}: {:?}", &noting.0[done..]);
        }
    }

    #[test]
    fn every_thread_works_the_same_for_every_target() {
        // The names that a worker asks for come from its seed alone.
        let workload = small("rndrename").workload();
        let names = |seed| {
            let mut noting = Noting::default();
            let phase = Phase::new();
            let mut task = workload.task(Part { seed, worker: 0, workers: 1, shared: None, phase: &phase });
            task.batch(&mut noting, None, u64::MAX).expect("noting does not fail");
            noting.0
        };
        assert_eq!(names(5), names(5));
        assert_ne!(names(5), names(6));
    }

    /// Notes what is asked for.
    #[derive(Default)]
    struct Noting(Vec<String>);

    impl Actor for Noting {
        fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
            self.0.push(format!("mkdir {}", path.relative()));
            Ok(())
        }
        fn create(&mut self, path: &TreePath) -> io::Result<()> {
            self.0.push(format!("create {}", path.relative()));
            Ok(())
        }
        fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
            self.0.push(format!("unlink {}", path.relative()));
            Ok(())
        }
        fn stat(&mut self, path: &TreePath) -> io::Result<()> {
            self.0.push(format!("stat {}", path.relative()));
            Ok(())
        }
        fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
            self.0.push(format!("rename {} {}", from.relative(), to.relative()));
            Ok(())
        }
    }
}
