//! What the command line and the terminal ask for, resolved once.

use std::{env, io::IsTerminal, os::unix::ffi::OsStrExt};

use clap::ValueEnum;
use pando_hostfs::{Descent, Fields, Mask, Options, WalkOptions};

use super::{
    args::{Format, LsArgs, Options as Args, SortBy, When, WhichTime, XattrLevel},
    colours::Palette,
    columns::{Screen, parse_width},
    failed::Status,
    interrupt::Restorer,
    order::Order,
    time::TimeStyle,
};
use crate::quote::{Quote, Quoting, in_message, locale_is_utf8};

/// The form of the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line with everything.
    Long,
    /// A line with the name.
    Lines,
    /// As many names to a line as fit.
    Columns,
    /// JSON.
    Json,
    /// CSV.
    Csv,
}

/// Which of the names that begin with a dot are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// None.
    Skip,
    /// All but `.` and `..`.
    AlmostAll,
    /// All.
    All,
}

/// What to list, and how.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub struct Plan {
    pub form: Form,
    /// Attributes are shown. With JSON and CSV, that is -l.
    pub long: bool,
    pub hidden: Hidden,
    pub directory: bool,
    pub recursive: bool,
    pub one_file_system: bool,
    pub xattr: Option<XattrLevel>,
    pub human: bool,
    pub inode: bool,
    pub blocks: bool,
    pub classify: bool,
    pub numeric: bool,
    pub owner: bool,
    pub group: bool,
    pub author: bool,
    pub time: WhichTime,
    pub time_style: TimeStyle,
    pub order: Order,
    /// Memory for sorting, if it was said how much.
    pub sort_memory: Option<u64>,
    pub quote: Quote,
    pub screen: Screen,
    /// None: names have no colours.
    pub colours: Option<Palette>,
    /// Paths instead of names, and no headers.
    pub paths: bool,
}

const DEFAULT_WIDTH: usize = 80;

fn screen_width(args: &Args, terminal: bool) -> usize {
    let from_terminal = || {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().filter(|_| terminal);
        size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns != 0)
    };
    let from_env = || {
        let text = env::var("COLUMNS").ok().filter(|text| !text.is_empty())?;
        let width = parse_width(&text).ok();
        if width.is_none() {
            let text = in_message(text.as_bytes());
            warn(&format!("ignoring invalid width in environment variable COLUMNS: {text}"));
        }
        width
    };
    args.width.or_else(from_terminal).or_else(from_env).unwrap_or(DEFAULT_WIDTH)
}

/// Says what does not keep anything from being listed.
fn warn(text: &str) {
    Status::Well.say(Status::Well, text);
}

impl Plan {
    /// Resolves the arguments.
    ///
    /// # Errors
    /// The environment asks for a style that is none; the text says which.
    pub fn new(args: &LsArgs) -> Result<Self, String> {
        let terminal = std::io::stdout().is_terminal();
        let LsArgs { options: args, format } = args;
        let long = *format == Some(Format::Long);
        let form = match () {
            () if args.json => Form::Json,
            () if args.csv => Form::Csv,
            () if long => Form::Long,
            // Attributes have lines of their own, below the name.
            () if args.xattr.is_some() => Form::Lines,
            () if *format == Some(Format::Columns) || (format.is_none() && terminal) => Form::Columns,
            () => Form::Lines,
        };
        let colour = match args.color {
            When::Always => !args.zero,
            When::Never => false,
            When::Auto => terminal && !args.zero && env::var_os("TERM").is_none_or(|term| term != "dumb"),
        };
        let machine = matches!(form, Form::Json | Form::Csv);
        let colours = if colour && !machine { Palette::from_env(warn) } else { None };
        let is_wide = form == Form::Columns || (colour && !machine);
        let width = if is_wide { screen_width(args, terminal) } else { DEFAULT_WIDTH };
        let time = match (args.ctime, args.atime) {
            (true, _) => WhichTime::Ctime,
            (_, true) => WhichTime::Atime,
            _ => args.time,
        };
        Ok(Self {
            form,
            long,
            hidden: match (args.all, args.almost_all) {
                (true, _) => Hidden::All,
                (false, true) => Hidden::AlmostAll,
                (false, false) => Hidden::Skip,
            },
            directory: args.directory,
            recursive: args.recursive && !args.directory,
            one_file_system: args.one_file_system,
            xattr: args.xattr,
            human: args.human_readable,
            inode: args.inode,
            blocks: args.size,
            classify: args.classify,
            numeric: args.numeric,
            owner: !args.no_owner,
            group: !args.no_group && !args.hide_group,
            author: args.author,
            time,
            time_style: if form == Form::Long { time_style(args)? } else { TimeStyle::Locale },
            order: Order { by: sort_by(args, machine, long), time, reverse: args.reverse },
            sort_memory: args.sort_memory,
            quote: quote(args, terminal, machine),
            screen: Screen { width, tabs: colours.is_none() && width != 0, eol: if args.zero { 0 } else { b'\n' } },
            colours,
            paths: args.zero && args.recursive && form == Form::Lines,
        })
    }

