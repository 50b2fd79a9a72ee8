//! The command line of `pando ls`, and the help that teaches it.

use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, parser::ValueSource};

use super::{columns::parse_width, time::TimeStyle};
use crate::quote::Quoting;
use crate::{args::any_path, size};

/// What differs from ls, the formats, and the exit status: the rest of the manual page.
const LONG_HELP: &str = include_str!("help.txt");

/// What `pando ls` is asked for. Some options depend on their order on the command line, which clap does not keep.
#[derive(Debug)]
pub struct LsArgs {
    /// The options, as if those that others take back had not been there.
    pub options: Options,
    /// The last of the formats of ls.
    pub format: Option<Format>,
}

/// A format that ls has, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// -l and those that imply it.
    Long,
    /// -1 and --zero.
    Lines,
    /// -C
    Columns,
}

impl Args for LsArgs {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

impl FromArgMatches for LsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Options::from_arg_matches(matches)?;
        let place = |id: &str| {
            let given = matches.value_source(id) == Some(ValueSource::CommandLine);
            if given { matches.indices_of(id).and_then(Iterator::last) } else { None }
        };
        let unordered = place("as_is");
        if unordered.is_some() {
            let follows = |id: &str| place(id) > unordered;
            if !["sort", "unsorted", "by_size", "by_time", "by_extension"].into_iter().any(follows) {
                options.unsorted = true;
            }
            if !follows("almost_all") {
                (options.all, options.almost_all) = (true, false);
            }
            options.size &= follows("size");
            if !follows("color") {
                options.color = When::Never;
            }
        }
        if place("full_time") > place("time_style") {
            options.time_style = Some(TimeStyle::FullIso);
        }
        Ok(Self { options, format: last_format(place) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The format that comes last; but lines are not asked for after the long format, and -f takes only that one back.
fn last_format(place: impl Fn(&str) -> Option<usize>) -> Option<Format> {
    let long = ["long", "no_owner", "no_group", "numeric", "full_time"].map(|id| (place(id), id));
    let mut places =
        long.into_iter().chain(["one", "zero", "columns", "as_is"].map(|id| (place(id), id))).collect::<Vec<_>>();
    places.retain(|(place, _)| place.is_some());
    places.sort_unstable();
    places.into_iter().fold(None, |format, (_, id)| match (id, format) {
        ("one" | "zero", Some(Format::Long)) => format,
        ("one" | "zero", _) => Some(Format::Lines),
        ("columns", _) => Some(Format::Columns),
        ("as_is", Some(Format::Long)) => None,
        ("as_is", _) => format,
        _ => Some(Format::Long),
    })
}

/// Options of `pando ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, args_override_self = true, after_long_help = LONG_HELP)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub struct Options {
    /// What to list [default: the working directory]
    #[arg(value_name = "PATH", value_parser = any_path())]
    pub paths: Vec<PathBuf>,

    /// Mode, links, owner, group, size, time, and the targets of links
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
    /// With -l: the author, who is the owner
    #[arg(hide_short_help = true, long)]
    pub author: bool,
    /// Like -l with numbers for owners and groups
    #[arg(short = 'n', long = "numeric-uid-gid")]
    pub numeric: bool,
    /// In columns, as on a terminal
    #[arg(short = 'C')]
    pub columns: bool,
    /// One entry per line, as into a pipe (after -l: nothing)
    #[arg(short = '1')]
    pub one: bool,
    /// One JSON object per line and entry (see --help)
    #[arg(long, conflicts_with = "csv", long_help = "One JSON object per line and entry (see below)")]
    pub json: bool,
    /// Comma-separated values, with a header (see --help)
    #[arg(long, long_help = "Comma-separated values, with a header (see below)")]
    pub csv: bool,
    /// End lines with a zero byte, names as they are, no colours
    #[arg(short = '0', long = "zero")]
    pub zero: bool,

    /// Entries whose names begin with a dot too
    #[arg(short = 'a', long)]
    pub all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// Like -aU, without -l, -s and --color before it
    #[arg(hide_short_help = true, short = 'f')]
    pub as_is: bool,
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
    #[arg(short = 'w', long, value_name = "COLS", value_parser = parse_width)]
    pub width: Option<usize>,

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
