//! The texts below the options in the long help.

use std::sync::LazyLock;

use crate::{target::TARGETS, workload::describe};

/// Below the list of subcommands.
pub(super) const OTHERS: &str = "\
Every other workload is a command as well, for example `pando bench dpath mem`. `pando bench run --help` lists them.";

/// Of `run`.
pub(super) static RUN_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}
{TARGETS}

In each repeat, every target is measured once with each number of threads. A machine whose speed drifts \
therefore drifts for all targets, and ratios are computed within one repeat. Rates depend on the other load \
of the machine. CPU ns/op depends on it far less: it is the user and system time of the workers, without that \
of a FUSE server. If a target does not support an operation, its figures are n/a.

Examples:
  pando bench run crunl rndrename --target mem --target dir=/dev/shm/bench
      in process, and the kernel's tmpfs
  pando bench run stat --target mem --target mem
      the noise: how far two equal targets differ on this machine
  pando bench run statwalk:dirs=100 --target dir=/mnt/ext4/new --threads 1,2,4
      with settings of the workload
  pando bench crunl mem dir=/dev/shm/bench
      the short form of the first example, for one workload

{EXIT_CODES}",
        describe()
    )
});

/// Of the short forms of `run`.
pub(super) static SHORT_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Short for `pando bench run` with this one workload. `pando bench run --help` lists all workloads.\n\n{TARGETS}\n\n{EXIT_CODES}"
    )
});

/// Of `footprint`.
pub(super) static FOOTPRINT_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Example:
  pando bench footprint mem dir=/dev/shm/bench

{EXIT_CODES}"
    )
});

/// Of `seeds`.
pub(super) static SEEDS_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TARGETS}

Example:
  pando bench seeds mem dir=/dev/shm/bench dir=/mnt/ext4/bench

{EXIT_CODES}"
    )
});

/// Of `report`.
pub(super) const REPORT_HELP: &str = "\
The conflict matrix needs valgrind (Debian: apt install valgrind) and two cores. Without them, the page says \
so in its place. With --quick the matrix is traced under one hash key, otherwise under three.

Example:
  pando bench report --quick --out report    takes four minutes; then open report/index.html

Exit codes: 0 measured and drawn, 1 an operation failed, 2 the request cannot be met, 130 interrupted.";

/// Of `compare`.
pub(super) const COMPARE_HELP: &str = "\
Exit codes: 0 compared, 1 a report cannot be read, 2 a file is not a report, or no measurement is in both.";

/// Of `mktree`.
pub(super) const MKTREE_HELP: &str = "\
Exit codes: 0 made, 1 an operation failed, 2 the request cannot be met, 130 interrupted. \
If the command fails, it removes the files that it made.";

/// Of all subcommands that measure.
const EXIT_CODES: &str = "\
Exit codes: 0 measured, 1 an operation failed, 2 the request cannot be met, 130 interrupted. \
A run removes the files that it made, also after Ctrl-C. After SIGKILL, the next run in the same directory \
removes them.";
