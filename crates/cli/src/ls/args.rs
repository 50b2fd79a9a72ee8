//! The command line of `pando ls`, and the help that teaches it.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::{quote::Quoting, time::TimeStyle};
use crate::{args::any_path, size};

/// What differs from ls, the formats, and the exit status: the rest of the manual page.
const LONG_HELP: &str = include_str!("help.txt");

/// Options of `pando ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, args_override_self = true, after_long_help = LONG_HELP)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub struct LsArgs {
    /// What to list [default: the working directory]
    #[arg(value_name = "PATH", value_parser = any_path())]
    pub paths: Vec<PathBuf>,

    /// Mode, links, owner, group, size, time, and the targets of links
    #[arg(short = 'l', overrides_with_all = ["columns", "one"])]
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
    /// Like -l with numbers for owners and groups
    #[arg(short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// In columns, as on a terminal
    #[arg(short = 'C', overrides_with_all = ["long", "one", "no_owner", "no_group", "numeric"])]
    pub columns: bool,
    /// One entry per line, as into a pipe
    #[arg(short = '1', overrides_with = "columns")]
    pub one: bool,
    /// One JSON object per line and entry (see --help)
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Comma-separated values, with a header (see --help)
    #[arg(long)]
    pub csv: bool,
    /// End lines with a zero byte, names as they are, no colours
    #[arg(short = '0', long = "zero")]
    pub zero: bool,

    /// Entries whose names begin with a dot too
    #[arg(short = 'a', long)]
    pub all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    pub almost_all: bool,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// All directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// With -R: do not enter directories on other file systems
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Extended attributes: names, or values as well [default: values]
    #[arg(long, value_name = "WHAT", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "values")]
    pub xattr: Option<XattrLevel>,

    /// Sizes as in 1.5K, 20M, 3.0G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Inode numbers
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Occupied space, in KiB
    #[arg(short = 's', long)]
    pub size: bool,
    /// Append one of */=@| by what the entry is
    #[arg(short = 'F', long)]
    pub classify: bool,
    /// Names as they are, on a terminal too
    #[arg(hide_short_help = true, short = 'N', long, overrides_with = "quoting_style")]
    pub literal: bool,
    /// How names look [default: shell-escape on a terminal, else literal]
    #[arg(long, value_name = "STYLE", hide_short_help = true)]
    pub quoting_style: Option<Quoting>,
    /// Colour names by LS_COLORS: auto, always or never
    #[arg(long, value_name = "WHEN", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always")]
    pub color: When,
    /// Width of the screen in columns; 0 is no limit
    #[arg(short = 'w', long, value_name = "COLS")]
    pub width: Option<u16>,

    /// By none, name, size, time, extension or inode [default: name; --json, --csv: none]
    #[arg(long, value_name = "WORD", hide_possible_values = true,
          overrides_with_all = ["unsorted", "by_size", "by_time", "by_extension"])]
    pub sort: Option<SortBy>,
    /// No order: print entries as they are read, in bounded memory
    #[arg(short = 'U', overrides_with_all = ["sort", "by_size", "by_time", "by_extension"])]
    pub unsorted: bool,
    /// Largest first
    #[arg(short = 'S', overrides_with_all = ["sort", "unsorted", "by_time", "by_extension"])]
    pub by_size: bool,
    /// Newest first
    #[arg(short = 't', overrides_with_all = ["sort", "unsorted", "by_size", "by_extension"])]
    pub by_time: bool,
    /// By what follows the last dot
    #[arg(hide_short_help = true, short = 'X', overrides_with_all = ["sort", "unsorted", "by_size", "by_time"])]
    pub by_extension: bool,
    /// The order reversed
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Memory for sorting; what exceeds it goes through temporary files [default: 256M, or less where limits say so]
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = size::parse)]
    pub sort_memory: Option<u64>,

    /// Time to show and to sort by: mtime, atime, ctime or btime
    #[arg(long, value_name = "WHICH", hide_possible_values = true, default_value = "mtime",
          overrides_with_all = ["ctime", "atime"])]
    pub time: WhichTime,
    /// Like --time=ctime
    #[arg(hide_short_help = true, short = 'c', overrides_with_all = ["time", "atime"])]
    pub ctime: bool,
    /// Like --time=atime
    #[arg(hide_short_help = true, short = 'u', overrides_with_all = ["time", "ctime"])]
    pub atime: bool,
    /// full-iso, long-iso, iso, locale, or +FORMAT as in date(1)
    #[arg(long, value_name = "STYLE", value_parser = TimeStyle::parse)]
    pub time_style: Option<TimeStyle>,
    /// Like -l --time-style=full-iso
    #[arg(long, hide_short_help = true)]
    pub full_time: bool,

    /// Print help (--help says more than this)
    #[arg(hide_short_help = true, short = '?', action = ArgAction::HelpShort)]
    pub short_help: Option<bool>,
    /// Print all help, with the formats and the differences from ls
    #[arg(long, action = ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// How much of the extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum XattrLevel {
    /// Their names
    Names,
    /// Names and values
    Values,
}

/// When to do something that depends on the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// If standard output is a terminal
    #[value(alias = "tty", alias = "if-tty")]
    Auto,
    /// Always
    #[value(alias = "yes", alias = "force")]
    Always,
    /// Never
    #[value(alias = "no", alias = "none")]
    Never,
}

/// The order of the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// As they are read
    None,
    /// By name
    Name,
    /// Largest first
    Size,
    /// Newest first
    Time,
    /// By what follows the last dot
    Extension,
    /// By inode number
    Inode,
}

/// One of the times of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhichTime {
    /// Last change of contents
    #[value(alias = "modification")]
    Mtime,
    /// Last access
    #[value(alias = "access", alias = "use")]
    Atime,
    /// Last change of contents or attributes
    #[value(alias = "status")]
    Ctime,
    /// Birth
    #[value(name = "btime", alias = "birth", alias = "creation")]
    Btime,
}
