//! What a run found, for people and for programs.

mod before;
pub(crate) mod beside;
pub(crate) mod compare;
pub(crate) mod json;
pub(crate) mod table;

use crate::{
    crew::{Beside, Sample},
    locks::{CLASSES, Locks},
    measure::{self, Latency, Summary},
    runner::{Helpers, Results, Series},
};

/// What holds for all measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    /// Where names and orders come from.
    pub(crate) seed: u64,
    /// How many threads wanted a processor in the minute before it began; none if that is not said.
    pub(crate) load: Option<f64>,
}

impl Run {
    /// Nothing runs yet.
    pub(crate) fn begin(seed: u64) -> Self {
        Self { seed, load: measure::load() }
    }
}

/// With more load than this before a run begins, the machine was in use. The kernel does not say by which
/// program: the build of this one counts as well.
const BUSY_LOAD: f64 = 0.5;

/// What a reader should know of the load before a run, and do about it.
pub(crate) fn load_advice(load: Option<f64>) -> Option<String> {
    let load = load.filter(|load| *load > BUSY_LOAD)?;
    Some(format!(
        "The machine was in use in the minute before this run, perhaps by a build (load {load:.1}): \
         for figures to keep, run it again on a quiet machine."
    ))
}

/// One line of a report: one target with one number of threads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) target: String,
    /// Or processes.
    pub(crate) threads: usize,
    pub(crate) processes: bool,
    /// Of the loop alone; see [`Results`].
    pub(crate) loop_ns_per_op: Option<f64>,
    pub(crate) helpers: Option<Helpers>,
    pub(crate) figures: Result<Figures, String>,
}

/// What was measured; otherwise there is a reason why nothing was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) repeats: usize,
    /// All repeats together.
    pub(crate) ops: u64,
    /// All repeats together.
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: Summary,
    /// User and system time; medians of the repeats, as all single numbers here.
    pub(crate) cpu_ns_per_op: f64,
    pub(crate) user_ns_per_op: f64,
    pub(crate) system_ns_per_op: f64,
    /// Voluntary ones.
    pub(crate) ctx_switches_per_s: f64,
    /// Locks that the library took and waited for in one operation, by class; none if they are not counted.
    pub(crate) locks: Option<LocksPerOp>,
    /// The most of all repeats.
    pub(crate) peak_bytes: u64,
    /// Of all repeats together, if it was asked for.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    /// Operations per second over those of the first target, repeat by repeat; none if that has none.
    pub(crate) ratio_to_first: Option<Summary>,
    /// Operations per second over those of the same target with the smallest number of threads; none for that.
    pub(crate) scaling: Option<Summary>,
    /// If there were helpers.
    pub(crate) beside: Option<BesideHelpers>,
}

/// What helpers did, and what they left of the workers' rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BesideHelpers {
    /// Of all helpers together.
    pub(crate) helper_ops_per_s: Summary,
    /// The workers' rate without them.
    pub(crate) alone_ops_per_s: Summary,
    /// The rate beside them over that without, repeat by repeat.
    pub(crate) kept_of_alone: Summary,
}

fn beside(samples: &[Sample]) -> Option<BesideHelpers> {
    let all: Vec<(f64, Beside)> = samples.iter().filter_map(|one| Some((one.ops_per_s(), one.beside?))).collect();
    (!all.is_empty()).then(|| BesideHelpers {
        helper_ops_per_s: Summary::of(all.iter().map(|(_, beside)| beside.helper_ops_per_s)),
        alone_ops_per_s: Summary::of(all.iter().map(|(_, beside)| beside.alone_ops_per_s)),
        kept_of_alone: Summary::of(all.iter().map(|(rate, beside)| rate / beside.alone_ops_per_s)),
    })
}

/// Locks in one operation, by class ([`CLASSES`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LocksPerOp {
    pub(crate) acquired: [f64; CLASSES.len()],
    pub(crate) waited: [f64; CLASSES.len()],
}

