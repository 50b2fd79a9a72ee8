use super::*;
use crate::{
    base::{path::TreePath, phase::Phase},
    target::{Actor, tests::scratch},
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

/// Runs a workload on every target. Returns how many targets support it.
fn check(spec: &WorkloadSpec, plan: &Plan) -> usize {
    let temp = scratch();
    let targets = targets(&temp);
    let bar = ProgressBar::hidden();
    let (results, cleaned_up) = run(spec, &targets, plan, &bar, &Cancel::default())
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

/// The workload with small settings, where it has such settings.
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
            // `mem` has no cache beside its tree, and only root may drop the kernel's caches, where
            // that has an effect at all.
            "statwalk" => 1,
            // Only file systems have extended attributes.
            "xattrs" => 2,
            // All in-process targets of pandofs, and the directory.
            _ => 3,
        };
        assert!(able >= expected, "{} on {able} targets", definition.name);
    }
}

#[test]
fn unsupported_operation_is_reported_as_missing() {
    let target = "mem".parse().expect("a target");
    let results = run(&small("statwalk"), &[target], &short(vec![1]), &ProgressBar::hidden(), &Cancel::default());
    let missing = results.expect("a finding, and no failure").0.series.remove(0).missing;
    assert_eq!(missing.as_deref(), Some("the target has no cache beside its tree"));
}

#[test]
fn results_survive_failed_clean_up() {
    let temp = scratch();
    let new = temp.path().join("new");
    let targets = [format!("dir={}", new.display()).parse().expect("a target"), "mem".parse().expect("a target")];
    let foreign = new.join("foreign");
    let plan = Plan { time: Duration::from_millis(200), ..short(vec![1]) };
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A file of another program appears in the directory, which then cannot be removed.
            while !new.join("pando-bench-tree").exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(&foreign, "").expect("the run has not ended yet");
        });
        run(&small("crunl"), &targets, &plan, &ProgressBar::hidden(), &Cancel::default())
    });
    let (results, cleaned_up) = measured.expect("it is measured");
    assert!(results.series.iter().all(|series| series.samples.len() == 2));
    let failure = cleaned_up.expect_err("the directory is not empty");
    assert_eq!(failure.exit_code(), 1);
    assert!(failure.to_string().contains("/new"), "{failure}");
    assert!(foreign.exists());
}

#[test]
fn directory_named_twice_is_refused() {
    let temp = scratch();
    let dir = |path: &str| format!("dir={}{path}", temp.path().display()).parse().expect("a target");
    for [one, other] in [["/a", "/a"], ["/a", "/a/"]] {
        let ended =
            run(&small("crunl"), &[dir(one), dir(other)], &short(vec![1]), &ProgressBar::hidden(), &Cancel::default());
        assert!(matches!(&ended, Err(Failure::Refused(why)) if why.contains("named twice")), "{ended:?}");
    }
    assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
}

