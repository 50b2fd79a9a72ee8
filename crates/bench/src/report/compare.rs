//! Two reports side by side: what changed beyond the noise.
//!
//! A rate has changed if the repeats of one run all lie above those of the other. The ratio to the first target of its
//! own run is compared in the same way: a machine that is slower altogether changes rates, and not ratios.

use std::fmt::Write as _;

use super::{
    json::Record,
    table::{aligned, short},
};
use crate::{failure::Failure, measure::Summary};

/// With fewer repeats, equal things lie apart too often: three in either run do so once in ten comparisons.
const FEWEST: usize = 4;

/// How readings of the second run stand to those of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Faster,
    Slower,
    /// They overlap.
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

    fn say(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Noise => "",
        }
    }
}

/// The table.
///
/// # Errors
/// That there is nothing to compare.
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
            rate.say().into(),
            old.cpu_ns_per_op.zip(new.cpu_ns_per_op).map_or_else(String::new, |(old, new)| percent(old, new)),
            ratio.map_or_else(String::new, |(old, new)| format!("{:.2} -> {:.2}", old.median, new.median)),
            verdict.say().into(),
        ]);
    }
    for (_, new) in after.iter().enumerate().filter(|(at, _)| partner(after, *at, before).is_none()) {
        let _ = writeln!(only, "only in the second: {}", name(new));
    }
    let compared = rows.len();
    if compared == 0 {
        return Err(Failure::Refused(format!("nothing was measured in both\n{}", only.trim_end()).trim_end().into()));
    }
    let heading = ["workload", "target", "threads", "ops/s A", "ops/s B", "", "", "CPU/op", "ratio to first", ""];
    let mut text = aligned(&heading, rows.into_iter());
    let _ = writeln!(
        text,
        "\n{changed} of {compared} changed beyond the noise: all repeats of one run above all repeats of the other.\n\
         The ratio to the first target of its own run does not change when the machine is slower altogether."
    );
    if too_few > 0 {
        let has = if too_few == 1 { "has" } else { "have" };
        let _ = writeln!(
            text,
            "{too_few} of {compared} {has} fewer than {FEWEST} repeats: they may lie apart by chance, and nothing is said of them."
        );
    }
    if before.first().zip(after.first()).is_some_and(|(old, new)| old.machine != new.machine) {
        let _ = writeln!(text, "The machines differ: {:?} and {:?}.", before[0].machine, after[0].machine);
    }
    Ok(text + &only)
}

/// In the other report. The n-th of equal rows is the n-th there: a target may have been named twice.
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
mod tests {
    use super::*;
    use crate::report::json::Machine;

    fn record(target: &str, rates: [f64; 3], ratios: [f64; 3]) -> Record {
        let summary = |[min, median, max]: [f64; 3]| Some(Summary { min, median, max });
        Record {
            version: 1,
            workload: "crunl".into(),
            target: target.into(),
            threads: 1,
            mode: "threads".into(),
            repeats: Some(5),
            ops: 1,
            seconds: 1.0,
            ops_per_s: summary(rates),
            cpu_ns_per_op: Some(1e9 / rates[1]),
            user_ns_per_op: None,
            system_ns_per_op: None,
            loop_ns_per_op: None,
            ratio_to_first: summary(ratios),
            ctx_switches_per_s: None,
            helper_ops_per_s: None,
            helper_asked_per_s: None,
            alone_ops_per_s: None,
            kept_of_alone: None,
            lock_waits_per_op: None,
            locks_per_op: None,
            p50_ns: None,
            p99_ns: None,
            peak_memory_bytes: None,
            not_measured: None,
            seed: 1,
            load_before: None,
            machine: Machine { kernel: "k".into(), cpu: "c".into(), cores: 2 },
        }
    }