/// One row for each series, in their order.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    let fewest = results.series.iter().map(|series| series.threads).min();
    // By place, not by name: the same target may have been named twice.
    let alone: Vec<&Series> = results.series.iter().filter(|series| Some(series.threads) == fewest).collect();
    let row = |(place, series): (usize, &Series)| {
        let first = &results.series[place - place % alone.len()];
        let alone = alone[place % alone.len()];
        let scaling = (alone.threads != series.threads).then(|| ratio(&series.samples, &alone.samples)).flatten();
        let ratio = ratio(&series.samples, &first.samples);
        Row {
            workload: results.workload.clone(),
            target: series.target.clone(),
            threads: series.threads,
            processes: results.processes,
            loop_ns_per_op: results.loop_ns_per_op,
            helpers: results.helpers,
            figures: series.missing.clone().map_or_else(|| Ok(figures(&series.samples, ratio, scaling)), Err),
        }
    };
    results.series.iter().enumerate().map(row).collect()
}

#[allow(clippy::cast_precision_loss)] // Counts of operations stay far below 2^53.
fn figures(samples: &[Sample], ratio_to_first: Option<Summary>, scaling: Option<Summary>) -> Figures {
    let median = |read: &dyn Fn(&Sample) -> f64| Summary::of(samples.iter().map(read)).median;
    let latency = samples.iter().filter_map(|sample| sample.latency.clone()).reduce(|mut all: Latency, one| {
        all.add(&one);
        all
    });
    let quantile = |quantile| latency.as_ref().map(|latency| latency.quantile_ns(quantile));
    Figures {
        repeats: samples.len(),
        ops: samples.iter().map(|sample| sample.ops).sum(),
        seconds: samples.iter().map(|sample| sample.seconds).sum(),
        ops_per_s: Summary::of(samples.iter().map(Sample::ops_per_s)),
        cpu_ns_per_op: median(&Sample::cpu_ns_per_op),
        user_ns_per_op: median(&|sample| sample.used.user().as_secs_f64() * 1e9 / sample.ops as f64),
        system_ns_per_op: median(&|sample| sample.used.system().as_secs_f64() * 1e9 / sample.ops as f64),
        ctx_switches_per_s: median(&Sample::ctx_switches_per_s),
        locks: locks(samples),
        peak_bytes: samples.iter().map(|sample| sample.peak_bytes).max().unwrap_or(0),
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        ratio_to_first,
        scaling,
        beside: beside(samples),
    }
}

/// Of all repeats together.
#[allow(clippy::cast_precision_loss)] // Counts stay far below 2^53.
fn locks(samples: &[Sample]) -> Option<LocksPerOp> {
    let sum = samples.iter().filter_map(|sample| sample.locks).reduce(Locks::and)?;
    let ops: u64 = samples.iter().map(|sample| sample.ops).sum();
    let per_op = |counts: [u64; CLASSES.len()]| counts.map(|count| count as f64 / ops as f64);
    Some(LocksPerOp { acquired: per_op(sum.acquired), waited: per_op(sum.waited) })
}