#[test]
fn latency_is_measured_on_request() {
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
fn helper_rate_and_undisturbed_rate_are_recorded() {
    let target: TargetSpec = "mem".parse().expect("a target");
    let plan = Plan { time: Duration::from_millis(200), ..short(vec![1]) };
    let found = |name: &str| {
        let spec = specs(name).remove(0);
        run(&spec, std::slice::from_ref(&target), &plan, &ProgressBar::hidden(), &Cancel::default())
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
fn listings_run_at_every_level() {
    for level in 0..4 {
        check(&specs(&format!("xattrs:files=30,level={level}")).remove(0), &short(vec![1]));
        // As far as the file system supports extended attributes.
        check(&specs(&format!("xattrs:files=30,level={level},records=1")).remove(0), &short(vec![2]));
    }
}

#[test]
fn every_repeat_has_its_own_seed() {
    let names: std::collections::HashSet<u64> =
        (1..=8).flat_map(|threads| (0..100).map(move |repeat| seed_of(42, threads, repeat))).collect();
    assert_eq!(names.len(), 800);
}

fn job<'a>(workload: &'a dyn Workload, session: &'a dyn Session) -> Job<'a> {
    let (warm_up, time) = (Duration::ZERO, Duration::from_secs(3600));
    Job { workload, session, workers: 2, seed: 1, warm_up, time, latency: false, alone: false }
}

#[test]
fn interruption_ends_a_run_and_cleans_up() {
    // One workload of each pace: timed, and in rounds.
    for name in ["crunl", "create-shared"] {
        let temp = scratch();
        let target: TargetSpec = format!("dir={}", temp.path().display()).parse().expect("a target");
        let workload = small(name).workload();
        let session = target.target().open().expect("it opens");
        let cancel = Cancel::default();
        workload.prepare(&mut *session.actor().expect("an actor"), 2, &cancel).expect("prepared");
        let asking = CancelOnce { session: &*session, cancel: &cancel };
        let ended = job(&*workload, &asking).measure(&cancel);
        assert!(matches!(ended, Err(Failure::Interrupted)), "{name}");
        drop(session);
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
        let plan = Plan { time: Duration::from_secs(3600), ..short(vec![1]) };
        let ended = run(&small(name), &[target], &plan, &ProgressBar::hidden(), &cancel);
        assert!(matches!(ended, Err(Failure::Interrupted)), "{name}");
    }
}

/// Cancels the run as soon as a thread has begun to work.
struct CancelOnce<'a> {
    session: &'a dyn Session,
    cancel: &'a Cancel,
}

impl Session for CancelOnce<'_> {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        self.cancel.request();
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
fn error_ends_a_measurement_at_once() {
    // During counting, while a round runs, and while a round is prepared.
    for name in ["crunl", "create-shared", "unlink-shared"] {
        let workload = small(name).workload();
        let failure = job(&*workload, &Broken { panics: false }).measure(&Cancel::default()).expect_err("it fails");
        assert!(matches!(&failure, Failure::Io(_, error) if error.raw_os_error() == Some(28)), "{failure}");
    }
}

#[test]
fn panic_ends_a_measurement_at_once() {
    for name in ["crunl", "create-shared", "unlink-shared"] {
        let workload = small(name).workload();
        let measure = || job(&*workload, &Broken { panics: true }).measure(&Cancel::default());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(measure)).expect_err("it panics");
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("on purpose")), "{name}");
    }
}

#[test]
fn cancelled_part_is_neither_prepared_nor_cleaned_up() {
    for name in ["create-shared", "unlink-shared", "rename-shared"] {
        let (workload, phase, mut recorder) = (small(name).workload(), Phase::new(), Recorder::default());
        let mut task = workload.task(Part { seed: 1, worker: 0, workers: 1, shared: None, phase: &phase });
        task.begin(&mut recorder).expect("a recorder does not fail");
        task.batch(&mut recorder, None, u64::MAX).expect("a recorder does not fail");
        phase.advance(Phase::LEFT);
        let done = recorder.0.len();
        task.end(&mut recorder).expect("a recorder does not fail");
        task.begin(&mut recorder).expect("a recorder does not fail");
        assert_eq!(recorder.0.len(), done, "{name}: {:?}", &recorder.0[done..]);
    }
}

#[test]
fn worker_operations_depend_on_the_seed_alone() {
    // The names that a worker asks for come from its seed alone.
    let workload = small("rndrename").workload();
    let names = |seed| {
        let mut recorder = Recorder::default();
        let phase = Phase::new();
        let mut task = workload.task(Part { seed, worker: 0, workers: 1, shared: None, phase: &phase });
        task.batch(&mut recorder, None, u64::MAX).expect("a recorder does not fail");
        recorder.0
    };
    assert_eq!(names(5), names(5));
    assert_ne!(names(5), names(6));
}

/// Records the operations that are called.
#[derive(Default)]
struct Recorder(Vec<String>);

impl Actor for Recorder {
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
