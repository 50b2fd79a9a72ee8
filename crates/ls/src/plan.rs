//! The request of the command line and the terminal, resolved once.

use std::{env, io::IsTerminal, os::unix::ffi::OsStrExt};

use pando_console::{
    characters::locale_is_utf8,
    quote::{Quote, Quoting, in_message},
};
use pando_scan::{Descent, Fields, Mask, Options, WalkOptions};

use crate::{
    entry::{colours::Palette, order::Order},
    options::{
        Options as Args,
        args::LsArgs,
        choices::{Choices, Follows},
    },
    output::{failed::Status, interrupt::Restorer},
    text::{
        columns::{Layout, Screen, parse_tab, parse_width},
        pattern::Pattern,
        scale::Scale,
        time::TimeStyle,
        values::{Format, Hidden, Indicators, QUOTING, SortBy, WhichTime, XattrLevel},
    },
};

/// The form of the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line with all attributes.
    Long,
    /// A line with the name.
    Lines,
    /// As many names per line as fit.
    Columns,
    /// JSON.
    Json,
    /// CSV.
    Csv,
}

/// The entries to list, and the form of the output.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of the command line.
pub struct Plan {
    pub form: Form,
    /// Whether attributes are shown. With JSON and CSV, that is -l.
    pub long: bool,
    pub hidden: Hidden,
    pub directory: bool,
    pub recursive: bool,
    pub one_file_system: bool,
    pub xattr: Option<XattrLevel>,
    /// The units of blocks and of file sizes.
    pub block_scale: Scale,
    pub file_scale: Scale,
    pub inode: bool,
    pub blocks: bool,
    pub context: bool,
    pub indicators: Indicators,
    /// None: it depends on the format.
    pub follows: Option<Follows>,
    pub hyperlink: bool,
    /// Whether the places of names follow the listing.
    pub dired: bool,
    /// Entries that are not listed, and those that are listed only with -a or -A.
    pub ignored: Vec<Pattern>,
    pub unless_all: Vec<Pattern>,
    pub numeric: bool,
    pub owner: bool,
    pub group: bool,
    pub author: bool,
    pub time: WhichTime,
    pub time_style: TimeStyle,
    pub order: Order,
    /// Memory for sorting, if it was given.
    pub sort_memory: Option<u64>,
    pub quote: Quote,
    pub screen: Screen,
    /// None: names have no colours.
    pub colours: Option<Palette>,
    /// Whether to print paths instead of names, without headers.
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

/// Prints a warning that changes neither the listing nor the exit status.
fn warn(text: &str) {
    Status::Well.say(Status::Well, text);
}

fn tab_width(args: &Args) -> usize {
    const TAB: usize = 8;
    let from_env = || {
        let text = env::var_os("TABSIZE")?;
        let tab = text.to_str().and_then(|text| parse_tab(text).ok());
        if tab.is_none() {
            let text = in_message(text.as_bytes());
            warn(&format!("ignoring invalid tab size in environment variable TABSIZE: {text}"));
        }
        tab
    };
    args.tab.or_else(from_env).unwrap_or(TAB)
}

impl Plan {
    /// Resolves the arguments.
    ///
    /// # Errors
    /// The arguments conflict, or the time style is unknown. The text names them.
    pub fn new(args: &LsArgs) -> Result<Self, String> {
        let terminal = std::io::stdout().is_terminal();
        let LsArgs { options: args, choices } = args;
        let long = choices.format == Some(Format::Long);
        let form = form_of(args, choices, terminal);
        let machine = matches!(form, Form::Json | Form::Csv);
        let colour = choices.color.holds(terminal) && !machine;
        let colours = if colour { Palette::from_env(warn) } else { None };
        let is_wide = form == Form::Columns || colour;
        let width = if is_wide { screen_width(args, terminal) } else { DEFAULT_WIDTH };
        let tab = if form == Form::Columns { tab_width(args) } else { 0 };
        let time = choices.time.unwrap_or(WhichTime::Mtime);
        let hyperlink = choices.hyperlink.holds(terminal) && !machine;
        let dired = args.dired && form == Form::Long && !hyperlink;
        if dired && choices.zero {
            return Err("--dired and --zero do not go together".to_owned());
        }
        let (block_scale, file_scale) = scales(args, choices);
        let patterns = |given: &[std::ffi::OsString]| given.iter().map(|text| Pattern::new(text.as_bytes())).collect();
        let mut ignored: Vec<Pattern> = patterns(&args.ignore);
        if args.ignore_backups {
            ignored.extend([Pattern::new(b"*~"), Pattern::new(b".*~")]);
        }
        let mut plan = Self {
            form,
            long,
            hidden: choices.hidden,
            directory: args.directory,
            recursive: args.recursive && !args.directory,
            one_file_system: args.one_file_system,
            xattr: args.xattr,
            block_scale,
            file_scale,
            inode: args.inode,
            blocks: choices.blocks,
            context: args.context,
            indicators: choices.indicators,
            follows: choices.follows,
            hyperlink,
            dired,
            ignored,
            unless_all: if choices.hidden == Hidden::Skip { patterns(&args.hide) } else { Vec::new() },
            numeric: args.numeric,
            owner: !args.no_owner,
            group: !args.no_group && !args.hide_group,
            author: args.author,
            time,
            time_style: if form == Form::Long { time_style(choices)? } else { TimeStyle::Locale },
            order: Order {
                by: sort_by(choices, machine, long),
                time,
                reverse: args.reverse,
                directories_first: args.group_directories_first,
                names: Quote::new(Quoting::Literal),
                aligns_quotes: false,
            },
            sort_memory: args.sort_memory,
            quote: quote(choices, terminal, machine),
            screen: Screen {
                width,
                tab: if colours.is_none() { tab } else { 0 },
                layout: match choices.format {
                    Some(Format::Across) => Layout::Across,
                    Some(Format::Commas) => Layout::Commas,
                    _ => Layout::Down,
                },
                eol: if choices.zero { 0 } else { b'\n' },
            },
            colours,
            paths: args.zero_paths && args.recursive && form == Form::Lines,
        };
        (plan.order.names, plan.order.aligns_quotes) = (plan.quote, plan.aligns_quotes());
        Ok(plan)
    }

