//! The report for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Row;
use crate::base::{locks::CLASSES, measure::Summary};

/// The table, and the notes below it.
pub(crate) fn render(rows: &[Row]) -> String {
    let latency = rows.iter().any(|row| row.figures.as_ref().is_ok_and(|figures| figures.p50_ns.is_some()));
    let workers = if rows.iter().any(|row| row.processes) { "processes" } else { "threads" };
    let mut heading =
        vec!["workload", "target", workers, "ops/s min", "median", "max", "CPU ns/op", "system", "switches/s"];
    if latency {
        heading.extend(["p50 ns", "p99 ns"]);
    }
    heading.extend(["peak MiB", "ratio to first", "scaling", ""]);
    let mut text = aligned(&heading, rows.iter().map(|row| cells(row, latency)));
    text.push_str(
        "\nratio, scaling: median (min-max) of the ratios of single repeats; scaling: over the fewest threads.\n\
         CPU ns/op: user and system time of the workers; system: the kernel's part.\n",
    );
    loops(&mut text, rows);
    text.push_str(&super::beside::kept_rates(rows));
    locks(&mut text, rows);
    if latency {
        text.push_str("p50, p99: percentiles of single steps; each clock reading itself takes 20 to 50 ns.\n");
    }
    text.push_str(&super::before::single_thread_cost(rows));
    if rows.iter().any(|row| row.target.starts_with("map:")) {
        text.push_str("limit: only keys in a concurrent map; no directories, inodes, attributes or permissions.\n");
    }
    if rows.iter().any(|row| row.figures.as_ref().is_ok_and(|figures| figures.ops_per_s.is_noisy())) {
        text.push_str(
            "spread: maximum minus minimum of the repeats, as a part of their median. It is large here: compare CPU ns/op \
             instead, or run again with a larger --repeat.\n",
        );
    }
    text
}

/// The locks that the library counted, class by class.
fn locks(text: &mut String, rows: &[Row]) {
    for row in rows {
        let Some(locks) = row.figures.as_ref().ok().and_then(|figures| figures.locks) else { continue };
        let classes = CLASSES.iter().zip(locks.acquired.iter().zip(locks.waited));
        let taken = classes.filter(|(_, (acquired, _))| **acquired > 0.0);
        let said: Vec<String> =
            taken.map(|(class, (acquired, waited))| format!("{class} {acquired:.3} ({waited:.6} waited)")).collect();
        let said = if said.is_empty() { "none".to_owned() } else { said.join(", ") };
        let _ = writeln!(text, "locks of pandofs per op, {} {} {}: {said}", row.workload, row.target, row.threads);
    }
}

/// The CPU time of the loops that make the calls.
fn loops(text: &mut String, rows: &[Row]) {
    let mut said = "";
    for row in rows {
        if let Some(ns) = row.loop_ns_per_op.filter(|_| row.workload != said) {
            said = &row.workload;
            let _ = writeln!(text, "the loop of {said} itself (names, random numbers): {ns:.1} ns/op, not subtracted.");
        }
    }
}

/// Rows below a heading: the first two columns left-aligned, the others right-aligned.
pub(crate) fn aligned(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cell = |(column, text): (usize, String)| {
        Cell::new(text).set_alignment(if column < 2 { CellAlignment::Left } else { CellAlignment::Right })
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heading.iter().map(ToString::to_string).enumerate().map(cell));
    for row in rows {
        table.add_row(row.into_iter().enumerate().map(cell));
    }
    table.trim_fmt() + "\n"
}

fn cells(row: &Row, latency: bool) -> Vec<String> {
    let limit = if row.target.starts_with("map:") { " (limit)" } else { "" };
    let mut cells = vec![row.workload.clone(), format!("{}{limit}", row.target), row.threads.to_string()];
    let figures = match &row.figures {
        Ok(figures) => figures,
        Err(why) => {
            cells.extend(["n/a".into(), "n/a".into(), "n/a".into()]);
            cells.extend(vec![String::new(); if latency { 8 } else { 6 }]);
            cells.push(why.clone());
            return cells;
        }
    };
    let count = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
    cells.extend([figures.ops_per_s.min, figures.ops_per_s.median, figures.ops_per_s.max].map(short));
    cells.extend([figures.cpu_ns_per_op, figures.system_ns_per_op].map(|ns| format!("{ns:.1}")));
    cells.push(short(figures.ctx_switches_per_s));
    if latency {
        cells.extend([figures.p50_ns, figures.p99_ns].map(count));
    }
    cells.push((figures.peak_bytes >> 20).to_string());
    cells.extend([figures.ratio_to_first, figures.scaling].map(|ratio| ratio.map_or_else(String::new, times)));
    let noise = figures.ops_per_s.is_noisy();
    cells.push(if noise { format!("spread {:.0} %", figures.ops_per_s.spread() * 100.0) } else { String::new() });
    cells
}

fn times(ratio: Summary) -> String {
    format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max)
}

/// Four digits and a unit.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match value {
        v if unit.is_empty() || v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 45.2, 1234.0, 12_340.0, 123_400.0, 1.5e6, 2e9].map(short).to_vec();
        assert_eq!(shown, ["0.0", "45.2", "1.234k", "12.34k", "123.4k", "1.500M", "2.000G"]);
    }

    #[test]
    fn noise_limits_and_missing_figures_are_explained() {
        let rows = report::rows(&report::tests::results());
        let text = render(&rows);
        assert!(text.contains("spread 150 %") && text.contains("run again"), "{text}");
        assert!(text.contains("map:b (limit)"), "{text}");
        assert!(text.contains("1.50 (1.00-2.00)"), "{text}");
        assert!(text.contains("2.0 ns/op"), "{text}");
        let missing = text.lines().find(|line| line.contains(" c ")).expect("its row");
        assert!(missing.contains("n/a") && missing.contains("does not have this"), "{text}");
        assert!(text.contains("crunl a 1: names 1.000 (0.250000 waited)"), "{text}");
        let quiet = render(&rows[4..5]);
        assert!(!quiet.contains("spread"), "{quiet}");
    }

    #[test]
    fn columns_are_aligned() {
        for latency in [None, Some(17)] {
            let mut rows = report::rows(&report::tests::results());
            for figures in rows.iter_mut().flat_map(|row| &mut row.figures) {
                (figures.p50_ns, figures.p99_ns) = (latency, latency);
            }
            let text = render(&rows);
            assert_eq!(text.contains("p99 ns"), latency.is_some());
            let lines: Vec<&str> = text.lines().take(7).collect();
            let column = lines[0].find("target").expect("a heading");
            assert!(lines[1..].iter().all(|line| line[column..].starts_with(['a', 'm', 'c'])), "{text}");
            let last = lines[0].find("ratio to first").expect("a heading") + "ratio to first".len();
            assert!(lines[1].get(..last).is_some_and(|line| line.ends_with(')')), "{text}");
        }
    }
}
