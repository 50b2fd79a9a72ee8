//! The results of a run, as text for people and as JSON for programs.

mod before;
pub(crate) mod beside;
pub(crate) mod compare;
pub(crate) mod json;
pub(crate) mod table;

use crate::{
    base::{
        locks::{CLASSES, Locks},
        measure::{self, Latency, Summary},
    },
    run::{
        pool::{Beside, Sample},
        schedule::{Helpers, Results, Series},
    },
};

/// Values that apply to all measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    /// Seed of names and orders.
    pub(crate) seed: u64,
    /// Load average of the minute before the run; none if it cannot be read.
    pub(crate) load: Option<f64>,
}

impl Run {
    /// Called before the first measurement, so that the load is not the run's own.
    pub(crate) fn begin(seed: u64) -> Self {
        Self { seed, load: measure::load() }
    }
}

/// If the load before a run is above this, the machine was in use. The load does not say by which
/// program; a build of this program counts as well.
const BUSY_LOAD: f64 = 0.5;

/// Advice to the reader about the load before a run; none if the machine was quiet.
pub(crate) fn load_advice(load: Option<f64>) -> Option<String> {
    let load = load.filter(|load| *load > BUSY_LOAD)?;
    Some(format!(
        "The machine was in use in the minute before this run, perhaps by a build (load {load:.1}). \
         Run it again on a quiet machine before you keep these figures."
    ))
}

/// One line of a report: one target with one number of threads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) target: String,
    /// Number of threads, or of processes if `processes` is set.
    pub(crate) threads: usize,
    pub(crate) processes: bool,
    /// CPU time of the loop alone; see [`Results`].
    pub(crate) loop_ns_per_op: Option<f64>,
    pub(crate) helpers: Option<Helpers>,
    pub(crate) figures: Result<Figures, String>,
}

/// The figures of a row that was measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) repeats: usize,
    /// Sum over all repeats.
    pub(crate) ops: u64,
    /// Sum over all repeats.
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: Summary,
    /// User and system time. This and all other single numbers here are medians over the repeats.
    pub(crate) cpu_ns_per_op: f64,
    pub(crate) user_ns_per_op: f64,
    pub(crate) system_ns_per_op: f64,
    /// Voluntary context switches.
    pub(crate) ctx_switches_per_s: f64,
    /// Locks that the library took and waited for per operation, by class; none if they are not
    /// counted.
    pub(crate) locks: Option<LocksPerOp>,
    /// Maximum over all repeats.
    pub(crate) peak_bytes: u64,
    /// Over all repeats; set if latency was requested.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    /// Operations per second divided by those of the first target, repeat by repeat; none if that
    /// target has no figures.
    pub(crate) ratio_to_first: Option<Summary>,
    /// Operations per second divided by those of the same target with the smallest number of
    /// threads; none for that row itself.
    pub(crate) scaling: Option<Summary>,
    /// Set if there were helpers.
    pub(crate) beside: Option<BesideHelpers>,
}

/// The helpers' rate, and the part of the workers' rate that remains beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BesideHelpers {
    /// All helpers together.
    pub(crate) helper_ops_per_s: Summary,
    /// The workers' rate without helpers.
    pub(crate) alone_ops_per_s: Summary,
    /// The workers' rate beside helpers divided by the rate without them, repeat by repeat.
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

/// Locks per operation, by class ([`CLASSES`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LocksPerOp {
    pub(crate) acquired: [f64; CLASSES.len()],
    pub(crate) waited: [f64; CLASSES.len()],
}

/// One row for each series, in the same order.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    let fewest = results.series.iter().map(|series| series.threads).min();
    // By index, not by name: the same target may have been given twice.
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

/// Over all repeats.
#[allow(clippy::cast_precision_loss)] // Counts stay far below 2^53.
fn locks(samples: &[Sample]) -> Option<LocksPerOp> {
    let sum = samples.iter().filter_map(|sample| sample.locks).reduce(Locks::and)?;
    let ops: u64 = samples.iter().map(|sample| sample.ops).sum();
    let per_op = |counts: [u64; CLASSES.len()]| counts.map(|count| count as f64 / ops as f64);
    Some(LocksPerOp { acquired: per_op(sum.acquired), waited: per_op(sum.waited) })
}

/// The ratio of two series, repeat by repeat: drift between repeats cancels out.
fn ratio(samples: &[Sample], base: &[Sample]) -> Option<Summary> {
    let ratios = samples.iter().zip(base).map(|(sample, base)| sample.ops_per_s() / base.ops_per_s());
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| Summary::of(ratios))
}

#[cfg(test)]
pub(crate) mod tests;
