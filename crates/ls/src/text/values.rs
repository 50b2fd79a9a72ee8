//! The values of options, and the words for them.

use clap::ValueEnum;
use pando_console::quote::Quoting;

use crate::text::words::Words;

/// A format that ls has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// -l and those that imply it.
    Long,
    /// -1 and --zero.
    Lines,
    /// -C
    Columns,
    /// -x
    Across,
    /// -m
    Commas,
}

/// The words for these values.
pub const FORMATS: Words<Format> = Words::new(&[
    ("verbose", Format::Long),
    ("long", Format::Long),
    ("commas", Format::Commas),
    ("horizontal", Format::Across),
    ("across", Format::Across),
    ("vertical", Format::Columns),
    ("single-column", Format::Lines),
]);

/// The indicator characters after names. Each value includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Indicators {
    /// None.
    None,
    /// `/`
    Slash,
    /// `=`, `@` and `|`
    FileType,
    /// `*`
    Classify,
}

/// The words for these values.
pub const INDICATORS: Words<Indicators> = Words::new(&[
    ("none", Indicators::None),
    ("slash", Indicators::Slash),
    ("file-type", Indicators::FileType),
    ("classify", Indicators::Classify),
]);

/// The words for quoting styles, on the command line and in the environment.
pub const QUOTING: Words<Quoting> = Words::new(&Quoting::WORDS);

/// How much of the extended attributes to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum XattrLevel {
    /// Their names
    Names,
    /// Names and values
    Values,
}

/// When to do something that depends on whether stdout is a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// If standard output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The words for these values.
pub const WHEN: Words<When> = Words::new(&[
    ("always", When::Always),
    ("yes", When::Always),
    ("force", When::Always),
    ("never", When::Never),
    ("no", When::Never),
    ("none", When::Never),
    ("auto", When::Auto),
    ("tty", When::Auto),
    ("if-tty", When::Auto),
]);

impl When {
    /// Whether to do it, on a terminal or elsewhere.
    pub fn holds(self, terminal: bool) -> bool {
        self == Self::Always || (self == Self::Auto && terminal)
    }
}

/// The order of the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortBy {
    /// As they are read.
    None,
    /// By name.
    Name,
    /// Largest first.
    Size,
    /// Newest first.
    Time,
    /// By numbers within names.
    Version,
    /// By extension.
    Extension,
    /// By the width of the names on the screen.
    Width,
    /// By inode number.
    Inode,
}

/// The words for these values.
pub const SORTS: Words<SortBy> = Words::new(&[
    ("none", SortBy::None),
    ("time", SortBy::Time),
    ("size", SortBy::Size),
    ("extension", SortBy::Extension),
    ("version", SortBy::Version),
    ("width", SortBy::Width),
])
.and(&[("name", SortBy::Name), ("inode", SortBy::Inode)]);

/// One of the times of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichTime {
    /// Last change of contents.
    Mtime,
    /// Last access.
    Atime,
    /// Last change of contents or attributes.
    Ctime,
    /// Birth.
    Btime,
}

/// The words for these values.
pub const TIMES: Words<WhichTime> = Words::new(&[
    ("atime", WhichTime::Atime),
    ("access", WhichTime::Atime),
    ("use", WhichTime::Atime),
    ("ctime", WhichTime::Ctime),
    ("status", WhichTime::Ctime),
    ("birth", WhichTime::Btime),
    ("creation", WhichTime::Btime),
])
.and(&[("mtime", WhichTime::Mtime), ("modification", WhichTime::Mtime), ("btime", WhichTime::Btime)]);

/// Which names with a leading dot are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// None.
    Skip,
    /// All but `.` and `..`.
    AlmostAll,
    /// All.
    All,
}
