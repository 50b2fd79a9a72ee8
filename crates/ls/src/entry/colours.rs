//! Colours of names by LS_COLORS, written as the same sequences as by GNU ls.
//!
//! [`Palette`] is the parsed LS_COLORS, with each sequence built once. [`Brush`] writes the
//! sequences: a reset before the first one, a colour before a name, and a reset after it.

use std::{env, os::unix::ffi::OsStrExt};

use pando_records::FileKind;

use crate::entry::{Entry, LinkEnd};

/// The things that LS_COLORS assigns a sequence to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indicator {
    /// The begin (`lc`) and end (`rc`) of each sequence, and the end of a colour: `ec`, or else
    /// `rs` between the two.
    Left,
    Right,
    End,
    Reset,
    /// Text that is not a name.
    Normal,
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    Block,
    Character,
    /// The missing target of a link, and the link itself.
    Missing,
    Orphan,
    Executable,
    Setuid,
    Setgid,
    Sticky,
    OtherWritable,
    StickyOtherWritable,
    Capability,
    HardLinked,
    /// Clears the line from the cursor on, after a name that may have wrapped to the next line.
    Clear,
}

/// In the order of [`Indicator`]: the two letters in LS_COLORS, and the default of ls. `do` (doors)
/// is accepted and not used, because Linux has no doors.
const INDICATORS: [(&[u8; 2], Option<&[u8]>); 24] = [
    (b"lc", Some(b"\x1b[")),
    (b"rc", Some(b"m")),
    (b"ec", None),
    (b"rs", Some(b"0")),
    (b"no", None),
    (b"fi", None),
    (b"di", Some(b"01;34")),
    (b"ln", Some(b"01;36")),
    (b"pi", Some(b"33")),
    (b"so", Some(b"01;35")),
    (b"bd", Some(b"01;33")),
    (b"cd", Some(b"01;33")),
    (b"mi", None),
    (b"or", None),
    (b"ex", Some(b"01;32")),
    (b"su", Some(b"37;41")),
    (b"sg", Some(b"30;43")),
    (b"st", Some(b"37;44")),
    (b"ow", Some(b"34;42")),
    (b"tw", Some(b"30;42")),
    (b"ca", None),
    (b"mh", None),
    (b"cl", Some(b"\x1b[K")),
    (b"do", None),
];

/// Whether a terminal has these sequences, if LS_COLORS is not set: the terminals that dircolors(1)
/// knows.
fn is_known_terminal(term: &str) -> bool {
    const NAMES: [&str; 18] = [
        "Eterm",
        "ansi",
        "cons25",
        "console",
        "cygwin",
        "dtterm",
        "gnome",
        "hurd",
        "jfbterm",
        "konsole",
        "kterm",
        "linux",
        "linux-c",
        "mlterm",
        "putty",
        "st",
        "terminator",
        "vt100",
    ];
    let digit_first = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    // con80x25
    let is_console = |size: &str| digit_first(size) && size.split('x').skip(1).any(digit_first);
    NAMES.contains(&term)
        || ["color", "direct"].iter().any(|part| term.contains(part))
        || ["rxvt", "screen", "tmux", "xterm"].iter().any(|begin| term.starts_with(begin))
        || term.strip_prefix("con").is_some_and(is_console)
}

/// A suffix of names, and the colour of regular files with that suffix.
#[derive(Debug, Clone)]
struct Suffix {
    end: Box<[u8]>,
    sequence: Box<[u8]>,
}

/// An error in LS_COLORS.
#[derive(Debug, PartialEq, Eq)]
struct Unparsable {
    /// A prefix that ls does not know, or one without a readable value.
    prefix: Option<[u8; 2]>,
}

/// The sequences that LS_COLORS or the defaults of ls assign.
#[derive(Debug, Clone)]
pub struct Palette {
    /// The sequence before a name, by [`Indicator`]. None if the name has no colour.
    sequences: [Option<Box<[u8]>>; INDICATORS.len()],
    /// Which of them are colours: set, and not 0.
    coloured: [bool; INDICATORS.len()],
    /// The suffixes by their last byte in lower case. Later ones in LS_COLORS come first.
    suffixes: Vec<Vec<Suffix>>,
    /// The sequence before text that is not a name.
    normal: Option<Box<[u8]>>,
    after: Box<[u8]>,
    clear: Box<[u8]>,
    /// The sequence at the very end. Empty if it would have no effect.
    last: Box<[u8]>,
    /// Links have the colours of their targets (`ln=target`).
    link_as_target: bool,
}

