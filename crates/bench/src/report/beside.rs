//! What threads that disturb leave of the rate.

use std::{fmt::Write as _, thread};

use super::{Row, table::short};
use crate::measure::Summary;

/// Below this part of what they were to do, helpers fell behind.
const BEHIND: f64 = 0.95;

/// Whether they did less than they were asked for.
#[allow(clippy::cast_precision_loss)] // Far below 2^53.
pub(crate) fn behind(did: Summary, asked: u64) -> bool {
    did.median < BEHIND * asked as f64
}

/// A line for each measurement beside helpers: what they did, and what the workers kept of their rate without them.
pub(crate) fn what_is_kept(rows: &[Row]) -> String {
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
            Some(asked) if behind(did, asked) => write!(text, ", BEHIND the {} asked for", short(asked as f64)),
            Some(asked) => write!(text, " ({} asked for)", short(asked as f64)),
            None => write!(text, " (as many as they can)"),
        };
        if row.threads + helpers.count > cores {
            let _ = write!(text, "; {} threads on {cores} cores", row.threads + helpers.count);
        }
        text.push_str(".\n");
    }
    if !text.is_empty() {
        text.push_str("keeps: the rate beside them over the rate without, measured just before, repeat by repeat.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{rows, tests::results};

    #[test]
    fn what_is_kept_stands_beside_what_disturbed() {
        let mut results = results();
        let text = what_is_kept(&rows(&results));
        let first = text.lines().next().expect("a line");
        assert_eq!(
            first.split(';').next(),
            Some("crunl a 1: keeps 50 % (50-50) of 4.000M/s beside 500.0 disturbances a second, BEHIND the 1.000k asked for")
                .map(|line| if first.contains(';') { line.to_owned() } else { format!("{line}.") })
                .as_deref()
        );
        assert_eq!(text.lines().count(), 3, "with 1 and 2 threads, and what it means: {text}");
        let helpers = results.helpers.as_mut().expect("there are");
        (helpers.asked_per_s, helpers.count) = (None, 1_000_000);
        let text = what_is_kept(&rows(&results));
        assert!(text.contains("(as many as they can); 1000001 threads on "), "{text}");
        results.helpers = None;
        assert_eq!(what_is_kept(&rows(&results)), "");
    }
}