    /// How wide a text is on the screen.
    pub fn text_width(&self, text: &[u8]) -> usize {
        self.quote.width(text)
    }

    /// Whether the form is for programs.
    pub fn is_machine(&self) -> bool {
        matches!(self.form, Form::Json | Form::Csv)
    }

    /// Whether a directory has a line that says how much its entries occupy.
    pub fn has_total(&self) -> bool {
        !self.is_machine() && (self.long || self.blocks)
    }

    /// Whether targets of links are read.
    pub fn wants_target(&self) -> bool {
        self.long
    }

    /// Whether it is looked at what links lead to.
    pub fn wants_link_end(&self) -> bool {
        let long = self.form == Form::Long;
        (self.classify && long) || self.colours.as_ref().is_some_and(|colours| colours.wants_link_end(long))
    }

    /// Whether ls would look at regular files, and not only at their names and kinds.
    pub fn wants_files(&self) -> bool {
        let by_attributes = matches!(self.order.by, SortBy::Size | SortBy::Time);
        let shown = self.long || self.blocks || self.classify;
        by_attributes || shown || self.colours.as_ref().is_some_and(Palette::wants_modes)
    }

    /// Whether executables are asked for capabilities, and for nothing else of the kind.
    pub fn looks_for_capabilities(&self) -> bool {
        self.colours.as_ref().is_some_and(Palette::wants_capabilities) && !self.wants_xattr_names()
    }

    /// What takes colours back when a signal comes; none where no terminal would keep them, or if signals cannot be had.
    pub fn restorer(&self) -> Option<Restorer> {
        let palette = self.colours.as_ref().filter(|_| std::io::stdout().is_terminal())?;
        Restorer::new(palette.after()).ok()
    }

    /// What clears the rest of a line after a coloured name.
    pub fn clear(&self) -> &[u8] {
        self.colours.as_ref().map_or(&[], Palette::clear)
    }

    /// Whether entries that are printed as they are read make room for each other. Where ls prints them so, too, they do
    /// not.
    pub fn aligns(&self) -> bool {
        let streams = self.form == Form::Lines && !self.blocks && !self.recursive;
        !self.is_machine() && !streams
    }

    /// Whether names that follow no quoted ones are indented, so that they begin in one column.
    pub fn aligns_quotes(&self) -> bool {
        let aligned = self.form == Form::Long || (self.form == Form::Columns && self.screen.width != 0);
        aligned && self.quote.style == Quoting::ShellEscape
    }

    /// What the record stream is asked for.
    pub fn walk_options(&self) -> WalkOptions {
        let scan = Options {
            mask: self.mask(),
            fields: self.fields(),
            dots: self.hidden == Hidden::All,
            ..Options::default()
        };
        let descent = if self.order.by == SortBy::None { Descent::AsFound } else { Descent::Sorted };
        WalkOptions { scan, one_file_system: self.one_file_system, descent }
    }

