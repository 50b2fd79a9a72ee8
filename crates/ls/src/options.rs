//! The options of `pando ls` with their help.

pub mod args;
pub mod choices;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args,
    builder::{OsStringValueParser, ValueParser},
};
use pando_console::{args::any_path, quote::Quoting, size};

use crate::text::{
    columns::{parse_tab, parse_width},
    scale::Scale,
    values::{
        FORMATS, Format, INDICATORS, Indicators, QUOTING, SORTS, SortBy, TIMES, WHEN, When, WhichTime, XattrLevel,
    },
};

/// The differences from ls, the formats, and the exit status: the rest of the manual page.
const LONG_HELP: &str = include_str!("options/help.txt");

/// Options of `pando ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, args_override_self = true, infer_long_args = true, after_long_help = LONG_HELP,
          version, disable_version_flag = true)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of the command line.
pub struct Options {
    /// What to list [default: the working directory]
    #[arg(value_name = "PATH", value_parser = any_path())]
    pub paths: Vec<PathBuf>,

    /// The long format: mode, links, owner, group, size, time, link targets
    #[arg(short = 'l')]
    pub long: bool,
    /// Like -l without the owner
    #[arg(hide_short_help = true, short = 'g')]
    pub no_owner: bool,
    /// Like -l without the group
    #[arg(hide_short_help = true, short = 'o')]
    pub no_group: bool,
    /// With -l: no group
    #[arg(hide_short_help = true, short = 'G', long = "no-group")]
    pub hide_group: bool,
    /// With -l: the author, which is the owner
    #[arg(hide_short_help = true, long)]
    pub author: bool,
    /// Like -l with numbers for owners and groups
    #[arg(hide_short_help = true, short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// In columns, as on a terminal
    #[arg(short = 'C')]
    pub columns: bool,
    /// In columns, sorted across
    #[arg(short = 'x')]
    pub across: bool,
    /// In lines, separated by commas
    #[arg(short = 'm')]
    pub commas: bool,
    /// One entry per line, as into a pipe; no effect after -l
    #[arg(short = '1')]
    pub one: bool,
    /// across (-x), commas (-m), horizontal (-x), long (-l), single-column (-1), verbose (-l),
    /// vertical (-C)
    #[arg(long, value_name = "WORD", hide_short_help = true, hide_possible_values = true, value_parser = FORMATS)]
    pub format: Option<Format>,
    /// With -l: append the places of names in the output, for Emacs
    #[arg(hide_short_help = true, short = 'D', long)]
    pub dired: bool,
    /// One JSON object per line and entry (see --help)
    #[arg(long, conflicts_with = "csv", long_help = "One JSON object per line and entry (see below)")]
    pub json: bool,
    /// Comma-separated values, with a header (see --help)
    #[arg(long, long_help = "Comma-separated values, with a header (see below)")]
    pub csv: bool,
    /// End lines with a zero byte; unquoted names, no colours
    #[arg(hide_short_help = true, long)]
    pub zero: bool,
    /// Like --zero; with -R and without -l, paths and no headers
    #[arg(short = '0')]
    pub zero_paths: bool,

