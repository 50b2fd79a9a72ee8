//! The command line: every command and option, with their help.

pub mod deferred;

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use pando_console::args::LAST;

use self::deferred::Deferred;
use crate::{
    boost::BoostArgs,
    cp::CpArgs,
    generate::{CompletionsArgs, ManArgs, VersionArgs},
    import::ImportArgs,
    mount::MountArgs,
    store::StoreArgs,
    trace::TraceArgs,
    umount::UmountArgs,
    warm::WarmArgs,
};

const EXAMPLES: &str = "\
Examples:
  pando mount grove                an in-memory tree on ./grove, until Ctrl-C
  pando mount --daemon /mnt/grove  the same in the background
  pando mount --store trees/1 home a tree that stays, in the store ./trees/1
  pando umount grove               unmount, and wait until the server has ended

Exit codes: 0 done, 1 it failed (the message says what and why), 2 the command line is wrong.";

/// A POSIX file-system tree in user space that changes names in parallel, and tools around it
#[derive(Debug, Parser)]
#[command(name = "pando", version, after_help = EXAMPLES, propagate_version = false, max_term_width = 100)]
pub struct Cli {
    /// Log more on stderr: -v events, -vv each refused request, -vvv everything
    ///
    /// The environment variable RUST_LOG selects in detail, as in RUST_LOG=pando_fuse=debug, and
    /// overrides this option.
    #[arg(short, long, action = clap::ArgAction::Count, global = true, display_order = LAST)]
    pub verbose: u8,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a tree on a directory: in memory, in a store, or of the host
    Mount(Deferred<MountArgs>),
    /// Unmount a tree, and wait until its server has ended
    #[command(alias = "unmount")]
    Umount(Deferred<UmountArgs>),
    /// Check, show, export and import stores, in which trees stay
    Store(Deferred<StoreArgs>),
    /// Measure metadata workloads on several targets, side by side
    Bench(Deferred<pando_bench::cli::BenchArgs>),
    /// Run a program with a helper that reads metadata ahead of it
    Boost(Deferred<BoostArgs>),
    /// Read the metadata of directories into the kernel's caches ahead of time
    Warm(Deferred<WarmArgs>),
    /// List directories: names, attributes and extended attributes in one pass
    Ls(Deferred<pando_ls::LsArgs>),
    /// Copy a directory or a tar stream into a directory, many files at a time
    Import(Deferred<ImportArgs>),
    /// Copy files of any kind with all metadata, many at a time
    Cp(Deferred<CpArgs>),
    /// Show the operations on a mounted tree as they happen
    Trace(Deferred<TraceArgs>),
    /// Print the version
    Version(VersionArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  pando completions bash > /etc/bash_completion.d/pando")]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = "Example:\n  pando man --out /usr/local/share/man/man1")]
    Man(ManArgs),
}

/// Reads the command line. Words after `-o` that stand for options of `pando mount` are read as
/// these options, and come before those that are on the line.
///
/// # Errors
/// clap's message, which may be help.
pub fn read(line: Vec<OsString>) -> Result<Cli, clap::Error> {
    let cli = Cli::try_parse_from(&line)?;
    let Command::Mount(Deferred(args)) = &cli.command else { return Ok(cli) };
    let own = args.own_options();
    if own.is_empty() {
        return Ok(cli);
    }
    // Only -v can stand before the command.
    let begin = line.iter().position(|word| word == "mount").map_or(line.len(), |position| position + 1);
    let line = line[..begin].iter().chain(&own).chain(&line[begin..]);
    Cli::try_parse_from(line)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{deferred::at_once, *};

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// A paragraph is one line, which clap wraps to the screen. Lines of lists and examples fit
    /// into 80 columns.
    #[test]
    fn help_is_wrapped_only_once() {
        fn check(command: &mut clap::Command) {
            let text = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
            let lines: Vec<_> = text.iter().flat_map(|text| text.lines()).chain([""]).collect();
            for lines in lines.windows(2) {
                let prose = lines[1].is_empty() || lines[1].starts_with("  ");
                let fits = lines[0].chars().count() <= 80;
                assert!(fits || prose && !lines[0].starts_with(' '), "{}: {lines:#?}", command.get_name());
            }
            command.get_subcommands_mut().for_each(check);
        }
        check(&mut Cli::command());
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_help().to_string();
            assert!(help.lines().count() <= 50, "{help}");
        }
        assert!(Cli::command().render_help().to_string().lines().count() <= 32);
    }

    fn helps(command: &clap::Command) -> Vec<String> {
        let own = command.clone().render_long_help().to_string();
        command.get_subcommands().flat_map(helps).chain([own]).collect()
    }

    #[test]
    fn deferred_help_equals_that_of_the_whole() {
        let (mut deferred, mut whole) = (Cli::command(), at_once(Cli::command));
        let ls = |command: &clap::Command| command.find_subcommand("ls").unwrap().get_arguments().count();
        assert_eq!((ls(&deferred), ls(&whole) > 1), (0, true));
        deferred.build();
        whole.build();
        for name in ["mount", "umount", "bench", "boost", "warm", "ls", "import", "cp", "trace"] {
            let [one, other] = [&deferred, &whole].map(|command| helps(command.find_subcommand(name).unwrap()));
            assert_eq!(one, other);
        }
        // `pando help` shows subcommands of commands only if the command is built as a whole.
        let help = ["help", "bench", "crunl"].iter().try_fold(&whole, |command, name| command.find_subcommand(name));
        assert!(help.is_some());
    }

    #[test]
    fn an_option_of_the_command_line_beats_a_word() {
        let line = ["pando", "-v", "mount", "--size", "3M", "-o", "size=1M,inodes=9", "grove"].map(Into::into).to_vec();
        let Command::Mount(taken) = read(line).unwrap().command else { panic!("another command") };
        assert_eq!((taken.0.size, taken.0.inodes), (Some(3 << 20), Some(9)));
        let line = ["pando", "mount", "-o", "size=1Q", "grove"].map(Into::into).to_vec();
        let refused = read(line).unwrap_err().to_string();
        assert!(refused.contains("1Q") && refused.contains("K, M, G"), "{refused}");
    }
}