    /// The width of a text on the screen.
    pub fn text_width(&self, text: &[u8]) -> usize {
        self.quote.width(text)
    }

    /// Whether the form is for programs.
    pub fn is_machine(&self) -> bool {
        matches!(self.form, Form::Json | Form::Csv)
    }

    /// Whether a directory gets a line with the blocks of its entries.
    pub fn has_total(&self) -> bool {
        !self.is_machine() && (self.long || self.blocks)
    }

    /// Whether targets of links are read.
    pub fn wants_target(&self) -> bool {
        self.long && !self.follows_all()
    }

    /// Whether all links are followed.
    pub fn follows_all(&self) -> bool {
        self.follows == Some(Follows::Always)
    }

    /// Whether an entry is left out because of its name.
    pub fn leaves_out(&self, name: &[u8]) -> bool {
        let is_hidden = self.hidden == Hidden::Skip && name.first() == Some(&b'.');
        let utf8 = self.quote.utf8;
        is_hidden
            || self.ignored.iter().any(|pattern| pattern.matches(name, utf8))
            || self.unless_all.iter().any(|pattern| pattern.matches(name, utf8))
    }

    /// Whether entries may be left out because of their names.
    pub fn leaves_some_out(&self) -> bool {
        self.hidden == Hidden::Skip || !self.ignored.is_empty()
    }

    /// The quoting of directory names in headers. A colon at the end of an unquoted name would look
    /// like that of the header.
    pub fn header_quote(&self) -> Quote {
        Quote { marks: b":", ..self.quote }
    }

    /// The quoting of names outside of the list of names.
    pub fn shell_quote(&self) -> Quote {
        Quote { style: Quoting::ShellEscape, marks: b"", ..self.quote }
    }

    /// Whether the targets of links are looked at.
    pub fn wants_link_end(&self) -> bool {
        let long = self.form == Form::Long;
        let asked = (self.indicators >= Indicators::FileType && long) || self.order.groups();
        let coloured = self.colours.as_ref().is_some_and(|colours| colours.wants_link_end(long));
        !self.follows_all() && (asked || coloured)
    }

    /// Whether ls would read the attributes of regular files, and not only their names and kinds.
    pub fn wants_files(&self) -> bool {
        let by_attributes = matches!(self.order.by, SortBy::Size | SortBy::Time);
        let shown = self.long || self.blocks || self.context || self.hyperlink;
        let classified = self.indicators == Indicators::Classify;
        by_attributes || shown || classified || self.colours.as_ref().is_some_and(Palette::wants_modes)
    }

    /// Whether executables are checked for capabilities, and no other extended attributes are read.
    pub fn looks_for_capabilities(&self) -> bool {
        self.colours.as_ref().is_some_and(Palette::wants_capabilities) && !self.wants_xattr_names()
    }

    /// The sequence that resets colours after a signal. None if stdout is not a terminal, or if
    /// signals cannot be caught.
    pub fn restorer(&self) -> Option<Restorer> {
        let palette = self.colours.as_ref().filter(|_| std::io::stdout().is_terminal())?;
        Restorer::new(palette.after()).ok()
    }

    /// The sequence that clears the rest of a line after a coloured name.
    pub fn clear(&self) -> &[u8] {
        self.colours.as_ref().map_or(&[], Palette::clear)
    }

    /// Whether entries that are printed as they are read widen each other's columns. If ls prints
    /// them as read too, they do not.
    pub fn aligns(&self) -> bool {
        let streams = self.form == Form::Lines && !self.blocks && !self.recursive;
        !self.is_machine() && !streams
    }

