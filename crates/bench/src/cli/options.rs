//! The options of a measurement.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use pando_console::args::{number, seconds};

/// The measurement options that `run` and its short forms share.
#[derive(Debug, Args)]
pub(super) struct How {
    /// Numbers of threads; in each repeat every target is measured with each of them
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2",
          value_parser = number(1_usize..=1024), allow_negative_numbers = true)]
    pub(super) threads: Vec<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds,
          allow_negative_numbers = true)]
    pub(super) seconds: Duration,
    /// Time that each measurement runs before it counts
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds,
          allow_negative_numbers = true)]
    pub(super) warmup: Duration,
    /// Measurements of each target with each number of threads; the targets alternate
    #[arg(long, value_name = "R", default_value = "5",
          value_parser = number(1_u32..=1000), allow_negative_numbers = true)]
    pub(super) repeat: u32,
    /// Seed of names and orders, to repeat a run exactly [default: a new one for each run]
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX),
          allow_negative_numbers = true)]
    pub(super) seed: Option<u64>,
    /// Measure the time of each step: percentiles 50 and 99
    ///
    /// The clock is read once in each step, which slows fast targets down.
    #[arg(long)]
    pub(super) latency: bool,
    /// Use processes instead of threads, as the measurements of 2005 and 2009 did (dir= only)
    #[arg(long)]
    pub(super) processes: bool,
    /// Also write the results to this file, as JSON
    ///
    /// The file holds an array with one object for each workload, target and number of threads.
    /// docs/bench.md describes it. Its version is 1; later releases may add fields.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}
