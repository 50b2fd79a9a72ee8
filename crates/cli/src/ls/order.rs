//! The orders that entries may have.

use std::cmp::Ordering;

use super::{
    args::{SortBy, WhichTime},
    entry::Entry,
};

/// An order.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// By what.
    pub by: SortBy,
    /// Which time, for [`SortBy::Time`].
    pub time: WhichTime,
    /// The other way round.
    pub reverse: bool,
}

/// Two numbers that order most entries by themselves, before anything else is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u64, u64);

/// Bytes as a number of the same order; shorter ones are filled with zeros.
fn prefix(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    let len = bytes.len().min(8);
    number[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(number)
}

/// What follows the last dot, with the dot.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(&[], |dot| &name[dot..])
}

impl Order {
    /// Whether entries are put into an order at all.
    pub fn sorts(&self) -> bool {
        self.by != SortBy::None
    }

    /// The key of an entry. Entries without attributes are as if all their attributes were zero.
    pub fn key(&self, entry: &Entry<'_>) -> Key {
        match self.by {
            SortBy::None => Key(entry.position, 0),
            SortBy::Name => Key(prefix(entry.name), prefix(entry.name.get(8..).unwrap_or_default())),
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

    /// Compares two entries by their keys and their names.
    pub fn compare(&self, one: (Key, &[u8]), other: (Key, &[u8])) -> Ordering {
        let by_name = || match self.by {
            SortBy::Extension => extension(one.1).cmp(extension(other.1)).then_with(|| one.1.cmp(other.1)),
            _ => one.1.cmp(other.1),
        };
        let order = one.0.cmp(&other.0).then_with(by_name);
        if self.reverse { order.reverse() } else { order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ls::entry::tests::example;

    /// A directory that something is mounted on has another number in the directory above it.
    #[test]
    fn inodes_are_sorted_by_the_number_that_is_shown() {
        let order = Order { by: SortBy::Inode, time: WhichTime::Mtime, reverse: false };
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
