//! What a run found, for people and for programs.

pub(crate) mod json;
pub(crate) mod table;

use crate::{
    measure::Summary,
    runner::{Results, Sample, Series},
};

/// One line of a report: one target with one number of threads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) target: String,
    pub(crate) threads: usize,
    pub(crate) ops_per_s: Summary,
    /// The median of the repeats.
    pub(crate) cpu_ns_per_op: f64,
    /// The median of the repeats.
    pub(crate) ctx_switches_per_s: f64,
    /// Operations per second over those of the first target, repeat by repeat.
    pub(crate) ratio_to_first: Summary,
    /// Operations per second over those of the same target with the smallest number of threads; none for that.
    pub(crate) scaling: Option<Summary>,
}

/// One row for each series, in their order.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    let fewest = results.series.iter().map(|series| series.threads).min();
    let find = |threads: Option<usize>, target: Option<&str>| {
        let fits =
            |series: &&Series| Some(series.threads) == threads && target.is_none_or(|name| series.target == name);
        results.series.iter().find(fits)
    };
    let row = |series: &Series| {
        let first = find(Some(series.threads), None).unwrap_or(series);
        let alone = find(fewest, Some(&series.target)).filter(|alone| alone.threads != series.threads);
        Row {
            workload: results.workload,
            target: series.target.clone(),
            threads: series.threads,
            ops_per_s: Summary::of(series.samples.iter().map(|sample| sample.ops_per_s)),
            cpu_ns_per_op: Summary::of(series.samples.iter().map(|sample| sample.cpu_ns_per_op)).median,
            ctx_switches_per_s: Summary::of(series.samples.iter().map(|sample| sample.ctx_switches_per_s)).median,
            ratio_to_first: ratio(&series.samples, &first.samples),
            scaling: alone.map(|alone| ratio(&series.samples, &alone.samples)),
        }
    };
    results.series.iter().map(row).collect()
}

/// Repeat by repeat: what drifted between repeats cancels out.
fn ratio(samples: &[Sample], base: &[Sample]) -> Summary {
    Summary::of(samples.iter().zip(base).map(|(sample, base)| sample.ops_per_s / base.ops_per_s))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two targets with 1 and 2 threads.
    pub(crate) fn results() -> Results {
        let series = |target: &str, threads, rates: [f64; 3]| Series {
            target: target.into(),
            threads,
            samples: rates
                .map(|ops_per_s| Sample { ops_per_s, cpu_ns_per_op: 1e9 / ops_per_s, ctx_switches_per_s: 4.0 })
                .to_vec(),
        };
        Results {
            workload: "crunl",
            loop_ns_per_op: 2.0,
            series: vec![
                series("a", 1, [1e6, 2e6, 4e6]),
                series("map:b", 1, [2e6, 4e6, 8e6]),
                series("a", 2, [2e6, 3e6, 4e6]),
                series("map:b", 2, [4e6, 4e6, 4e6]),
            ],
        }
    }

    #[test]
    fn ratios_are_formed_repeat_by_repeat() {
        let rows = rows(&results());
        // The machine got four times as fast meanwhile, and still the ratio is the same in each repeat.
        assert_eq!(rows[1].ratio_to_first, Summary { min: 2.0, median: 2.0, max: 2.0 });
        assert_eq!(rows[0].ratio_to_first, Summary { min: 1.0, median: 1.0, max: 1.0 });
        assert_eq!(rows[3].ratio_to_first, Summary { min: 1.0, median: 4.0 / 3.0, max: 2.0 });
        assert_eq!(rows[0].scaling, None);
        assert_eq!(rows[2].scaling, Some(Summary { min: 1.0, median: 1.5, max: 2.0 }));
        assert!(rows[0].ops_per_s.is_noisy() && !rows[3].ops_per_s.is_noisy());
        assert!((rows[0].cpu_ns_per_op - 500.0).abs() < 1e-9);
    }
}