    fn mask(&self) -> Mask {
        let coloured = self.colours.as_ref().is_some_and(Palette::wants_directory_modes);
        let shown = self.wants_files() || self.inode || self.order.by == SortBy::Inode || coloured;
        let mut mask = Mask::empty();
        mask.set(Mask::STAT, shown);
        mask.set(Mask::XATTR_NAMES, self.wants_xattr_names());
        mask.set(Mask::XATTR_VALUES, self.xattr == Some(XattrLevel::Values));
        mask.set(Mask::LINK_TARGETS, self.wants_target());
        mask.set(Mask::LINK_ENDS, self.wants_link_end());
        mask.set(Mask::CAPABILITIES, self.looks_for_capabilities());
        mask
    }

    fn wants_xattr_names(&self) -> bool {
        // The marks of access lists are had from the names of extended attributes: one more call for each entry. A
        // listing that streams does without; its columns would shift at the first mark.
        let marks = self.form == Form::Long && self.order.sorts();
        marks || self.xattr.is_some()
    }

    fn fields(&self) -> Fields {
        if self.is_machine() {
            return Fields::all();
        }
        let mut fields = Fields::TYPE | Fields::MODE | Fields::INO;
        fields.set(Fields::UID | Fields::GID, self.form == Form::Long);
        fields.set(Fields::SIZE, self.form == Form::Long || self.order.by == SortBy::Size);
        fields.set(Fields::BLOCKS, self.has_total());
        fields.set(Fields::NLINK, self.form == Form::Long || self.colours.is_some());
        if self.form == Form::Long || self.order.by == SortBy::Time {
            fields |= match self.time {
                WhichTime::Mtime => Fields::MTIME,
                WhichTime::Atime => Fields::ATIME,
                WhichTime::Ctime => Fields::CTIME,
                WhichTime::Btime => Fields::BTIME,
            };
        }
        fields
    }
}

fn time_style(args: &Args) -> Result<TimeStyle, String> {
    match (&args.time_style, env::var("TIME_STYLE")) {
        (Some(style), _) => Ok(style.clone()),
        (None, Ok(style)) if !style.is_empty() => {
            TimeStyle::parse(&style).map_err(|error| format!("TIME_STYLE={style}: {error}"))
        }
        _ => Ok(TimeStyle::Locale),
    }
}

/// ls sorts by the time that was asked for, if it is not shown.
fn sort_by(args: &Args, machine: bool, long: bool) -> SortBy {
    let time_asked = args.ctime || args.atime || args.time != WhichTime::Mtime;
    match () {
        () if args.unsorted => SortBy::None,
        () if args.by_size => SortBy::Size,
        () if args.by_time => SortBy::Time,
        () if args.by_extension => SortBy::Extension,
        () => args.sort.unwrap_or(match (machine, time_asked && !long) {
            (true, _) => SortBy::None,
            (false, true) => SortBy::Time,
            (false, false) => SortBy::Name,
        }),
    }
}

fn quoting_from_env() -> Option<Quoting> {
    let word = env::var_os("QUOTING_STYLE")?;
    let style = word.to_str().and_then(|word| Quoting::from_str(word, false).ok());
    // Styles that only ls has are left to it.
    let of_ls = ["shell", "shell-always", "c", "escape", "locale", "clocale"].iter().any(|style| word == *style);
    if style.is_none() && !of_ls {
        let word = in_message(word.as_bytes());
        warn(&format!("ignoring invalid value of environment variable QUOTING_STYLE: {word}"));
    }
    style
}

fn quote(args: &Args, terminal: bool, machine: bool) -> Quote {
    let style = match () {
        () if args.zero || args.literal || machine => Quoting::Literal,
        () => args.quoting_style.or_else(quoting_from_env).unwrap_or(if terminal {
            Quoting::ShellEscape
        } else {
            Quoting::Literal
        }),
    };
    Quote { style, utf8: locale_is_utf8(), hide: terminal && !args.zero, at: args.classify }
}
