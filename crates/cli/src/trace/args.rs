//! The arguments of `pando trace`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use pando_fuse::trace::PathFilter;
use pando_vfs::trace::TraceOp;

const HELP: &str = "\
Each line is one operation of the server: when it began (seconds since the trace began), how long it took, its name, its \
path within the tree, and the error if it failed. A path is that at the moment of the operation, even while directories are \
renamed. Operations that the kernel answers from its caches do not reach the server and are not shown (see --attr-timeout of \
pando mount). Operations that come faster than they can be shown are dropped rather than delayed. Their number is reported \
on stderr, or with --json in a line {\"lost\": N}.

Only root and the user who mounted the tree may trace it, one at a time.

--json prints one object per line, version 1: {start_ns, latency_ns, thread, op, errno, path, to}. path_base64 and to_base64 \
replace path and to if they are not UTF-8. The first line is {pando_trace: 1, pid: PID OF THE SERVER}. Later versions may add \
keys.

Examples:
  pando trace                               the only mounted tree
  pando trace /mnt/grove --errors           operations that fail
  pando trace /mnt/grove --min-latency 1ms  slow operations
  pando trace /mnt/grove --op create,unlink --path '/build/**'

Exit codes: 0 the tree was unmounted, or --count reached, 1 it failed, 2 the command line is wrong.";

/// Options of `pando trace`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct TraceArgs {
    /// The directory where the tree is mounted [default: the only mounted tree]
    #[arg(value_name = "MOUNT")]
    pub mount: Option<PathBuf>,

    /// Show only these operations, as in create,unlink,rename
    #[arg(long = "op", value_name = "OP,..", value_delimiter = ',')]
    pub ops: Vec<TraceOp>,

    /// Show only this path and all below it, or a pattern: * and ? within a name, ** across names
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    pub path: Option<String>,

    /// Show only operations that take at least this long, as in 50us or 1ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub min_latency: Option<Duration>,

    /// Show only operations that fail
    #[arg(long)]
    pub errors: bool,

    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,

    /// End after this many operations
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub count: Option<u64>,
}

fn parse_path(text: &str) -> Result<String, String> {
    PathFilter::parse(text).map(|_| text.to_owned())
}

fn parse_count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "a number of operations is at least 1".into())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("a time is a number with a unit: 500ns, 50us, 1ms or 2s".into()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{number:?} is not a number of {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [("500ns", 500), ("50us", 50_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "5", "ms", "-1ms", "1h", "nans", "1e400s", "1 ms"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
