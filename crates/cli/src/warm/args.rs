//! The command line of `pando warm`.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use pando_console::{args::any_path, size};

const HELP: &str = "\
Reads the names in each directory and asks for the attributes of each, and where links lead, many at once and in the \
order of their inodes, so that what comes after (ls -l, rsync, a backup) finds them in the kernel's caches and does not \
wait for each. It reads no contents and changes nothing, except that directories and symbolic links may get an access time.

The kernel's caches are memory. An entry takes about 1.5 KiB there: an inode of 0.7 to 1.2 KiB, as the file system has \
it, a name of 0.2 KiB, and what is lost between them; where a link leads may be a page more. The room for that is the \
memory that is free or holds contents of files that were not used lately, in the whole machine and in each control group \
with a limit (memory.max, memory.high). What would not fit is not asked for, since it would only push out what was read \
before it; what is there already takes no more of it. A file system may also keep less than that, or nothing: a FUSE \
mount or NFS by its timeouts. Of FUSE, the kernel keeps where links lead only if the server lets it \
(FUSE_CACHE_SYMLINKS), as pando mount does.

Failures are said on stderr, one line each, and the rest goes on. What vanishes meanwhile is no failure. Ctrl-C stops \
it; what is warm stays warm. A second Ctrl-C does not wait for calls that are in flight, as far as the kernel lets it: it \
waits for what a FUSE server has taken.

Exit codes: 0 all was read, 1 some of it could not be read (each is named), 2 the command line is wrong, 3 it stopped \
where the caches would have begun to push out its own work, 130 it was stopped by Ctrl-C or a signal.

Examples:
  pando warm /srv/mail                       the directory itself
  pando warm -R --xattrs /srv                all below, with extended attributes
  pando warm -R --nice --rate 2000 /mnt/nfs  gently: others use that server too";

/// Options of `pando warm`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct WarmArgs {
    /// Directories (their entries are read), or files
    #[arg(value_name = "PATH", required = true, value_parser = any_path())]
    pub paths: Vec<PathBuf>,

    /// Directories below as well
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// The names and values of extended attributes as well
    #[arg(long)]
    pub xattrs: bool,

    /// Stay on the file system that a path is on
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// How many calls may wait at once; it begins with one, and adds more only while calls wait
    #[arg(long, value_name = "N", value_parser = parse_in_flight, allow_negative_numbers = true, default_value = "32")]
    pub max_inflight: NonZeroUsize,

    /// How many entries a second, at most; names are read a few seconds ahead
    #[arg(long, value_name = "N", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate: Option<NonZeroU32>,

    /// Be nice: a low priority, and fewer calls at once as soon as answers get slower
    #[arg(long)]
    pub nice: bool,

    /// How much of the kernel's memory it may fill, as in 512M [default: what there is room for]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub max_memory: Option<u64>,

    /// In which order the entries of a directory are asked for
    #[arg(long, value_enum, default_value = "inode")]
    pub order: WarmOrder,

    /// No summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WarmOrder {
    /// By inode number: on many file systems the order in which they lie on the disk
    Inode,
    /// As the directory has them
    Directory,
}

/// Each waits in a thread of its own.
const MAX_IN_FLIGHT: usize = 1024;

fn parse_in_flight(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(count) if count.get() <= MAX_IN_FLIGHT => Ok(count),
        _ => Err(format!("the number of calls that wait at once is between 1 and {MAX_IN_FLIGHT}")),
    }
}

fn parse_rate(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("a rate is a number of entries a second, between 1 and {}", u32::MAX))
}
