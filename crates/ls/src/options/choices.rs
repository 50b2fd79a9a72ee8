//! Which of the options that override each other are in effect. Their order on the command line
//! decides.

use std::io::IsTerminal;

use clap::{ArgMatches, Id, parser::ValueSource};
use pando_console::quote::Quoting;

use crate::{
    options::Options,
    text::{
        scale::Scale,
        values::{Format, Hidden, Indicators, SortBy, When, WhichTime},
    },
};

/// Which links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Links to directories on the command line.
    ArgumentDirectories,
    /// Links on the command line.
    Arguments,
    /// All links.
    Always,
}

/// The options in effect.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of the command line.
pub struct Choices {
    /// None: it depends on whether stdout is a terminal.
    pub format: Option<Format>,
    pub hidden: Hidden,
    /// None: by name, or by the selected time.
    pub sort: Option<SortBy>,
    /// None: the mtime.
    pub time: Option<WhichTime>,
    /// None: from the environment.
    pub time_style: Option<String>,
    pub color: When,
    pub hyperlink: When,
    /// Whether to show blocks.
    pub blocks: bool,
    pub indicators: Indicators,
    /// None: from the environment, or by whether stdout is a terminal.
    pub quoting: Option<Quoting>,
    /// Whether question marks replace unprintable characters. None: it depends on whether stdout is
    /// a terminal.
    pub hide: Option<bool>,
    /// Units of sizes. None: from the environment.
    pub scale: Option<Scale>,
    /// None: it depends on the format.
    pub follows: Option<Follows>,
    /// Whether lines end with a zero byte.
    pub zero: bool,
}

impl Choices {
    /// Resolves the options.
    pub fn new(matches: &ArgMatches, options: &Options) -> Self {
        let mut choices = Self {
            format: None,
            hidden: Hidden::Skip,
            sort: None,
            time: None,
            time_style: None,
            color: When::Never,
            hyperlink: When::Never,
            blocks: false,
            indicators: Indicators::None,
            quoting: None,
            hide: None,
            scale: None,
            follows: None,
            zero: false,
        };
        let given = |id: &&Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let place = |id: &str| match id {
            // A word without effect overrides nothing.
            "classify" => last_that_holds(matches, &options.classify),
            id => matches.indices_of(id).and_then(Iterator::last),
        };
        let ids = matches.ids().filter(given).map(Id::as_str);
        let mut placed: Vec<_> = ids.filter_map(|id| place(id).map(|place| (place, id))).collect();
        placed.sort_unstable();
        for (_, id) in placed {
            choices.take_in(id, options);
        }
        choices
    }

    /// Applies an option. Options are applied in the order of the command line.
    fn take_in(&mut self, id: &str, options: &Options) {
        match id {
            "long" | "no_owner" | "no_group" | "numeric" => self.format = Some(Format::Long),
            "full_time" => (self.format, self.time_style) = (Some(Format::Long), Some("full-iso".to_owned())),
            "columns" => self.format = Some(Format::Columns),
            "across" => self.format = Some(Format::Across),
            "commas" => self.format = Some(Format::Commas),
            "format" => self.format = options.format,
            "one" => self.take_in_lines(),
            "zero" | "zero_paths" => {
                self.take_in_lines();
                (self.zero, self.color, self.hide) = (true, When::Never, Some(false));
                self.quoting = Some(Quoting::Literal);
            }
            "as_is" => {
                (self.hidden, self.sort, self.blocks) = (Hidden::All, Some(SortBy::None), false);
                (self.color, self.hyperlink) = (When::Never, When::Never);
                self.format = self.format.filter(|format| *format != Format::Long);
            }
            "all" => self.hidden = Hidden::All,
            "almost_all" => self.hidden = Hidden::AlmostAll,
            "size" => self.blocks = true,
            "color" => self.color = options.color.unwrap_or(When::Never),
            "hyperlink" => self.hyperlink = options.hyperlink.unwrap_or(When::Never),
            "sort" => self.sort = options.sort,
            "unsorted" => self.sort = Some(SortBy::None),
            "by_size" => self.sort = Some(SortBy::Size),
            "by_time" => self.sort = Some(SortBy::Time),
            "by_version" => self.sort = Some(SortBy::Version),
            "by_extension" => self.sort = Some(SortBy::Extension),
            "time" => self.time = options.time,
            "ctime" => self.time = Some(WhichTime::Ctime),
            "atime" => self.time = Some(WhichTime::Atime),
            "time_style" => self.time_style.clone_from(&options.time_style),
            "classify" | "classify_always" => self.indicators = Indicators::Classify,
            "file_type" => self.indicators = Indicators::FileType,
            "slash" => self.indicators = Indicators::Slash,
            "indicator_style" => self.indicators = options.indicator_style.unwrap_or(Indicators::None),
            "literal" => self.quoting = Some(Quoting::Literal),
            "escape" => self.quoting = Some(Quoting::Escape),
            "quote_name" => self.quoting = Some(Quoting::C),
            "quoting_style" => self.quoting = options.quoting_style,
            "hide_control_chars" => self.hide = Some(true),
            "show_control_chars" => self.hide = Some(false),
            "human_readable" => self.scale = Some(Scale::human(true)),
            "si" => self.scale = Some(Scale::human(false)),
            "block_size" => self.scale = options.block_size,
            "dereference" => self.follows = Some(Follows::Always),
            "dereference_command_line" => self.follows = Some(Follows::Arguments),
            "dereference_command_line_symlink_to_dir" => self.follows = Some(Follows::ArgumentDirectories),
            // The others override nothing.
            _ => {}
        }
    }

    /// Sets the format of one entry per line, unless the long format is in effect.
    fn take_in_lines(&mut self) {
        if self.format != Some(Format::Long) {
            self.format = Some(Format::Lines);
        }
    }
}

/// The index of the last word for --classify that has an effect on this stdout.
fn last_that_holds(matches: &ArgMatches, words: &[When]) -> Option<usize> {
    let terminal = std::io::stdout().is_terminal();
    let places = matches.indices_of("classify")?;
    places.zip(words).rfind(|(_, word)| word.holds(terminal)).map(|(place, _)| place)
}
