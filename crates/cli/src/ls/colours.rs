//! Colours of names, by LS_COLORS.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt};

use lscolors::{Indicator, LsColors};
use pando_vfs::FileKind;

use super::entry::{Entry, LinkEnd};

/// What to write before a coloured name, and what after.
type Around = (Box<[u8]>, Box<[u8]>);

/// The colours that LS_COLORS asks for, or those that ls has without it.
pub struct Colours {
    colours: LsColors,
    known: HashMap<Indicator, Option<Around>>,
    by_name: Option<Around>,
}

/// What decides about a colour.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    name: &'a [u8],
    kind: Option<FileKind>,
    mode: u32,
    nlink: u32,
    capability: bool,
    orphan: bool,
    missing: bool,
}

impl<'a> Subject<'a> {
    /// An entry itself.
    pub fn of(entry: &Entry<'a>) -> Self {
        Self {
            name: entry.name,
            kind: entry.kind,
            mode: entry.attr.map_or(0, |attr| attr.mode),
            nlink: entry.attr.map_or(1, |attr| attr.nlink),
            capability: entry.attr.is_some() && entry.xattrs.clone().any(|xattr| xattr.name == b"security.capability"),
            orphan: entry.link_end == LinkEnd::Nothing,
            missing: false,
        }
    }

    /// What a link leads to.
    pub fn target_of(entry: &'a Entry<'_>) -> Self {
        let mode = if let LinkEnd::Mode(mode) = entry.link_end { mode } else { 0 };
        Self {
            name: entry.target.unwrap_or_default(),
            kind: FileKind::from_mode(mode).filter(|_| mode != 0),
            mode,
            nlink: 1,
            capability: false,
            orphan: false,
            missing: entry.link_end == LinkEnd::Nothing,
        }
    }

    fn indicator(self) -> Indicator {
        let bit = |bits: u32| self.mode & bits != 0;
        match self.kind {
            _ if self.missing => Indicator::MissingFile,
            None => Indicator::Normal,
            Some(FileKind::Symlink) if self.orphan => Indicator::OrphanedSymbolicLink,
            Some(FileKind::Symlink) => Indicator::SymbolicLink,
            Some(FileKind::Fifo) => Indicator::FIFO,
            Some(FileKind::Socket) => Indicator::Socket,
            Some(FileKind::CharDevice) => Indicator::CharacterDevice,
            Some(FileKind::BlockDevice) => Indicator::BlockDevice,
            Some(FileKind::Directory) => match (bit(0o1000), bit(0o002)) {
                (true, true) => Indicator::StickyAndOtherWritable,
                (false, true) => Indicator::OtherWritable,
                (true, false) => Indicator::Sticky,
                (false, false) => Indicator::Directory,
            },
            Some(FileKind::File) if bit(0o4000) => Indicator::Setuid,
            Some(FileKind::File) if bit(0o2000) => Indicator::Setgid,
            Some(FileKind::File) if self.capability => Indicator::Capabilities,
            Some(FileKind::File) if bit(0o111) => Indicator::ExecutableFile,
            Some(FileKind::File) if self.nlink > 1 => Indicator::MultipleHardLinks,
            Some(FileKind::File) => Indicator::RegularFile,
        }
    }
}

impl Colours {
    /// As the environment says.
    pub fn from_env() -> Self {
        Self { colours: LsColors::from_env().unwrap_or_default(), known: HashMap::new(), by_name: None }
    }

    /// Appends what `write` appends, coloured.
    pub fn paint<T>(&mut self, subject: Subject<'_>, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let Some((before, after)) = self.around(subject) else { return write(out) };
        out.extend_from_slice(before);
        let result = write(out);
        out.extend_from_slice(after);
        result
    }

    fn around(&mut self, subject: Subject<'_>) -> Option<&Around> {
        let indicator = subject.indicator();
        let colours = &self.colours;
        if matches!(indicator, Indicator::RegularFile | Indicator::MultipleHardLinks) {
            let by_name = colours.style_for_str(&OsStr::from_bytes(subject.name).to_string_lossy());
            if let Some(around) = by_name.and_then(around) {
                return Some(self.by_name.insert(around));
            }
        }
        self.known.entry(indicator).or_insert_with(|| colours.style_for_indicator(indicator).and_then(around)).as_ref()
    }
}

fn around(style: &lscolors::Style) -> Option<Around> {
    let style = style.to_nu_ansi_term_style();
    let before = style.prefix().to_string();
    (!before.is_empty()).then(|| (before.into_bytes().into(), style.suffix().to_string().into_bytes().into()))
}