impl Palette {
    /// The palette of the environment. None if it disables colours or cannot be parsed. The latter
    /// is reported as by ls.
    pub fn from_env(mut say: impl FnMut(&str)) -> Option<Self> {
        let text = env::var_os("LS_COLORS").unwrap_or_default();
        if text.is_empty() {
            let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
            let term = env::var("TERM").unwrap_or_default();
            if !is_set("COLORTERM") && !is_known_terminal(&term) {
                return None;
            }
        }
        let unparsable = match Self::new(text.as_bytes()) {
            Ok(palette) => return Some(palette),
            Err(unparsable) => unparsable,
        };
        if let Some(prefix) = unparsable.prefix {
            say(&format!("unrecognized prefix: {}", pando_console::quote::in_message(&prefix)));
        }
        say("unparsable value for LS_COLORS environment variable");
        None
    }

    fn new(text: &[u8]) -> Result<Self, Unparsable> {
        let mut values = INDICATORS.map(|(_, value)| value.map(Vec::from));
        let mut suffixes = Vec::new();
        let mut rest = text;
        while let Some((&first, after)) = rest.split_first() {
            match first {
                b':' => rest = after,
                b'*' => {
                    rest = after;
                    let unparsable = || Unparsable { prefix: None };
                    let end = read_value(&mut rest, true).ok_or_else(unparsable)?;
                    rest = rest.strip_prefix(b"=").ok_or_else(unparsable)?;
                    suffixes.push((end, read_value(&mut rest, false).ok_or_else(unparsable)?));
                }
                _ => {
                    let (&prefix, after) = rest.split_first_chunk::<2>().ok_or(Unparsable { prefix: None })?;
                    rest = after.strip_prefix(b"=").ok_or(Unparsable { prefix: None })?;
                    let unparsable = || Unparsable { prefix: Some(prefix) };
                    let known =
                        INDICATORS.iter().position(|(letters, _)| **letters == prefix).ok_or_else(unparsable)?;
                    values[known] = Some(read_value(&mut rest, false).ok_or_else(unparsable)?);
                }
            }
        }
        Ok(Self::assembled(values, suffixes))
    }

    /// Builds the sequences.
    fn assembled(values: [Option<Vec<u8>>; INDICATORS.len()], given: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        let coloured = values.each_ref().map(|value| is_colour(value.as_deref()));
        let value = |indicator| values[indicator as usize].as_deref().unwrap_or_default();
        let (left, right) = (value(Indicator::Left), value(Indicator::Right));
        let normal =
            coloured[Indicator::Normal as usize].then(|| [left, value(Indicator::Normal), right].concat().into());
        // A reset, so that the colour of a name is not mixed with that of other text.
        let plain = if normal.is_some() { [left, right].concat() } else { Vec::new() };
        let sequence = |value: &[u8]| -> Box<[u8]> { [&plain, left, value, right].concat().into() };
        let mut suffixes = vec![Vec::new(); 256];
        for (end, value) in given.into_iter().rev() {
            let suffix = Suffix { end: end.as_slice().into(), sequence: sequence(&value) };
            match end.last() {
                Some(last) => suffixes[usize::from(last.to_ascii_lowercase())].push(suffix),
                // An empty suffix matches every name.
                None => suffixes.iter_mut().for_each(|suffixes| suffixes.push(suffix.clone())),
            }
        }
        let after = match &values[Indicator::End as usize] {
            Some(end) => end.clone(),
            None => [left, value(Indicator::Reset), right].concat(),
        };
        let last = if (left, right) == (b"\x1b[", b"m") { Vec::new() } else { [left, right].concat() };
        Self {
            normal,
            coloured,
            suffixes,
            after: after.into(),
            clear: value(Indicator::Clear).into(),
            last: last.into(),
            link_as_target: value(Indicator::Link) == b"target",
            sequences: values.each_ref().map(|value| value.as_deref().map(sequence)),
        }
    }

    fn has(&self, indicator: Indicator) -> bool {
        self.coloured[indicator as usize]
    }

    /// Whether the targets of links must be looked at.
    pub fn wants_link_end(&self, long: bool) -> bool {
        self.has(Indicator::Orphan)
            || (self.has(Indicator::Executable) && self.link_as_target)
            || (self.has(Indicator::Missing) && long)
    }

    /// Whether the modes of regular files affect colours.
    pub fn wants_modes(&self) -> bool {
        [Indicator::Executable, Indicator::Setuid, Indicator::Setgid].iter().any(|&indicator| self.has(indicator))
            || self.wants_capabilities()
    }

    /// Whether the modes of directories affect colours.
    pub fn wants_directory_modes(&self) -> bool {
        let bits = [Indicator::Sticky, Indicator::OtherWritable, Indicator::StickyOtherWritable];
        bits.iter().any(|&indicator| self.has(indicator))
    }

    /// Whether files with capabilities have a colour.
    pub fn wants_capabilities(&self) -> bool {
        self.has(Indicator::Capability)
    }

    /// The sequence that ends a colour.
    pub fn after(&self) -> &[u8] {
        &self.after
    }

