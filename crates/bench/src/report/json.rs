//! The report for programs. Stable: fields may be added, none is renamed, removed or given another meaning.
//!
//! An array with one object for each target and number of threads:
//!
//! ```json
//! [{
//!   "workload": "crunl",
//!   "target": "dir=/dev/shm/x",
//!   "threads": 2,
//!   "ops_per_s": { "min": 1.0, "median": 2.0, "max": 3.0 },
//!   "cpu_ns_per_op": 700.0,
//!   "ctx_switches_per_s": 12.0,
//!   "ratio_to_first": { "min": 1.0, "median": 1.0, "max": 1.0 }
//! }]
//! ```
//!
//! `ops_per_s`: of all threads together, over the repeats. `cpu_ns_per_op`: user and system time of the process, in
//! nanoseconds, median of the repeats. `ctx_switches_per_s`: voluntary ones, median of the repeats.
//! `ratio_to_first`: operations per second over those of the first target with as many threads, in the same repeat.

use std::{fs, io, path::Path};

use serde::Serialize;

use super::Row;
use crate::{
    failure::{Failure, While},
    measure::Summary,
};

#[derive(Serialize)]
struct Record<'a> {
    workload: &'a str,
    target: &'a str,
    threads: usize,
    ops_per_s: Summary,
    cpu_ns_per_op: f64,
    ctx_switches_per_s: f64,
    ratio_to_first: Summary,
}

impl<'a> From<&'a Row> for Record<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            workload: row.workload,
            target: &row.target,
            threads: row.threads,
            ops_per_s: row.ops_per_s,
            cpu_ns_per_op: row.cpu_ns_per_op,
            ctx_switches_per_s: row.ctx_switches_per_s,
            ratio_to_first: row.ratio_to_first,
        }
    }
}

/// Writes the report to a file.
///
/// # Errors
/// What the file system answers.
pub(crate) fn write(rows: &[Row], path: &Path) -> Result<(), Failure> {
    render(rows).and_then(|text| fs::write(path, text)).during(|| format!("writing {}", path.display()))
}

fn render(rows: &[Row]) -> io::Result<String> {
    let records: Vec<Record> = rows.iter().map(Record::from).collect();
    Ok(serde_json::to_string_pretty(&records)? + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report;

    #[test]
    fn exactly_the_documented_fields() {
        let rows = report::rows(&report::tests::results());
        let value: Value = serde_json::from_str(&render(&rows).expect("it renders")).expect("it is JSON");
        assert_eq!(value.as_array().expect("an array").len(), 4);
        assert_eq!(
            value[3],
            json!({
                "workload": "crunl",
                "target": "map:b",
                "threads": 2,
                "ops_per_s": { "min": 4e6, "median": 4e6, "max": 4e6 },
                "cpu_ns_per_op": 250.0,
                "ctx_switches_per_s": 4.0,
                "ratio_to_first": { "min": 1.0, "median": 4.0 / 3.0, "max": 2.0 },
            })
        );
    }

    #[test]
    fn an_error_names_the_file() {
        let failure = write(&[], Path::new("/nowhere/x.json")).expect_err("no such directory");
        assert!(failure.to_string().contains("/nowhere/x.json"));
    }
}
