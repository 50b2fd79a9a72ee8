//! The options of `pando bench report`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use pando_console::args::{number, seconds};

/// The subcommand's name.
pub(super) const NAME: &str = "report";

/// Options of `pando bench report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory for the page, its plots and its figures; created if missing
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    /// Take about four minutes instead of forty
    #[arg(long)]
    pub(super) quick: bool,
    /// Directory of the kernel file system to compare with; it must be empty or not exist
    ///
    /// The default is on tmpfs, so that an in-memory file system is compared with another one.
    #[arg(long, value_name = "PATH", default_value = "/dev/shm/pando-bench-report")]
    pub(super) dir: PathBuf,
    /// Directory on a disk, for trees over a directory and for cold caches; the directories kernel,
    /// host and before are made in it
    #[arg(long, value_name = "PATH", default_value = "/var/tmp/pando-bench-report")]
    pub(super) disk: PathBuf,
    /// Numbers of threads [default: powers of two up to the number of cores]
    #[arg(long, value_name = "N,..", value_delimiter = ',',
          value_parser = number(1_u16..=1024), allow_negative_numbers = true)]
    pub(super) threads: Vec<u16>,
    /// Length of one measurement [default: 2; with --quick 0.4]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub(super) seconds: Option<Duration>,
    /// Measurements of each target with each number of threads [default: 7; with --quick 3]
    #[arg(long, value_name = "R", value_parser = number(1_u32..=1000),
          allow_negative_numbers = true)]
    pub(super) repeat: Option<u32>,
    /// Number of files, and then of directories, whose bytes are counted [default: 1000000; with
    /// --quick 200000]
    #[arg(long, value_name = "N", value_parser = number(1000_u64..=100_000_000),
          allow_negative_numbers = true)]
    pub(super) count: Option<u64>,
    /// Measure nothing: draw the page again from the figures in --out
    #[arg(long, conflicts_with_all = ["quick", "threads", "seconds", "repeat", "count"])]
    pub(super) redraw: bool,
}
