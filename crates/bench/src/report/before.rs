//! What the locks of old kernels cost a thread that nobody contends with.

use std::fmt::Write as _;

use super::Row;

/// What the names of targets under old locks end in.
const BEFORE: &str = ":before";

/// A line for each target that was measured with one thread and nobody beside it, with and without those locks. Their price is
/// a part of what a comparison shows, and says nothing about waiting.
pub(crate) fn what_one_thread_pays(rows: &[Row]) -> String {
    let mut text = String::new();
    for under_locks in rows.iter().filter(|row| row.threads == 1 && row.helpers.is_none()) {
        let Some(name) = under_locks.target.strip_suffix(BEFORE) else { continue };
        let same = |row: &&Row| row.threads == 1 && row.workload == under_locks.workload && row.target == name;
        let Some(without) = rows.iter().find(same) else { continue };
        let (Ok(old), Ok(figures)) = (&under_locks.figures, &without.figures) else { continue };
        let more = old.cpu_ns_per_op - figures.cpu_ns_per_op;
        let _ = writeln!(
            text,
            "{}: what one thread pays for the locks of {}: {more:+.1} ns of CPU time per operation ({:+.0} %).",
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
        runner::Helpers,
    };

    #[test]
    fn the_price_is_that_of_one_thread() {
        let mut results = results();
        results.helpers = None;
        for series in &mut results.series {
            series.target = if series.target == "a" { "mem:before".into() } else { "mem".into() };
        }
        let text = what_one_thread_pays(&rows(&results));
        assert_eq!(
            text,
            "crunl: what one thread pays for the locks of mem:before: +250.0 ns of CPU time per operation (+100 %).\n"
        );
        let alone: Vec<Row> = rows(&results).into_iter().filter(|row| row.target != "mem").collect();
        assert_eq!(what_one_thread_pays(&alone), "");
        // Who disturbs takes the same locks, and is waited for.
        results.helpers = Some(Helpers { count: 1, what: "disturbances", asked_per_s: None });
        assert_eq!(what_one_thread_pays(&rows(&results)), "");
    }
}
