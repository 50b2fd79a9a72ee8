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
fn only_rates_that_do_not_overlap_have_changed() {
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
fn slower_machine_changes_rates_only() {
    let ratio = [2.0, 2.0, 2.0];
    let text = render(&[record("a", [90.0, 100.0, 110.0], ratio)], &[record("a", [40.0, 50.0, 60.0], ratio)]);
    let text = text.expect("a table");
    assert_eq!(text.matches("SLOWER").count(), 1, "{text}");
}

#[test]
fn target_given_twice_is_compared_in_order() {
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
fn few_repeats_report_no_change() {
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
fn measurement_missing_in_one_report_is_named_with_the_reason() {
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
fn row_missing_in_one_report_is_named() {
    let one = [1.0; 3];
    let (a, b, c) = (record("a", one, one), record("b", one, one), record("c", one, one));
    let text = render(&[a.clone(), b.clone()], &[b.clone(), c]).expect("a table");
    assert!(text.contains("only in the first: crunl a") && text.contains("only in the second: crunl c"), "{text}");
    assert!(text.contains("0 of 1"), "{text}");
    let failure = render(&[a], &[b]).expect_err("nothing in common");
    assert!(matches!(&failure, Failure::Refused(why) if why.contains("only in the second: crunl b")), "{failure}");
}
