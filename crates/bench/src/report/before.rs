//! The cost of old kernels' locks for a single thread, without contention.

use std::fmt::Write as _;

use super::Row;

/// Suffix of the names of targets with old locks.
const BEFORE: &str = ":before";

/// A line for each target that was measured with one thread and without helpers, both with these
/// locks and without. This cost is a part of every comparison, and has nothing to do with waiting.
pub(crate) fn single_thread_cost(rows: &[Row]) -> String {
    let mut text = String::new();
    for under_locks in rows.iter().filter(|row| row.threads == 1 && row.helpers.is_none()) {
        let Some(name) = under_locks.target.strip_suffix(BEFORE) else { continue };
        let same = |row: &&Row| row.threads == 1 && row.workload == under_locks.workload && row.target == name;
        let Some(without) = rows.iter().find(same) else { continue };
        let (Ok(old), Ok(figures)) = (&under_locks.figures, &without.figures) else { continue };
        let more = old.cpu_ns_per_op - figures.cpu_ns_per_op;
        let _ = writeln!(
            text,
            "{}: the locks of {} cost a single thread {more:+.1} ns of CPU time per operation ({:+.0} %).",
            under_locks.workload,
            under_locks.target,
            100.0 * more / figures.cpu_ns_per_op
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::{rows, tests::results},
        run::schedule::Helpers,
    };

    #[test]
    fn lock_cost_is_that_of_a_single_thread() {
        let mut results = results();
        results.helpers = None;
        for series in &mut results.series {
            series.target = if series.target == "a" { "mem:before".into() } else { "mem".into() };
        }
        let text = single_thread_cost(&rows(&results));
        assert_eq!(
            text,
            "crunl: the locks of mem:before cost a single thread +250.0 ns of CPU time per operation (+100 %).\n"
        );
        let alone: Vec<Row> = rows(&results).into_iter().filter(|row| row.target != "mem").collect();
        assert_eq!(single_thread_cost(&alone), "");
        // Helpers take the same locks, so that the thread would wait for them.
        results.helpers = Some(Helpers { count: 1, what: "disturbances", asked_per_s: None });
        assert_eq!(single_thread_cost(&rows(&results)), "");
    }
}