    /// Whether names without quotes are indented so that they align with quoted ones.
    pub fn aligns_quotes(&self) -> bool {
        let columns = self.form == Form::Columns && self.screen.layout != Layout::Commas;
        (self.form == Form::Long || (columns && self.screen.width != 0)) && self.quote.quotes_some()
    }

    /// The options of the record stream.
    pub fn walk_options(&self) -> WalkOptions {
        let scan = Options::new()
            .mask(self.mask())
            .fields(self.fields())
            .dots(self.hidden == Hidden::All)
            .follow(self.follows_all());
        let descent = if self.order.by == SortBy::None { Descent::AsFound } else { Descent::Sorted };
        WalkOptions::new().scan(scan).one_file_system(self.one_file_system).descent(descent)
    }

    fn mask(&self) -> Mask {
        let coloured = self.colours.as_ref().is_some_and(Palette::wants_directory_modes);
        let numbered = self.inode || self.order.by == SortBy::Inode;
        // The directory entry of a link does not tell what the target is.
        let kinds =
            self.recursive || self.colours.is_some() || self.indicators != Indicators::None || self.order.groups();
        let shown = self.wants_files() || numbered || coloured || (self.follows_all() && kinds);
        let mut mask = Mask::empty();
        mask.set(Mask::STAT, shown);
        mask.set(Mask::XATTR_NAMES, self.wants_xattr_names());
        mask.set(Mask::XATTR_VALUES, self.xattr == Some(XattrLevel::Values) || self.context);
        mask.set(Mask::LINK_TARGETS, self.wants_target());
        mask.set(Mask::LINK_ENDS, self.wants_link_end());
        mask.set(Mask::CAPABILITIES, self.looks_for_capabilities());
        mask
    }

    fn wants_xattr_names(&self) -> bool {
        // The marks of access control lists need the names of extended attributes: one more call
        // per entry. A streaming listing leaves them out, because its columns would shift at the
        // first mark.
        let marks = self.form == Form::Long && self.order.sorts();
        marks || self.xattr.is_some() || self.context
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

fn form_of(args: &Args, choices: &Choices, terminal: bool) -> Form {
    match choices.format {
        _ if args.json => Form::Json,
        _ if args.csv => Form::Csv,
        Some(Format::Long) => Form::Long,
        // Extended attributes have their own lines below the name.
        _ if args.xattr.is_some() => Form::Lines,
        Some(Format::Columns | Format::Across | Format::Commas) => Form::Columns,
        None if terminal => Form::Columns,
        _ => Form::Lines,
    }
}

/// The units of blocks and of file sizes.
fn scales(args: &Args, choices: &Choices) -> (Scale, Scale) {
    if let Some(scale) = choices.scale {
        return (scale, scale);
    }
    let (blocks, files) = Scale::from_env();
    (if args.kibibytes { Scale::KIB } else { blocks }, files)
}

fn time_style(choices: &Choices) -> Result<TimeStyle, String> {
    match (&choices.time_style, env::var("TIME_STYLE")) {
        (Some(style), _) => TimeStyle::parse(style).map_err(|error| format!("--time-style={style}: {error}")),
        (None, Ok(style)) => TimeStyle::parse(&style).map_err(|error| format!("TIME_STYLE={style}: {error}")),
        _ => Ok(TimeStyle::Locale),
    }
}

/// As in ls: the time that was selected is the order, if it is not shown.
fn sort_by(choices: &Choices, machine: bool, long: bool) -> SortBy {
    choices.sort.unwrap_or(match (machine, choices.time.is_some() && !long) {
        (true, _) => SortBy::None,
        (false, true) => SortBy::Time,
        (false, false) => SortBy::Name,
    })
}

fn quoting_from_env() -> Option<Quoting> {
    let word = env::var_os("QUOTING_STYLE")?;
    let style = word.to_str().and_then(|word| QUOTING.find(word));
    if style.is_none() {
        let word = in_message(word.as_bytes());
        warn(&format!("ignoring invalid value of environment variable QUOTING_STYLE: {word}"));
    }
    style
}

fn quote(choices: &Choices, terminal: bool, machine: bool) -> Quote {
    let default = if terminal { Quoting::ShellEscape } else { Quoting::Literal };
    let style = match choices.quoting {
        _ if machine => Quoting::Literal,
        Some(style) => style,
        None => quoting_from_env().unwrap_or(default),
    };
    // The indicator characters are quoted in names. As in ls, so is a space if names are escaped.
    let marks: &[u8] = match (choices.indicators, style == Quoting::Escape) {
        (Indicators::None | Indicators::Slash, false) => b"",
        (Indicators::None | Indicators::Slash, true) => b" ",
        (Indicators::FileType, false) => b"*=>@|",
        (Indicators::FileType, true) => b"*=>@| ",
        (Indicators::Classify, false) => b"=>@|",
        (Indicators::Classify, true) => b"=>@| ",
    };
    Quote { style, utf8: locale_is_utf8(), hide: choices.hide.unwrap_or(terminal) && !machine, marks }
}