    /// Include entries whose names begin with a dot
    #[arg(short = 'a', long)]
    pub all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    pub almost_all: bool,
    /// Omit entries whose names end with ~
    #[arg(hide_short_help = true, short = 'B', long)]
    pub ignore_backups: bool,
    /// Omit entries whose names match the shell pattern
    #[arg(short = 'I', long, value_name = "PATTERN", allow_hyphen_values = true, action = ArgAction::Append,
          value_parser = any_text())]
    pub ignore: Vec<OsString>,
    /// The same, unless -a or -A is given
    #[arg(hide_short_help = true, long, value_name = "PATTERN", allow_hyphen_values = true, action = ArgAction::Append,
          value_parser = any_text())]
    pub hide: Vec<OsString>,
    /// Like -aU; turns off an earlier -l, -s, --color or --hyperlink
    #[arg(hide_short_help = true, short = 'f')]
    pub as_is: bool,
    /// List directories themselves, not their entries
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// Include all directories below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// With -R: do not enter directories on other file systems
    #[arg(long)]
    pub one_file_system: bool,
    /// Show the targets of links instead of the links
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// The same for links on the command line
    #[arg(hide_short_help = true, short = 'H', long)]
    pub dereference_command_line: bool,
    /// The same for links to directories on the command line
    #[arg(hide_short_help = true, long)]
    pub dereference_command_line_symlink_to_dir: bool,
    /// Extended attributes: names, or values too [default: values]
    #[arg(long, value_name = "WHAT", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "values")]
    pub xattr: Option<XattrLevel>,
    /// The security context (SELinux); ? if there is none
    #[arg(hide_short_help = true, short = 'Z', long)]
    pub context: bool,

    /// Sizes as in 1.5K, 20M, 3.0G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// The same in powers of 1000
    #[arg(hide_short_help = true, long)]
    pub si: bool,
    /// Sizes in units of SIZE, as in K, 1000, MB, si
    #[arg(long, value_name = "SIZE", hide_short_help = true, allow_hyphen_values = true, value_parser = parse_scale)]
    pub block_size: Option<Scale>,
    /// Blocks in KiB, even if the environment selects other units
    #[arg(hide_short_help = true, short = 'k', long)]
    pub kibibytes: bool,
    /// Inode numbers
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Allocated size in blocks, in KiB
    #[arg(short = 's', long)]
    pub size: bool,

    /// Append one of */=@| by the kind of the entry
    #[arg(short = 'F')]
    pub classify_always: bool,
    /// The same: always, auto or never
    #[arg(long, value_name = "WHEN", hide_short_help = true, hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "always", action = ArgAction::Append, value_parser = WHEN)]
    pub classify: Vec<When>,
    /// The same without *
    #[arg(hide_short_help = true, long)]
    pub file_type: bool,
    /// Append / to directories
    #[arg(short = 'p')]
    pub slash: bool,
    /// none, slash (-p), file-type or classify (-F)
    #[arg(long, value_name = "WORD", hide_short_help = true, hide_possible_values = true, value_parser = INDICATORS)]
    pub indicator_style: Option<Indicators>,
    /// Unquoted names, even on a terminal
    #[arg(hide_short_help = true, short = 'N', long)]
    pub literal: bool,
    /// Names with the escapes of C
    #[arg(hide_short_help = true, short = 'b', long)]
    pub escape: bool,
    /// Names as strings of C
    #[arg(hide_short_help = true, short = 'Q', long)]
    pub quote_name: bool,
    /// The quoting of names [default: shell-escape on a terminal, else literal]
    #[arg(long, value_name = "STYLE", hide_short_help = true, value_parser = QUOTING)]
    pub quoting_style: Option<Quoting>,
    /// A question mark for each unprintable character, as on a terminal
    #[arg(hide_short_help = true, short = 'q', long)]
    pub hide_control_chars: bool,
    /// Print unprintable characters unchanged
    #[arg(hide_short_help = true, long)]
    pub show_control_chars: bool,
    /// Colour names by LS_COLORS: always, auto or never
    #[arg(long, value_name = "WHEN", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "always", value_parser = WHEN)]
    pub color: Option<When>,
    /// Names as links, for terminals that support them: always, auto or never
    #[arg(long, value_name = "WHEN", hide_short_help = true, hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "always", value_parser = WHEN)]
    pub hyperlink: Option<When>,
    /// Width of the screen in columns; 0 means no limit
    #[arg(short = 'w', long, value_name = "COLS", allow_hyphen_values = true, value_parser = parse_width)]
    pub width: Option<usize>,
    /// Distance of tab stops; 0 means no tabs
    #[arg(hide_short_help = true, short = 'T', long = "tabsize", value_name = "COLS", allow_hyphen_values = true,
          value_parser = parse_tab)]
    pub tab: Option<usize>,

    /// By none, size, time, version, extension, width, name or inode [default: name; --json, --csv:
    /// none]
    // --so and --sor stay abbreviations of --sort: ls has no --sort-memory.
    #[arg(long, aliases = ["so", "sor"], value_name = "WORD", hide_possible_values = true, value_parser = SORTS)]
    pub sort: Option<SortBy>,
    /// No order: print entries as they are read, in bounded memory
    #[arg(short = 'U')]
    pub unsorted: bool,
    /// Largest first
    #[arg(short = 'S')]
    pub by_size: bool,
    /// Newest first
    #[arg(short = 't')]
    pub by_time: bool,
    /// By the numbers in names
    #[arg(short = 'v')]
    pub by_version: bool,
    /// By extension: the text after the last dot
    #[arg(hide_short_help = true, short = 'X')]
    pub by_extension: bool,
    /// Directories first, in any order but none
    #[arg(hide_short_help = true, long)]
    pub group_directories_first: bool,
    /// Reverse the order
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Memory for sorting; more entries go through temporary files [default: 256M, or less under
    /// limits]
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = size::parse)]
    pub sort_memory: Option<u64>,

    /// The time to show and to sort by: mtime, atime, ctime or btime
    #[arg(long, value_name = "WHICH", hide_possible_values = true, value_parser = TIMES)]
    pub time: Option<WhichTime>,
    /// Like --time=ctime
    #[arg(hide_short_help = true, short = 'c')]
    pub ctime: bool,
    /// Like --time=atime
    #[arg(hide_short_help = true, short = 'u')]
    pub atime: bool,
    /// full-iso, long-iso, iso, locale, or +FORMAT as in date(1)
    #[arg(long, value_name = "STYLE", allow_hyphen_values = true)]
    pub time_style: Option<String>,
    /// Like -l --time-style=full-iso
    #[arg(long, hide_short_help = true)]
    pub full_time: bool,

    /// Print short help (--help prints more)
    #[arg(hide_short_help = true, short = '?', action = ArgAction::HelpShort)]
    pub short_help: Option<bool>,
    /// Print all help, with the formats and the differences from ls
    #[arg(long, action = ArgAction::HelpLong)]
    pub help: Option<bool>,
    /// Print the version
    #[arg(long, aliases = ["v", "ve", "ver"], hide_short_help = true, action = ArgAction::Version)]
    pub version: Option<bool>,
}

fn any_text() -> ValueParser {
    OsStringValueParser::new().into()
}

fn parse_scale(text: &str) -> Result<Scale, &'static str> {
    Scale::parse(text).map_err(|_| "a size is a number, a unit or both, as in K, 1000, 2MB, MiB, human-readable or si")
}