    /// The sequence that clears the rest of the line after a name that may have wrapped.
    pub fn clear(&self) -> &[u8] {
        &self.clear
    }

    /// The first of these indicators that has a colour, or else the last.
    fn first_of(&self, candidates: &[(bool, Indicator)], otherwise: Indicator) -> Indicator {
        let found = candidates.iter().find(|&&(holds, indicator)| holds && self.has(indicator));
        found.map_or(otherwise, |&(_, indicator)| indicator)
    }

    fn indicator(&self, subject: Subject<'_>) -> Indicator {
        let Some(mode) = subject.mode else {
            return match subject.kind {
                Some(FileKind::File) => Indicator::File,
                Some(FileKind::Directory) => Indicator::Directory,
                kind => without_modes(kind),
            };
        };
        let bits = |bits: u32| mode & bits == bits;
        match subject.kind {
            Some(FileKind::File) => {
                let candidates = [
                    (bits(0o4000), Indicator::Setuid),
                    (bits(0o2000), Indicator::Setgid),
                    (subject.capability, Indicator::Capability),
                    (mode & 0o111 != 0, Indicator::Executable),
                    (subject.nlink > 1, Indicator::HardLinked),
                ];
                self.first_of(&candidates, Indicator::File)
            }
            Some(FileKind::Directory) => {
                let candidates = [
                    (bits(0o1002), Indicator::StickyOtherWritable),
                    (bits(0o0002), Indicator::OtherWritable),
                    (bits(0o1000), Indicator::Sticky),
                ];
                self.first_of(&candidates, Indicator::Directory)
            }
            kind => without_modes(kind),
        }
    }

    /// The sequence before a name.
    fn sequence(&self, subject: Subject<'_>) -> Option<&[u8]> {
        let mut indicator = match subject.missing && self.has(Indicator::Missing) {
            true => Indicator::Missing,
            false => self.indicator(subject),
        };
        if indicator == Indicator::File
            && let Some(last) = subject.name.last()
        {
            let fits = |suffix: &&Suffix| {
                let begin = subject.name.len().checked_sub(suffix.end.len());
                begin.is_some_and(|begin| subject.name[begin..].eq_ignore_ascii_case(&suffix.end))
            };
            if let Some(suffix) = self.suffixes[usize::from(last.to_ascii_lowercase())].iter().find(fits) {
                return Some(&suffix.sequence);
            }
        }
        if indicator == Indicator::Link && subject.orphan && (self.link_as_target || self.has(Indicator::Orphan)) {
            indicator = Indicator::Orphan;
        }
        self.sequences[indicator as usize].as_deref()
    }
}

/// The indicator of a kind whose mode does not matter. The target of a link has no kind if nobody
/// looked at it.
fn without_modes(kind: Option<FileKind>) -> Indicator {
    match kind {
        Some(FileKind::Symlink) => Indicator::Link,
        Some(FileKind::Fifo) => Indicator::Fifo,
        Some(FileKind::Socket) => Indicator::Socket,
        Some(FileKind::BlockDevice) => Indicator::Block,
        Some(FileKind::CharDevice) => Indicator::Character,
        _ => Indicator::Orphan,
    }
}

fn is_colour(value: Option<&[u8]>) -> bool {
    !matches!(value.unwrap_or_default(), b"" | b"0" | b"00")
}

/// Reads a value to its end: a colon, the end of the text, or an equals sign after a name. The
/// escapes are those of ls: `\n`, `\e`, `\_`, `\101`, `\x41` and so on, and `^A`. None if an escape
/// has no end.
fn read_value(rest: &mut &[u8], is_name: bool) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    loop {
        let Some((&byte, after)) = rest.split_first() else { return Some(value) };
        if byte == b':' || (byte == b'=' && is_name) {
            return Some(value);
        }
        *rest = after;
        value.push(match byte {
            b'\\' => read_escape(rest)?,
            // As in ls, the question mark stays.
            b'^' if rest.first() == Some(&b'?') => 0x7f,
            b'^' => match take(rest)? {
                letter @ b'@'..=b'~' => letter & 0x1f,
                _ => return None,
            },
            byte => byte,
        });
    }
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

fn read_escape(rest: &mut &[u8]) -> Option<u8> {
    Some(match take(rest)? {
        digit @ b'0'..=b'7' => read_digits(rest, digit - b'0', 8),
        b'x' | b'X' => read_digits(rest, 0, 16),
        b'a' => 0x07,
        b'b' => 0x08,
        b'e' => 0x1b,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'?' => 0x7f,
        b'_' => b' ',
        byte => byte,
    })
}

/// Any number of digits.
fn read_digits(rest: &mut &[u8], mut number: u8, radix: u8) -> u8 {
    while let Some(digit) = rest.first().and_then(|&byte| char::from(byte).to_digit(u32::from(radix))) {
        number = number.wrapping_mul(radix).wrapping_add(digit as u8);
        *rest = &rest[1..];
    }
    number
}

