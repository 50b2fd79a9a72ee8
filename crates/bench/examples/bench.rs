//! `pando bench` without the rest of pando.

use std::process::ExitCode;

use clap::Parser;
use pando_bench::cli::{BenchArgs, SIGNALS, run};

/// Metadata workloads, side by side.
#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    run(Bench::parse().bench, SIGNALS)
}
