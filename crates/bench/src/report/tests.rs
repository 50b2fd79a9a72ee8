use std::time::Duration;

use super::*;
use crate::base::measure::Used;

/// Two targets with 1 and 2 threads, and a third that does not support the workload.
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
                // One lock of class `names` per operation; one in four waits.
                locks: (target == "a")
                    .then_some(Locks { acquired: of_names(ops), waited: of_names(ops / 4) }),
                // Helpers reach half of the requested rate, and halve the workers' rate.
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

/// This count for the class `names`, and none for the others.
fn of_names<T: Copy + Default>(count: T) -> [T; CLASSES.len()] {
    CLASSES.map(|class| if class == "names" { count } else { T::default() })
}

fn summary(min: f64, median: f64, max: f64) -> Option<Summary> {
    Some(Summary { min, median, max })
}

#[test]
fn ratios_are_computed_repeat_by_repeat() {
    let rows: Vec<Row> = rows(&results());
    let figures = |row: usize| rows[row].figures.as_ref().expect("figures");
    // The machine became four times as fast meanwhile, and the ratio is still the same in each
    // repeat.
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
fn scaling_refers_to_the_fewest_threads_in_any_order() {
    let mut results = results();
    results.series.rotate_left(3);
    let rows = rows(&results);
    let scaling = |row: usize| rows[row].figures.as_ref().expect("figures").scaling;
    assert_eq!((rows[0].threads, rows[3].threads), (2, 1));
    assert_eq!((scaling(0), scaling(3)), (summary(1.0, 1.5, 2.0), None));
}

#[test]
fn ratio_to_first_is_none_if_first_target_has_no_figures() {
    let mut results = results();
    results.series.retain(|series| series.target != "a");
    results.series.swap(0, 1);
    results.series.swap(2, 3);
    let rows = rows(&results);
    assert!(rows[0].figures.is_err());
    assert_eq!(rows[1].figures.as_ref().expect("figures").ratio_to_first, None);
}
