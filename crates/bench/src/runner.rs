//! Turns: for each repeat every target once, so that a machine that drifts drifts for all of them.

use std::{
    io,
    panic::resume_unwind,
    sync::{
        Barrier,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    failure::{Failure, While},
    halt::Halt,
    measure::{Usage, Used},
    target::{Nothing, Session, TargetSpec},
    workload::Workload,
};

/// How a run is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Numbers of threads, one after the other.
    pub(crate) threads: Vec<usize>,
    /// The length of one measurement.
    pub(crate) time: Duration,
    /// What runs before each measurement, uncounted.
    pub(crate) warm_up: Duration,
    /// Measurements of each target with each number of threads.
    pub(crate) repeat: u32,
    /// Where names and orders come from.
    pub(crate) seed: u64,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) ops_per_s: f64,
    pub(crate) cpu_ns_per_op: f64,
    /// Voluntary ones, of the whole process.
    pub(crate) ctx_switches_per_s: f64,
}

/// All repeats of one target with one number of threads.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) target: String,
    pub(crate) threads: usize,
    /// By repeat: samples at the same place were measured next to each other.
    pub(crate) samples: Vec<Sample>,
}

/// What a run found.
#[derive(Debug, Clone)]
pub(crate) struct Results {
    pub(crate) workload: &'static str,
    /// CPU time of the loop itself, with a target that does nothing.
    pub(crate) loop_ns_per_op: f64,
    /// In the order of threads, then targets as they were named.
    pub(crate) series: Vec<Series>,
}

/// How long the loop itself is measured: it meets nothing that would disturb it for long.
const LOOP_TIME: Duration = Duration::from_millis(200);

/// Measures `workload` on all targets.
///
/// # Errors
/// What a target answers, or that the run was interrupted; what was made is removed either way.
pub(crate) fn run(workload: &dyn Workload, specs: &[TargetSpec], plan: &Plan, halt: &Halt) -> Result<Results, Failure> {
    let bar = progress(specs.len() * plan.threads.len() * plan.repeat as usize);
    bar.set_message("the loop itself");
    let stretch = (plan.warm_up, plan.time);
    let loop_alone = measure(workload, &Nothing, 1, plan.seed, (plan.warm_up, plan.time.min(LOOP_TIME)), halt)?;
    let mut sessions: Vec<Box<dyn Session>> = Vec::with_capacity(specs.len());
    for spec in specs {
        bar.set_message(format!("preparing {}", spec.name()));
        let session = spec.target().open()?;
        let mut actor = session.actor().during(|| format!("opening {}", spec.name()))?;
        workload.prepare(&mut *actor, halt)?;
        drop(actor);
        sessions.push(session);
    }
    let mut series = Vec::with_capacity(specs.len() * plan.threads.len());
    for &threads in &plan.threads {
        let first = series.len();
        series.extend(specs.iter().map(|spec| Series { target: spec.name().into(), threads, samples: Vec::new() }));
        for repeat in 0..plan.repeat {
            let seed = seed_of(plan.seed, threads, repeat);
            for (session, series) in sessions.iter().zip(&mut series[first..]) {
                bar.set_message(format!("{} {}, {threads} threads", workload.name(), series.target));
                let sample =
                    measure(workload, &**session, threads, seed, stretch, halt).map_err(|failure| match failure {
                        Failure::Io(what, error) => Failure::Io(format!("{what} on {}", series.target), error),
                        other => other,
                    })?;
                series.samples.push(sample);
                bar.inc(1);
            }
        }
    }
    bar.set_message("cleaning up");
    sessions.into_iter().try_for_each(Session::close)?;
    bar.finish_and_clear();
    Ok(Results { workload: workload.name(), loop_ns_per_op: loop_alone.cpu_ns_per_op, series })
}

/// On standard error; draws nothing unless that is a terminal.
fn progress(measurements: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} (left: {eta})").expect("a valid template");
    ProgressBar::new(measurements as u64).with_style(style)
}

/// Every repeat has a seed of its own, and from it on one for each of its threads.
fn seed_of(seed: u64, threads: usize, repeat: u32) -> u64 {
    fastrand::Rng::with_seed(seed ^ ((threads as u64) << 32) ^ u64::from(repeat)).u64(..)
}

/// Where all threads look between batches. On a line of its own, written a few times in a measurement.
#[repr(align(128))]
struct Phase {
    now: AtomicU8,
    /// Threads that have begun to count: the end waits for the last of them, however crowded the machine.
    counting: AtomicUsize,
}

const WARM_UP: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;
/// A thread has left: after [`STOP`] that is the end of it; before, it met an error, and there is nothing to wait for.
const LEFT: u8 = 3;

