//! The arguments of `pando boost`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use pando_boost::MAX_IN_FLIGHT;

const HELP: &str = "\
Programs that list directories wait for the attributes of one file after the other. While CMD runs, a helper reads the same \
directories and asks for the same attributes, many at a time and somewhat ahead. CMD then finds them in the kernel's caches. \
This is faster where calls wait: cold disks, NFS, FUSE. Elsewhere the helper notices that calls do not wait, and stops \
reading ahead. Results, errors and order stay the same.

Statically linked, Go and setuid programs run unboosted. -v says so, and reports what the helper did. docs/boost.md lists \
programs.

Examples:
  pando boost -- ls -lR /mnt/store
  pando -v boost -- rsync -a /mnt/store/ copy/
  pando boost --watch /mnt/store    every program there, as root, until Ctrl-C

Exit codes: that of CMD (128 plus the number of the signal that ended it, as in shells), 126 CMD cannot be executed, 127 CMD \
does not exist. With --watch: 0 ended by a signal or by an unmount, 1 it failed. In both cases 2: the command line is wrong.";

/// Options of `pando boost`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct BoostArgs {
    /// Boost every program at the mount that PATH is on, until Ctrl-C (root only)
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub watch: Option<PathBuf>,

    /// The most calls in flight at once on one file system; the helper finds by trial how many are
    /// worth it
    #[arg(long, value_name = "N",
          value_parser = parse_in_flight, allow_negative_numbers = true, default_value_t = MAX_IN_FLIGHT)]
    pub max_inflight: usize,

    /// Read access control lists ahead too, as ls -l does
    ///
    /// Only on file systems that store them apart from the attributes and whose ACLs the kernel
    /// caches: some network file systems.
    #[arg(long)]
    pub xattrs: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "watch")]
    pub command: Vec<OsString>,
}

fn parse_in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(calls) if (1..=MAX_IN_FLIGHT).contains(&calls) => Ok(calls),
        _ => Err(format!("a number of calls is between 1 and {MAX_IN_FLIGHT}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BoostArgs,
    }

    fn boost(args: &[&str]) -> Result<BoostArgs, clap::Error> {
        Line::try_parse_from(["boost"].iter().chain(args)).map(|line| line.args)
    }

    #[test]
    fn options_after_the_program_belong_to_it() {
        let args = boost(&["--max-inflight", "8", "--", "ls", "-l", "--watch", "-v"]).unwrap();
        assert_eq!((args.max_inflight, args.command.len()), (8, 4));
        assert_eq!(boost(&["ls", "-l"]).unwrap().command, ["ls", "-l"]);
        assert_eq!(boost(&["--watch", "/mnt"]).unwrap().watch, Some(PathBuf::from("/mnt")));
    }

    #[test]
    fn either_a_command_or_a_mount_is_required() {
        assert_eq!(boost(&[]).unwrap_err().kind(), ErrorKind::MissingRequiredArgument);
        assert_eq!(boost(&["--watch", "/mnt", "--", "ls"]).unwrap_err().kind(), ErrorKind::ArgumentConflict);
        for nonsense in ["0", "65", "many", "-1"] {
            assert_eq!(boost(&["--max-inflight", nonsense, "ls"]).unwrap_err().exit_code(), 2, "{nonsense}");
        }
    }
}
