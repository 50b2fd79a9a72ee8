//! Comparison of two reports: changes beyond the noise.
//!
//! A rate has changed if all repeats of one run lie above all repeats of the other. The ratio to
//! the first target of the same run is compared in the same way. A slower machine changes the
//! rates, but not the ratios.

use std::fmt::Write as _;

use super::{
    json::Record,
    table::{aligned, short},
};
use crate::base::{failure::Failure, measure::Summary};

/// With fewer repeats, equal targets differ too often: with three repeats in each run, one
/// comparison in ten shows a difference by chance.
const FEWEST: usize = 4;

/// How the readings of the second run compare with those of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Faster,
    Slower,
    /// The readings overlap.
    Noise,
}

impl Verdict {
    fn of(before: Summary, after: Summary) -> Self {
        match () {
            () if after.min > before.max => Self::Faster,
            () if after.max < before.min => Self::Slower,
            () => Self::Noise,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Noise => "",
        }
    }
}

/// The table of both reports.
///
/// # Errors
/// There is nothing to compare.
pub(crate) fn render(before: &[Record], after: &[Record]) -> Result<String, Failure> {
    let mut rows = Vec::new();
    let (mut changed, mut too_few, mut only) = (0, 0, String::new());
    for (at, old) in before.iter().enumerate() {
        let Some(new) = partner(before, at, after) else {
            let _ = writeln!(only, "only in the first: {}", name(old));
            continue;
        };
        let (old_rate, new_rate) = match (old.ops_per_s, new.ops_per_s) {
            (Some(old), Some(new)) => (old, new),
            (None, None) => continue,
            (measured, _) => {
                let (first, second) = if measured.is_some() { ("first", "second") } else { ("second", "first") };
                let why = old.not_measured.as_ref().or(new.not_measured.as_ref()).map_or("no figures", String::as_str);
                let _ = writeln!(only, "only in the {first}: {} (in the {second}: {why})", name(old));
                continue;
            }
        };
        let tells = [old, new].iter().all(|record| record.repeats.is_none_or(|repeats| repeats >= FEWEST));
        let of = |old, new| if tells { Verdict::of(old, new) } else { Verdict::Noise };
        let rate = of(old_rate, new_rate);
        let ratio = old.ratio_to_first.zip(new.ratio_to_first);
        let verdict = ratio.map_or(Verdict::Noise, |(old, new)| of(old, new));
        too_few += usize::from(!tells);
        changed += usize::from(rate != Verdict::Noise || verdict != Verdict::Noise);
        rows.push(vec![
            old.workload.clone(),
            old.target.clone(),
            old.threads.to_string(),
            short(old_rate.median),
            short(new_rate.median),
            percent(old_rate.median, new_rate.median),
            rate.text().into(),
            old.cpu_ns_per_op.zip(new.cpu_ns_per_op).map_or_else(String::new, |(old, new)| percent(old, new)),
            ratio.map_or_else(String::new, |(old, new)| format!("{:.2} -> {:.2}", old.median, new.median)),
            verdict.text().into(),
        ]);
    }
    for (_, new) in after.iter().enumerate().filter(|(at, _)| partner(after, *at, before).is_none()) {
        let _ = writeln!(only, "only in the second: {}", name(new));
    }
    let compared = rows.len();
    if compared == 0 {
        return Err(Failure::Refused(
            format!("no measurement is in both reports\n{}", only.trim_end()).trim_end().into(),
        ));
    }
    let heading = ["workload", "target", "threads", "ops/s A", "ops/s B", "", "", "CPU/op", "ratio to first", ""];
    let mut text = aligned(&heading, rows.into_iter());
    let _ = writeln!(
        text,
        "\n{changed} of {compared} changed beyond the noise: all repeats of one run lie above all repeats of the other.\n\
         A slower machine changes the rates, but not the ratios to the first target of the same run."
    );
    if too_few > 0 {
        let has = if too_few == 1 { "has" } else { "have" };
        let _ = writeln!(
            text,
            "{too_few} of {compared} {has} fewer than {FEWEST} repeats: they may differ by chance, so no change is reported for them."
        );
    }
    if before.first().zip(after.first()).is_some_and(|(old, new)| old.machine != new.machine) {
        let _ = writeln!(text, "The machines differ: {:?} and {:?}.", before[0].machine, after[0].machine);
    }
    Ok(text + &only)
}

/// The matching row of the other report. The n-th of several equal rows matches the n-th there: a
/// target may have been given twice.
fn partner<'a>(rows: &[Record], at: usize, others: &'a [Record]) -> Option<&'a Record> {
    let before = rows[..at].iter().filter(|row| same(row, &rows[at])).count();
    others.iter().filter(|other| same(other, &rows[at])).nth(before)
}

fn same(a: &Record, b: &Record) -> bool {
    (&a.workload, &a.target, a.threads, &a.mode) == (&b.workload, &b.target, b.threads, &b.mode)
}

fn name(record: &Record) -> String {
    format!("{} {}, {} {}", record.workload, record.target, record.threads, record.mode)
}

fn percent(before: f64, after: f64) -> String {
    format!("{:+.1} %", (after / before - 1.0) * 100.0)
}

#[cfg(test)]
mod tests;