/// Says that a thread has left, also when it panics.
struct Leaving<'a>(&'a Phase);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.advance(LEFT);
    }
}

impl Phase {
    // Relaxed: the phase says only when to count; what threads counted is handed over by joining them.
    fn get(&self) -> u8 {
        self.now.load(Relaxed)
    }

    fn advance(&self, to: u8) {
        self.now.fetch_max(to, Relaxed);
    }
}

/// What one thread did while operations were counted.
#[derive(Debug, Clone, Copy)]
struct Share {
    ops: u64,
    from: Instant,
    to: Instant,
}

fn measure(
    workload: &dyn Workload,
    session: &dyn Session,
    threads: usize,
    seed: u64,
    (warm_up, time): (Duration, Duration),
    halt: &Halt,
) -> Result<Sample, Failure> {
    let phase = Phase { now: AtomicU8::new(WARM_UP), counting: AtomicUsize::new(0) };
    let start = Barrier::new(threads + 1);
    let (used, shares) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|n| {
                let (phase, start) = (&phase, &start);
                scope.spawn(move || work(workload, session, seed.wrapping_add(n), phase, start))
            })
            .collect();
        start.wait();
        let used = conduct(&phase, threads, (warm_up, time), halt);
        phase.advance(STOP);
        let shares: io::Result<Vec<Option<Share>>> =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect();
        (used, shares)
    });
    let shares: Vec<Share> = shares.during(|| workload.name().into())?.into_iter().flatten().collect();
    Ok(sample(&shares, used?).expect("the end waited for all threads to count"))
}

/// One thread of a measurement. No share if that ended before it began to count.
fn work(
    workload: &dyn Workload,
    session: &dyn Session,
    seed: u64,
    phase: &Phase,
    start: &Barrier,
) -> io::Result<Option<Share>> {
    // Made here, so that what threads write comes from their own part of the heap.
    let mut task = workload.task(seed);
    let _leaving = Leaving(phase);
    let actor = session.actor();
    // Also after an error: the others wait for it.
    start.wait();
    let mut actor = actor?;
    let mut from: Option<Instant> = None;
    let mut ops = 0;
    loop {
        match phase.get() {
            WARM_UP => {}
            COUNT => {
                if from.is_none() {
                    phase.counting.fetch_add(1, Relaxed);
                    (from, ops) = (Some(Instant::now()), 0);
                }
            }
            _ => break,
        }
        ops += task.batch(&mut *actor)?;
    }
    let to = Instant::now();
    Ok(from.map(|from| Share { ops, from, to }))
}

/// Lets the threads warm up, then count; returns what the process used meanwhile.
fn conduct(phase: &Phase, threads: usize, (warm_up, time): (Duration, Duration), halt: &Halt) -> Result<Used, Failure> {
    const SLICE: Duration = Duration::from_millis(100);
    const LATE: Duration = Duration::from_millis(1);
    halt.wait(warm_up)?;
    let usage = || Usage::now().during(|| "getrusage".into());
    let before = usage()?;
    phase.advance(COUNT);
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let all_count = phase.counting.load(Relaxed) == threads;
        if (left.is_zero() && all_count) || phase.get() == LEFT {
            return Ok(usage()? - before);
        }
        halt.wait(if left.is_zero() { LATE } else { left.min(SLICE) })?;
    }
}