/// Repeat by repeat: what drifted between repeats cancels out.
fn ratio(samples: &[Sample], base: &[Sample]) -> Option<Summary> {
    let ratios = samples.iter().zip(base).map(|(sample, base)| sample.ops_per_s() / base.ops_per_s());
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| Summary::of(ratios))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Used;

    /// Two targets with 1 and 2 threads, and a third that cannot do it.
    pub(crate) fn results() -> Results {
        let series = |target: &str, threads, rates: &[u64]| Series {
            target: target.into(),
            threads,
            missing: rates.is_empty().then(|| "the target does not have this".into()),
            samples: rates
                .iter()
                .map(|&ops| Sample {
                    ops,
                    seconds: 1.0,
                    used: Used {
                        cpu: Duration::from_secs(1),
                        user_ticks: Duration::from_millis(750),
                        system_ticks: Duration::from_millis(250),
                        voluntary_switches: 4,
                    },
                    peak_bytes: ops,
                    latency: None,
                    // A lock of a name in each operation; one in four waits.
                    locks: (target == "a")
                        .then_some(Locks { acquired: of_names(ops), waited: of_names(ops / 4) }),
                    // Helpers do half as much as was asked of them, and leave half.
                    #[allow(clippy::cast_precision_loss)] // A few millions.
                    beside: (target == "a")
                        .then_some(Beside { helper_ops_per_s: 500.0, alone_ops_per_s: 2.0 * ops as f64 }),
                })
                .collect(),
        };
        Results {
            workload: "crunl".into(),
            processes: false,
            loop_ns_per_op: Some(2.0),
            helpers: Some(Helpers { count: 1, what: "disturbances", asked_per_s: Some(1000) }),
            series: vec![
                series("a", 1, &[1_000_000, 2_000_000, 4_000_000]),
                series("map:b", 1, &[2_000_000, 4_000_000, 8_000_000]),
                series("c", 1, &[]),
                series("a", 2, &[2_000_000, 3_000_000, 4_000_000]),
                series("map:b", 2, &[4_000_000, 4_000_000, 4_000_000]),
                series("c", 2, &[]),
            ],
        }
    }

    /// So many of the locks of names, and none of others.
    fn of_names<T: Copy + Default>(count: T) -> [T; CLASSES.len()] {
        CLASSES.map(|class| if class == "names" { count } else { T::default() })
    }

    fn summary(min: f64, median: f64, max: f64) -> Option<Summary> {
        Some(Summary { min, median, max })
    }

    #[test]
    fn ratios_are_formed_repeat_by_repeat() {
        let rows: Vec<Row> = rows(&results());
        let figures = |row: usize| rows[row].figures.as_ref().expect("figures");
        // The machine got four times as fast meanwhile, and still the ratio is the same in each repeat.
        assert_eq!(figures(1).ratio_to_first, summary(2.0, 2.0, 2.0));
        assert_eq!(figures(0).ratio_to_first, summary(1.0, 1.0, 1.0));
        assert_eq!(figures(4).ratio_to_first, summary(1.0, 4.0 / 3.0, 2.0));
        assert_eq!(figures(0).scaling, None);
        assert_eq!(figures(3).scaling, summary(1.0, 1.5, 2.0));
        assert!(figures(0).ops_per_s.is_noisy() && !figures(4).ops_per_s.is_noisy());
        assert!((figures(0).cpu_ns_per_op - 500.0).abs() < 1e-9);
        assert!((figures(0).system_ns_per_op - 125.0).abs() < 1e-9);
        assert_eq!((figures(0).ops, figures(0).peak_bytes), (7_000_000, 4_000_000));
        let locks = figures(0).locks.expect("counted");
        assert_eq!((locks.acquired, locks.waited), (of_names(1.0), of_names(0.25)));
        let beside = figures(0).beside.expect("there were helpers");
        assert_eq!(Some(beside.kept_of_alone), summary(0.5, 0.5, 0.5));
        assert_eq!(Some(beside.alone_ops_per_s), summary(2e6, 4e6, 8e6));
        assert_eq!(figures(1).beside, None);
        assert_eq!(rows[2].figures, Err("the target does not have this".into()));
    }

    #[test]
    fn scaling_is_over_the_fewest_threads_wherever_they_stand() {
        let mut results = results();
        results.series.rotate_left(3);
        let rows = rows(&results);
        let scaling = |row: usize| rows[row].figures.as_ref().expect("figures").scaling;
        assert_eq!((rows[0].threads, rows[3].threads), (2, 1));
        assert_eq!((scaling(0), scaling(3)), (summary(1.0, 1.5, 2.0), None));
    }

    #[test]
    fn nothing_is_compared_with_a_first_target_that_has_no_figures() {
        let mut results = results();
        results.series.retain(|series| series.target != "a");
        results.series.swap(0, 1);
        results.series.swap(2, 3);
        let rows = rows(&results);
        assert!(rows[0].figures.is_err());
        assert_eq!(rows[1].figures.as_ref().expect("figures").ratio_to_first, None);
    }
}
