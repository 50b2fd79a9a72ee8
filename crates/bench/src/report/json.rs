//! The report for programs. The format is stable: fields may be added. If a field were renamed,
//! removed or given another meaning, `version` would increase.
//!
//! An array with one object for each workload, target and number of threads:
//!
//! ```json
//! [{
//!   "version": 1,
//!   "workload": "crunl",
//!   "target": "dir=/dev/shm/x",
//!   "threads": 2,
//!   "mode": "threads",
//!   "repeats": 3,
//!   "ops": 6000,
//!   "seconds": 3.0,
//!   "ops_per_s": { "min": 1000.0, "median": 2000.0, "max": 3000.0 },
//!   "cpu_ns_per_op": 700.0,
//!   "user_ns_per_op": 100.0,
//!   "system_ns_per_op": 600.0,
//!   "loop_ns_per_op": 2.5,
//!   "ratio_to_first": { "min": 1.0, "median": 1.0, "max": 1.0 },
//!   "ctx_switches_per_s": 12.0,
//!   "helper_ops_per_s": null,
//!   "helper_asked_per_s": null,
//!   "alone_ops_per_s": null,
//!   "kept_of_alone": null,
//!   "lock_waits_per_op": null,
//!   "locks_per_op": null,
//!   "p50_ns": null,
//!   "p99_ns": null,
//!   "peak_memory_bytes": 9000000,
//!   "not_measured": null,
//!   "seed": 42,
//!   "load_before": 0.1,
//!   "machine": { "kernel": "Linux 6.12.0", "cpu": "Some CPU", "cores": 2 }
//! }]
//! ```
//!
//! docs/bench.md describes each field.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{Figures, LocksPerOp, Row, Run};
use crate::base::{
    failure::{During, Failure},
    locks::CLASSES,
    measure::Summary,
    output::Output,
};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) threads: usize,
    pub(crate) mode: String,
    pub(crate) repeats: Option<usize>,
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: Option<Summary>,
    pub(crate) cpu_ns_per_op: Option<f64>,
    pub(crate) user_ns_per_op: Option<f64>,
    pub(crate) system_ns_per_op: Option<f64>,
    pub(crate) loop_ns_per_op: Option<f64>,
    pub(crate) ratio_to_first: Option<Summary>,
    pub(crate) ctx_switches_per_s: Option<f64>,
    pub(crate) helper_ops_per_s: Option<Summary>,
    pub(crate) helper_asked_per_s: Option<u64>,
    pub(crate) alone_ops_per_s: Option<Summary>,
    pub(crate) kept_of_alone: Option<Summary>,
    pub(crate) lock_waits_per_op: Option<f64>,
    pub(crate) locks_per_op: Option<BTreeMap<String, PerOp>>,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) not_measured: Option<String>,
    pub(crate) seed: u64,
    pub(crate) load_before: Option<f64>,
    pub(crate) machine: Machine,
}

/// Locks of one class in one operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerOp {
    pub(crate) acquired: f64,
    pub(crate) waited: f64,
}

fn by_class(locks: LocksPerOp) -> BTreeMap<String, PerOp> {
    let counts = locks.acquired.into_iter().zip(locks.waited).map(|(acquired, waited)| PerOp { acquired, waited });
    CLASSES.map(String::from).into_iter().zip(counts).collect()
}

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            cpu: model.map_or_else(|| text(uname.machine()), |(_, model)| model.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl Record {
    fn new(row: &Row, run: Run, machine: &Machine) -> Self {
        let figures = row.figures.as_ref().ok();
        let number = |read: fn(&Figures) -> f64| figures.map(read);
        let beside = figures.and_then(|figures| figures.beside);
        Self {
            version: VERSION,
            workload: row.workload.clone(),
            target: row.target.clone(),
            threads: row.threads,
            mode: if row.processes { "processes" } else { "threads" }.into(),
            repeats: figures.map(|figures| figures.repeats),
            ops: figures.map_or(0, |figures| figures.ops),
            seconds: figures.map_or(0.0, |figures| figures.seconds),
            ops_per_s: figures.map(|figures| figures.ops_per_s),
            cpu_ns_per_op: number(|figures| figures.cpu_ns_per_op),
            user_ns_per_op: number(|figures| figures.user_ns_per_op),
            system_ns_per_op: number(|figures| figures.system_ns_per_op),
            loop_ns_per_op: row.loop_ns_per_op,
            ratio_to_first: figures.and_then(|figures| figures.ratio_to_first),
            ctx_switches_per_s: number(|figures| figures.ctx_switches_per_s),
            helper_ops_per_s: beside.map(|beside| beside.helper_ops_per_s),
            helper_asked_per_s: row.helpers.and_then(|helpers| helpers.asked_per_s),
            alone_ops_per_s: beside.map(|beside| beside.alone_ops_per_s),
            kept_of_alone: beside.map(|beside| beside.kept_of_alone),
            lock_waits_per_op: figures.and_then(|figures| Some(figures.locks?.waited.iter().sum())),
            locks_per_op: figures.and_then(|figures| Some(by_class(figures.locks?))),
            p50_ns: figures.and_then(|figures| figures.p50_ns),
            p99_ns: figures.and_then(|figures| figures.p99_ns),
            peak_memory_bytes: figures.map(|figures| figures.peak_bytes),
            not_measured: row.figures.as_ref().err().cloned(),
            seed: run.seed,
            load_before: run.load,
            machine: machine.clone(),
        }
    }
}

/// Writes the report to a file.
///
/// # Errors
/// The file system's error.
pub(crate) fn write(rows: &[Row], run: Run, to: &Output) -> Result<(), Failure> {
    to.write(render(rows, run).during(|| "writing figures".into())?)
}

/// Reads a report.
///
/// # Errors
/// It cannot be read, or is not a report.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, Failure> {
    let text = fs::read_to_string(path).during(|| format!("reading {}", path.display()))?;
    let is_not = |why: &dyn fmt::Display| {
        Failure::Refused(format!(
            "{} is not a report of version {VERSION} (as `pando bench run --json` writes it): {why}",
            path.display()
        ))
    };
    let records: Vec<Record> = serde_json::from_str(&text).map_err(|error| is_not(&error))?;
    match records.iter().find(|record| record.version != VERSION) {
        Some(other) => Err(is_not(&format_args!("it is of version {}", other.version))),
        None => Ok(records),
    }
}

