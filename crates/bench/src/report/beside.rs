//! The part of the workers' rate that remains beside helpers.

use std::{fmt::Write as _, thread};

use super::{Row, table::short};
use crate::base::measure::Summary;

/// Helpers have fallen behind if they did less than this fraction of the requested rate.
const BEHIND: f64 = 0.95;

/// Whether helpers did less than was requested.
#[allow(clippy::cast_precision_loss)] // Far below 2^53.
pub(crate) fn behind(did: Summary, asked: u64) -> bool {
    did.median < BEHIND * asked as f64
}

/// A line for each measurement with helpers: the helpers' rate, and the part of their rate that the
/// workers keep.
pub(crate) fn kept_rates(rows: &[Row]) -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut text = String::new();
    for row in rows {
        let beside = row.figures.as_ref().ok().and_then(|figures| figures.beside);
        let Some((helpers, beside)) = row.helpers.zip(beside) else { continue };
        let (kept, did) = (beside.kept_of_alone, beside.helper_ops_per_s);
        let _ = write!(
            text,
            "{} {} {}: keeps {:.0} % ({:.0}-{:.0}) of {}/s beside {} {} a second",
            row.workload,
            row.target,
            row.threads,
            100.0 * kept.median,
            100.0 * kept.min,
            100.0 * kept.max,
            short(beside.alone_ops_per_s.median),
            short(did.median),
            helpers.what,
        );
        #[allow(clippy::cast_precision_loss)] // Far below 2^53.
        let _ = match helpers.asked_per_s {
            Some(asked) if behind(did, asked) => write!(text, ", BEHIND the requested {}", short(asked as f64)),
            Some(asked) => write!(text, " ({} requested)", short(asked as f64)),
            None => write!(text, " (at full speed)"),
        };
        if row.threads + helpers.count > cores {
            let _ = write!(text, "; {} threads on {cores} cores", row.threads + helpers.count);
        }
        text.push_str(".\n");
    }
    if !text.is_empty() {
        text.push_str(
            "keeps: the rate beside the helpers over the rate without them, measured just before; by repeat.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{rows, tests::results};

    #[test]
    fn kept_rate_is_printed_with_the_helpers_rate() {
        let mut results = results();
        let text = kept_rates(&rows(&results));
        let first = text.lines().next().expect("a line");
        assert_eq!(
            first.split(';').next(),
            Some("crunl a 1: keeps 50 % (50-50) of 4.000M/s beside 500.0 disturbances a second, BEHIND the requested 1.000k")
                .map(|line| if first.contains(';') { line.to_owned() } else { format!("{line}.") })
                .as_deref()
        );
        assert_eq!(text.lines().count(), 3, "with 1 and 2 threads, and the explanation: {text}");
        let helpers = results.helpers.as_mut().expect("there are");
        (helpers.asked_per_s, helpers.count) = (None, 1_000_000);
        let text = kept_rates(&rows(&results));
        assert!(text.contains("(at full speed); 1000001 threads on "), "{text}");
        results.helpers = None;
        assert_eq!(kept_rates(&rows(&results)), "");
    }
}
