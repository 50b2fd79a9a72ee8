//! The report for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Row;
use crate::measure::Summary;

/// The table and what must be said below it.
pub(crate) fn render(rows: &[Row], loop_ns_per_op: f64) -> String {
    let mut text = aligned(
        &[
            "workload",
            "target",
            "threads",
            "ops/s min",
            "median",
            "max",
            "CPU ns/op",
            "switches/s",
            "ratio to first",
            "scaling",
            "",
        ],
        rows.iter().map(cells),
    );
    let _ = writeln!(
        text,
        "\nratio and scaling: median (min-max), formed repeat by repeat; scaling: over the fewest threads.\n\
         CPU ns/op: user and system time of this process, in which the loop itself has {loop_ns_per_op:.1} ns (not subtracted)."
    );
    if rows.iter().any(|row| row.target.starts_with("map:")) {
        text.push_str("limit: keys alone in a bare map; no directories, inodes, attributes or permissions.\n");
    }
    if rows.iter().any(|row| row.ops_per_s.is_noisy()) {
        text.push_str(
            "NOISY: the repeats differ by more than 20 % of the median; something else used the machine, or the target \
             is erratic. Trust CPU ns/op, or measure again.\n",
        );
    }
    text
}

/// Rows below a heading: the first two columns to the left, numbers to the right.
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

fn cells(row: &Row) -> Vec<String> {
    let limit = if row.target.starts_with("map:") { " (limit)" } else { "" };
    let noise = if row.ops_per_s.is_noisy() {
        format!("NOISY: {:.0} %", row.ops_per_s.spread() * 100.0)
    } else {
        String::new()
    };
    vec![
        row.workload.into(),
        format!("{}{limit}", row.target),
        row.threads.to_string(),
        short(row.ops_per_s.min),
        short(row.ops_per_s.median),
        short(row.ops_per_s.max),
        format!("{:.1}", row.cpu_ns_per_op),
        short(row.ctx_switches_per_s),
        times(row.ratio_to_first),
        row.scaling.map_or_else(String::new, times),
        noise,
    ]
}

fn times(ratio: Summary) -> String {
    format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max)
}

/// Four digits and a unit.
fn short(value: f64) -> String {
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
    fn noise_and_limits_are_said() {
        let rows = report::rows(&report::tests::results());
        let text = render(&rows, 2.0);
        assert!(text.contains("NOISY: 150 %"), "{text}");
        assert!(text.contains("map:b (limit)"), "{text}");
        assert!(text.contains("1.50 (1.00-2.00)"), "{text}");
        let calm = render(&rows[3..], 2.0);
        assert!(!calm.contains("NOISY"), "{calm}");
    }

    #[test]
    fn columns_are_aligned() {
        let text = render(&report::rows(&report::tests::results()), 2.0);
        let lines: Vec<&str> = text.lines().take(5).collect();
        let column = lines[0].find("target").expect("a heading");
        assert!(lines[1..].iter().all(|line| line[column..].starts_with(['a', 'm'])), "{text}");
    }
}