fn render(rows: &[Row], run: Run) -> io::Result<String> {
    let machine = Machine::here();
    let records: Vec<Record> = rows.iter().map(|row| Record::new(row, run, &machine)).collect();
    Ok(serde_json::to_string_pretty(&records)? + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report;

    const RUN: Run = Run { seed: 42, load: Some(0.25) };

    #[test]
    fn report_has_exactly_the_documented_fields() {
        let rows = report::rows(&report::tests::results());
        let value: Value = serde_json::from_str(&render(&rows, RUN).expect("it renders")).expect("it is JSON");
        assert_eq!(value.as_array().expect("an array").len(), 6);
        let machine = serde_json::to_value(Machine::here()).expect("it is JSON");
        assert_eq!(
            value[4],
            json!({
                "version": 1,
                "workload": "crunl",
                "target": "map:b",
                "threads": 2,
                "mode": "threads",
                "repeats": 3,
                "ops": 12_000_000,
                "seconds": 3.0,
                "ops_per_s": { "min": 4e6, "median": 4e6, "max": 4e6 },
                "cpu_ns_per_op": 250.0,
                "user_ns_per_op": 187.5,
                "system_ns_per_op": 62.5,
                "loop_ns_per_op": 2.0,
                "ratio_to_first": { "min": 1.0, "median": 4.0 / 3.0, "max": 2.0 },
                "ctx_switches_per_s": 4.0,
                "helper_ops_per_s": null,
                "helper_asked_per_s": 1000,
                "alone_ops_per_s": null,
                "kept_of_alone": null,
                "lock_waits_per_op": null,
                "locks_per_op": null,
                "p50_ns": null,
                "p99_ns": null,
                "peak_memory_bytes": 4_000_000,
                "not_measured": null,
                "seed": 42,
                "load_before": 0.25,
                "machine": machine,
            })
        );
        assert_eq!(value[0]["lock_waits_per_op"], json!(0.25));
        assert_eq!(value[0]["locks_per_op"]["names"], json!({ "acquired": 1.0, "waited": 0.25 }));
        assert_eq!(value[0]["kept_of_alone"], json!({ "min": 0.5, "median": 0.5, "max": 0.5 }));
        assert_eq!(value[0]["helper_ops_per_s"]["median"], json!(500.0));
        assert_eq!(value[5]["not_measured"], json!("the target does not have this"));
        assert_eq!((&value[5]["ops"], &value[5]["ops_per_s"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn documentation_page_has_all_fields() {
        let page = include_str!("../../../../docs/bench.md");
        let rows = report::rows(&report::tests::results());
        let value: Value = serde_json::from_str(&render(&rows, RUN).expect("it renders")).expect("it is JSON");
        for field in value[0].as_object().expect("an object").keys() {
            assert!(page.contains(&format!("`{field}`")), "docs/bench.md has no {field}");
        }
    }

    #[test]
    fn documented_example_parses() {
        let text = include_str!("json.rs");
        let lines =
            text.lines().skip_while(|line| !line.starts_with("//! [{")).map_while(|line| line.strip_prefix("//! "));
        let example: String = lines.take_while(|line| !line.starts_with("```")).collect();
        let records: Vec<Record> = serde_json::from_str(&example).expect("a report");
        assert_eq!((records[0].version, records[0].machine.cores), (VERSION, 2));
    }

    #[test]
    fn written_report_can_be_read() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("x.json");
        let rows = report::rows(&report::tests::results());
        write(&rows, RUN, &Output::open(&path).expect("it opens")).expect("it is written");
        let records = read(&path).expect("it is read");
        let machine = Machine::here();
        assert!(records.iter().zip(&rows).all(|(record, row)| *record == Record::new(row, RUN, &machine)));
        let newer = render(&rows, RUN).expect("it renders").replace("\"version\": 1", "\"version\": 2");
        fs::write(&path, newer).expect("writing");
        assert!(matches!(read(&path), Err(Failure::Refused(why)) if why.contains("version 2")));
        fs::write(&path, "[1]").expect("writing");
        assert!(matches!(read(&path), Err(Failure::Refused(why)) if why.contains("x.json")));
    }
}
