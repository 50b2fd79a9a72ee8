//! The orders of entries.

use std::cmp::Ordering;

use pando_console::quote::Quote;
use pando_records::FileKind;

use crate::{
    entry::{Entry, LinkEnd, version},
    text::values::{SortBy, WhichTime},
};

/// An order.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The criterion.
    pub by: SortBy,
    /// Which time, for [`SortBy::Time`].
    pub time: WhichTime,
    /// Reversed.
    pub reverse: bool,
    /// Directories, and links to directories, come first, in any order but none.
    pub directories_first: bool,
    /// The quoting of names, for [`SortBy::Width`].
    pub names: Quote,
    /// Names without quotes are indented.
    pub aligns_quotes: bool,
}

/// Two numbers that decide the order of most entries without comparing anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u64, u64);

/// The sort key of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Sorted<'a> {
    /// Whether it comes before all others, even if the order is reversed.
    pub first: bool,
    pub key: Key,
    pub name: &'a [u8],
}

/// The first bytes as a number of the same order. Shorter ones are padded with zeros.
fn prefix(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    let len = bytes.len().min(8);
    number[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(number)
}

/// The extension, from the last dot on, with the dot.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(&[], |dot| &name[dot..])
}

impl Order {
    /// Whether entries are sorted at all.
    pub fn sorts(&self) -> bool {
        self.by != SortBy::None
    }

    /// Whether directories come first.
    pub fn groups(&self) -> bool {
        self.directories_first && self.sorts()
    }

    /// Whether an entry comes before all others.
    pub fn is_first(&self, entry: &Entry<'_>) -> bool {
        let leads_to_directory = || match entry.link_end {
            LinkEnd::Mode(mode) => FileKind::from_mode(mode) == Some(FileKind::Directory),
            LinkEnd::Unknown | LinkEnd::Nothing => false,
        };
        self.groups() && (entry.kind == Some(FileKind::Directory) || leads_to_directory())
    }

    /// The sort key of an entry.
    pub fn sorted<'a>(&self, entry: &Entry<'a>) -> Sorted<'a> {
        Sorted { first: self.is_first(entry), key: self.key(entry), name: entry.name }
    }

    /// The width of a name. Names without quotes are one column wider if another name has quotes.
    /// If none has, that makes no difference.
    fn width(&self, name: &[u8]) -> u64 {
        let indented = self.aligns_quotes && !self.names.needs_quotes(name);
        (self.names.write(name, &mut Vec::new()) + usize::from(indented)) as u64
    }

    /// The numbers of an entry. Entries without attributes sort as if all attributes were zero.
    pub fn key(&self, entry: &Entry<'_>) -> Key {
        match self.by {
            SortBy::None => Key(entry.position, 0),
            SortBy::Name => Key(prefix(entry.name), prefix(entry.name.get(8..).unwrap_or_default())),
            SortBy::Width => Key(self.width(entry.name), prefix(entry.name)),
            SortBy::Version => Key(0, 0),
            SortBy::Size => Key(!entry.attr().map_or(0, |attr| attr.size), prefix(entry.name)),
            SortBy::Inode => Key(entry.attr().map_or(entry.ino, |attr| attr.ino), prefix(entry.name)),
            SortBy::Extension => {
                let extension = extension(entry.name);
                Key(prefix(extension), prefix(extension.get(8..).unwrap_or_default()))
            }
            SortBy::Time => {
                let time = entry.time(self.time).unwrap_or_default();
                let biased = (time.secs as u64) ^ (1 << 63);
                Key(!biased, u64::from(!time.nanos))
            }
        }
    }

    /// Compares two entries.
    pub fn compare(&self, one: Sorted<'_>, other: Sorted<'_>) -> Ordering {
        let by_name = || match self.by {
            SortBy::Extension => extension(one.name).cmp(extension(other.name)),
            SortBy::Version => version::compare(one.name, other.name),
            _ => Ordering::Equal,
        };
        let order = one.key.cmp(&other.key).then_with(by_name).then_with(|| one.name.cmp(other.name));
        let order = if self.reverse { order.reverse() } else { order };
        other.first.cmp(&one.first).then(order)
    }
}

#[cfg(test)]
pub mod tests {
    use pando_console::quote::Quoting;

    use super::*;
    use crate::entry::tests::example;

    /// An order without anything special.
    pub fn plain(by: SortBy, reverse: bool) -> Order {
        Order {
            by,
            time: WhichTime::Mtime,
            reverse,
            directories_first: false,
            names: Quote::new(Quoting::Literal),
            aligns_quotes: false,
        }
    }

    /// A directory with a mount on it has another inode number in its parent directory.
    #[test]
    fn inodes_are_sorted_by_the_number_that_is_shown() {
        let order = plain(SortBy::Inode, false);
        let numbered = |read, found| {
            let mut entry = Entry { ino: read, ..example(b"n") };
            entry.attr.as_mut().unwrap().to_mut().ino = found;
            order.key(&entry)
        };
        assert!(numbered(9, 1) < numbered(2, 2));
        let unknown = Entry { ino: 3, attr: None, ..example(b"n") };
        assert!(numbered(9, 2) < order.key(&unknown) && order.key(&unknown) < numbered(1, 4));
    }
}
