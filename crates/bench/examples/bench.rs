//! `pando bench` without the rest of pando.

use std::process::ExitCode;

use clap::Parser;

/// Metadata workloads, side by side.
#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    bench: pando_bench::cli::BenchArgs,
}

fn main() -> ExitCode {
    pando_bench::cli::run(Bench::parse().bench)
}
