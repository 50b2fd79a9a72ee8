//! The arguments of `pando warm`.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use pando_console::{args::any_path, size};

const HELP: &str = "\
Reads the names in each directory, then the attributes of each entry and the targets of symbolic links, many at once and in \
the order of the inodes. A later program (ls -l, rsync, a backup) finds them in the kernel's caches and does not wait for \
each. pando warm reads no contents and changes nothing, except that directories and symbolic links may get a new atime.

The kernel's caches take memory, about 1.5 KiB for each entry: an inode of 0.7 to 1.2 KiB, depending on the file system, a \
name of 0.2 KiB, and losses between them. The target of a link may take one more page. The room for that is memory that is \
free, or that holds contents of files not used lately, in the whole machine and in each control group with a limit \
(memory.max, memory.high). Entries beyond that room are not read, because they would only evict earlier ones. Entries that \
are already cached need no more room. A file system may keep less, or nothing: FUSE mounts and NFS have timeouts. The kernel \
caches link targets of a FUSE mount only if the server allows it (FUSE_CACHE_SYMLINKS), as pando mount does.

Failures are reported on stderr, one line each, and the rest is read. An entry that is removed meanwhile is no failure. \
Ctrl-C stops the command, and cached entries stay cached. A second Ctrl-C does not wait for calls in flight, except for those \
that the kernel does not interrupt: requests that a FUSE server has taken.

Exit codes: 0 all was read, 1 some entries could not be read (each is named), 2 the command line is wrong, 3 stopped because \
the caches had no more room, 130 stopped by Ctrl-C or a signal.

Examples:
  pando warm /srv/mail                       the directory itself
  pando warm -R --xattrs /srv                all below, with extended attributes
  pando warm -R --nice --rate 2000 /mnt/nfs  gently: others use that server too";

/// Options of `pando warm`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct WarmArgs {
    /// Directories, whose entries are read, or files
    #[arg(value_name = "PATH", required = true, value_parser = any_path())]
    pub paths: Vec<PathBuf>,

    /// Include all directories below
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Include the names and values of extended attributes
    #[arg(long)]
    pub xattrs: bool,

    /// Stay on the file system of each path
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// The most calls at once; it starts with one, and adds more only while calls wait
    #[arg(long, value_name = "N", value_parser = parse_in_flight, allow_negative_numbers = true, default_value = "32")]
    pub max_inflight: NonZeroUsize,

    /// The most entries a second; names are read a few seconds ahead
    #[arg(long, value_name = "N", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate: Option<NonZeroU32>,

    /// Use a low priority, and fewer calls at once when answers get slower
    #[arg(long)]
    pub nice: bool,

    /// How much kernel memory the caches may fill, as in 512M [default: all the room there is]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub max_memory: Option<u64>,

    /// The order in which the entries of a directory are read
    #[arg(long, value_enum, default_value = "inode")]
    pub order: WarmOrder,

    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WarmOrder {
    /// By inode number: on many file systems the order on the disk
    Inode,
    /// As in the directory
    Directory,
}

/// Each call at once needs a thread.
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