    #[test]
    fn only_what_lies_apart_has_changed() {
        let one = [1.0; 3];
        let before = [record("a", [90.0, 100.0, 110.0], one), record("b", [90.0, 100.0, 110.0], one)];
        let after = [record("a", [109.0, 120.0, 130.0], one), record("b", [40.0, 50.0, 60.0], [0.4, 0.5, 0.6])];
        let text = render(&before, &after).expect("a table");
        assert!(text.contains("1 of 2 changed"), "{text}");
        let line = |target: &str| text.lines().find(|line| line.contains(&format!(" {target} "))).expect("its row");
        assert!(!line("a").contains("faster") && line("a").contains("+20.0 %"), "{text}");
        assert_eq!(line("b").matches("SLOWER").count(), 2, "{text}");
        assert!(line("b").contains("+100.0 %"), "CPU time: {text}");
    }

    #[test]
    fn a_machine_that_is_slower_altogether_shows() {
        let ratio = [2.0, 2.0, 2.0];
        let text = render(&[record("a", [90.0, 100.0, 110.0], ratio)], &[record("a", [40.0, 50.0, 60.0], ratio)]);
        let text = text.expect("a table");
        assert_eq!(text.matches("SLOWER").count(), 1, "{text}");
    }

    #[test]
    fn a_target_that_was_named_twice_is_compared_in_the_order_of_naming() {
        let rate = [90.0, 100.0, 110.0];
        let twice = [record("a", rate, [1.0; 3]), record("a", rate, [0.8, 0.85, 0.9])];
        let text = render(&twice, &twice).expect("a table");
        assert!(text.contains("0 of 2 changed") && text.contains("0.85 -> 0.85"), "{text}");
        let text = render(&twice, &twice[..1]).expect("a table");
        assert!(text.contains("0 of 1 changed") && text.contains("only in the first: crunl a"), "{text}");
        let text = render(&twice[..1], &twice).expect("a table");
        assert!(text.contains("0 of 1 changed") && text.contains("only in the second: crunl a"), "{text}");
    }

    #[test]
    fn few_repeats_lie_apart_by_chance() {
        let [before, after] = [record("a", [100.0; 3], [1.0; 3]), record("a", [50.0; 3], [0.5; 3])];
        for (repeats, changed) in [(Some(4), true), (None, true), (Some(3), false), (Some(1), false)] {
            let few = Record { repeats, ..after.clone() };
            for (a, b) in [(&before, &few), (&few, &before)] {
                let text = render(std::slice::from_ref(a), std::slice::from_ref(b)).expect("a table");
                assert_eq!(text.contains("1 of 1 changed"), changed, "{repeats:?}: {text}");
                assert_ne!(text.contains("1 of 1 has fewer than 4 repeats"), changed, "{repeats:?}: {text}");
            }
        }
    }

    #[test]
    fn what_was_measured_in_one_only_is_named_with_the_reason() {
        let [a, b] = ["a", "b"].map(|target| record(target, [1.0; 3], [1.0; 3]));
        let lacking = Record { ops_per_s: None, not_measured: Some("lacks it".into()), ..b.clone() };
        let (all, some) = ([a.clone(), b], [a, lacking]);
        for (before, after, says) in [
            (&all, &some, "only in the first: crunl b, 1 threads (in the second: lacks it)"),
            (&some, &all, "only in the second: crunl b, 1 threads (in the first: lacks it)"),
        ] {
            let text = render(before, after).expect("a table");
            assert!(text.contains("0 of 1 changed") && text.contains(says), "{text}");
        }
        let text = render(&some, &some).expect("a table");
        assert!(!text.contains("only in"), "{text}");
    }

    #[test]
    fn what_is_in_one_only_is_named() {
        let one = [1.0; 3];
        let (a, b, c) = (record("a", one, one), record("b", one, one), record("c", one, one));
        let text = render(&[a.clone(), b.clone()], &[b.clone(), c]).expect("a table");
        assert!(text.contains("only in the first: crunl a") && text.contains("only in the second: crunl c"), "{text}");
        assert!(text.contains("0 of 1"), "{text}");
        let failure = render(&[a], &[b]).expect_err("nothing in common");
        assert!(matches!(&failure, Failure::Refused(why) if why.contains("only in the second: crunl b")), "{failure}");
    }
}