/// All operations over the time from the first thread's start to the last one's end. Not a sum of rates: on a crowded
/// machine a thread may run for an instant only, and its rate in that instant is nobody's throughput.
#[allow(clippy::cast_precision_loss)] // Counts of operations stay far below 2^53.
fn sample(shares: &[Share], used: Used) -> Option<Sample> {
    let ops: u64 = shares.iter().map(|share| share.ops).sum();
    let from = shares.iter().map(|share| share.from).min()?;
    let to = shares.iter().map(|share| share.to).max()?;
    Some(Sample {
        ops_per_s: ops as f64 / (to - from).as_secs_f64(),
        cpu_ns_per_op: used.cpu.as_secs_f64() * 1e9 / ops as f64,
        ctx_switches_per_s: used.voluntary_switches as f64 / used.wall.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        path::TreePath,
        target::Actor,
        workload::{Crunl, Shape, Stat},
    };

    fn short(threads: Vec<usize>) -> Plan {
        let (time, warm_up) = (Duration::from_millis(60), Duration::from_millis(5));
        Plan { threads, time, warm_up, repeat: 2, seed: 1 }
    }

    fn check(workload: &dyn Workload, targets: &[String]) {
        let specs: Vec<TargetSpec> = targets.iter().map(|name| name.parse().expect("a target")).collect();
        let results = run(workload, &specs, &short(vec![1, 2]), &Halt::default()).expect("it runs");
        assert_eq!(results.workload, workload.name());
        let order: Vec<_> = results.series.iter().map(|series| (series.threads, series.target.clone())).collect();
        let expected: Vec<_> = [1, 2].iter().flat_map(|&n| targets.iter().map(move |t| (n, t.clone()))).collect();
        assert_eq!(order, expected);
        for series in &results.series {
            assert_eq!(series.samples.len(), 2);
            assert!(series.samples.iter().all(|sample| sample.ops_per_s > 0.0 && sample.cpu_ns_per_op >= 0.0));
        }
    }

    fn targets(temp: &tempfile::TempDir) -> Vec<String> {
        let mut targets = vec!["mem".into(), format!("dir={}", temp.path().display())];
        if cfg!(feature = "peers") {
            targets.extend(["peer:vfs", "peer:rsfs", "map:papaya", "map:scc"].map(String::from));
        }
        targets
    }

    #[test]
    fn crunl_runs() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        check(&Crunl, &targets(&temp));
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn stat_runs() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        check(&Stat::new(Shape { fan_out: 2, files: 5 }), &targets(&temp));
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn repeats_differ() {
        let names: std::collections::HashSet<u64> =
            (1..=8).flat_map(|threads| (0..100).map(move |repeat| seed_of(42, threads, repeat))).collect();
        assert_eq!(names.len(), 800);
    }

    #[test]
    fn an_interruption_ends_a_run_and_cleans_up() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let spec: TargetSpec = format!("dir={}", temp.path().display()).parse().expect("a target");
        let plan = Plan { warm_up: Duration::ZERO, time: Duration::from_secs(3600), ..short(vec![1]) };
        let session = spec.target().open().expect("it opens");
        let halt = Halt::default();
        let asking = AskOnce { session: &*session, halt: &halt };
        let stretch = (plan.warm_up, plan.time);
        let ended = measure(&Crunl, &asking, 1, 1, stretch, &halt);
        assert!(matches!(ended, Err(Failure::Interrupted)));
        drop(session);
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
        assert!(matches!(run(&Crunl, &[spec], &plan, &halt), Err(Failure::Interrupted)));
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

    /// Fails after some operations; in one thread only, if there are several.
    struct Failing;

    impl Session for Failing {
        fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
            Ok(Box::new(Failing))
        }
    }

    impl Actor for Failing {
        fn mkdir(&mut self, _: &TreePath) -> io::Result<()> {
            Ok(())
        }
        fn create(&mut self, _: &TreePath) -> io::Result<()> {
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
        let stretch = (Duration::ZERO, Duration::from_secs(3600));
        let failure = measure(&Crunl, &Failing, 2, 1, stretch, &Halt::default()).expect_err("it fails");
        assert!(matches!(&failure, Failure::Io(_, error) if error.raw_os_error() == Some(28)), "{failure}");
    }

    /// Panics where it should work.
    struct Panicking;

    impl Session for Panicking {
        fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
            Ok(Box::new(Panicking))
        }
    }

    impl Actor for Panicking {
        fn mkdir(&mut self, _: &TreePath) -> io::Result<()> {
            panic!("on purpose")
        }
        fn create(&mut self, _: &TreePath) -> io::Result<()> {
            panic!("on purpose")
        }
        fn unlink(&mut self, _: &TreePath) -> io::Result<()> {
            panic!("on purpose")
        }
        fn stat(&mut self, _: &TreePath) -> io::Result<()> {
            panic!("on purpose")
        }
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_ends_a_measurement_at_once() {
        let stretch = (Duration::ZERO, Duration::from_secs(3600));
        let _ = measure(&Crunl, &Panicking, 2, 1, stretch, &Halt::default());
    }

    #[test]
    fn a_rate_is_over_the_whole_time() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let share = |ops, from, to| Share { ops, from: at(from), to: at(to) };
        let used = Used { wall: Duration::from_secs(2), cpu: Duration::from_micros(300), voluntary_switches: 10 };
        // The second thread ran for a millisecond only.
        let sample = sample(&[share(200, 0, 1999), share(100, 1999, 2000)], used).expect("there are operations");
        assert!((sample.ops_per_s - 150.0).abs() < 1e-9);
        assert!((sample.cpu_ns_per_op - 1000.0).abs() < 1e-9);
        assert!((sample.ctx_switches_per_s - 5.0).abs() < 1e-9);
        assert!(super::sample(&[], used).is_none());
    }
}