/// The facts that decide about a colour.
#[derive(Debug, Clone, Copy)]
struct Subject<'a> {
    name: &'a [u8],
    kind: Option<FileKind>,
    /// None if it is not known.
    mode: Option<u32>,
    nlink: u32,
    capability: bool,
    /// A link that is known to lead nowhere.
    orphan: bool,
    /// The missing target of such a link.
    missing: bool,
}

impl<'a> Subject<'a> {
    /// The facts of an entry itself.
    fn of(entry: &Entry<'a>, palette: &Palette) -> Self {
        let own = Self {
            name: entry.name,
            kind: entry.kind,
            mode: entry.attr().map(|attr| attr.mode),
            nlink: entry.attr().map_or(1, |attr| attr.nlink),
            capability: entry.has_capabilities
                || entry.attr.is_some() && entry.xattrs.clone().any(|xattr| xattr.name == CAPABILITY),
            orphan: !matches!(entry.link_end, LinkEnd::Mode(_)),
            missing: false,
        };
        match entry.link_end {
            LinkEnd::Mode(mode) if palette.link_as_target => {
                Self { kind: FileKind::from_mode(mode), mode: Some(mode), ..own }
            }
            _ => own,
        }
    }

    /// The facts of a link's target.
    fn target_of(entry: &Entry<'a>) -> Self {
        let mode = if let LinkEnd::Mode(mode) = entry.link_end { Some(mode) } else { None };
        Self {
            name: entry.target.unwrap_or_default(),
            kind: mode.and_then(FileKind::from_mode),
            mode,
            // As in ls, those of the link.
            nlink: entry.attr().map_or(1, |attr| attr.nlink),
            capability: false,
            orphan: false,
            missing: mode.is_none(),
        }
    }
}

/// The extended attribute with the capabilities of a file.
const CAPABILITY: &[u8] = b"security.capability";

/// Writes colours.
#[derive(Debug)]
pub struct Brush<'p> {
    palette: &'p Palette,
    /// Whether a sequence was written.
    used: bool,
    /// Where the first sequence of a cell was written. Which cell is printed first is not known
    /// yet.
    in_cell: Option<usize>,
    cells: bool,
    /// The number of bytes of sequences.
    pub written: u64,
    /// Whether files with several hard links have their colour: in ls, only if it reads attributes
    /// for another reason.
    pub hard_links: bool,
}

impl<'p> Brush<'p> {
    /// A brush that has written nothing. With `cells`, it writes into the cells of columns.
    pub fn new(palette: &'p Palette, cells: bool) -> Self {
        Self { palette, used: false, in_cell: None, cells, written: 0, hard_links: true }
    }

    /// Where the first sequence begins in the last cell.
    pub fn take_first(&mut self) -> Option<usize> {
        self.in_cell.take()
    }

    fn put(&mut self, sequence: &[u8], out: &mut Vec<u8>) {
        let used = std::mem::replace(&mut self.used, true);
        if self.cells {
            self.in_cell.get_or_insert(out.len());
        } else if !used {
            out.extend_from_slice(&self.palette.after);
            self.written += self.palette.after.len() as u64;
        }
        out.extend_from_slice(sequence);
        self.written += sequence.len() as u64;
    }

    /// Begins text that is not a name.
    pub fn begin_text(&mut self, out: &mut Vec<u8>) {
        if let Some(normal) = &self.palette.normal {
            self.put(normal, out);
        }
    }

    /// Begins the name of an entry.
    pub fn begin_name(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Painted {
        let subject = Subject::of(entry, self.palette);
        self.begin(if self.hard_links { subject } else { Subject { nlink: 1, ..subject } }, out)
    }

    /// Begins the target of a link.
    pub fn begin_target(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Painted {
        self.begin(Subject::target_of(entry), out)
    }

    fn begin(&mut self, subject: Subject<'_>, out: &mut Vec<u8>) -> Painted {
        let sequence = self.palette.sequence(subject);
        if let Some(sequence) = sequence {
            self.put(sequence, out);
        }
        Painted(sequence.is_some() || self.palette.normal.is_some())
    }

    /// Ends a name or a target. Returns whether a colour ended with it.
    pub fn end(&mut self, painted: Painted, out: &mut Vec<u8>) -> bool {
        if painted.0 {
            out.extend_from_slice(&self.palette.after);
            self.written += self.palette.after.len() as u64;
        }
        painted.0
    }

    /// Ends the output.
    pub fn finish(&self, out: &mut Vec<u8>) {
        if self.used {
            out.extend_from_slice(&self.palette.last);
        }
    }
}

/// Whether a sequence that was begun must be ended.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct Painted(bool);
