//! The directories within a directory, kept until it is their turn.

use std::{cmp::Ordering, ops::Range};

use pando_vfs::bulk::Record;

/// A directory that will be entered.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Its name in its parent.
    pub name: &'a [u8],
    /// Where it stands in its parent: 0 for the first record handed out, and so on.
    pub position: u64,
}

/// What it must still be when it is opened: device, inode, and whether opening it may mount something there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub dev: (u32, u32),
    pub ino: u64,
    pub automount: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Kept {
    name: Range<usize>,
    position: u64,
    pub expected: Option<Expected>,
}

/// The directories found in a directory, in its order. Whoever reads the walk may put them into another order, or take
/// some away; memory for them is not in the budget: 48 bytes and the name, for each directory on the way down to the one that is read.
#[derive(Debug, Default)]
pub struct Children {
    names: Vec<u8>,
    kept: Vec<Kept>,
    next: usize,
}

/// `STATX_ATTR_AUTOMOUNT`.
const ATTR_AUTOMOUNT: u64 = 0x1000;

impl Children {
    pub(super) fn push(&mut self, record: &Record<'_>, position: u64) {
        let begin = self.names.len();
        self.names.extend_from_slice(record.name());
        let expected = record.attr().filter(|attr| attr.have.contains(crate::Fields::INO)).map(|attr| Expected {
            dev: attr.dev(),
            ino: attr.ino,
            automount: attr.attributes & ATTR_AUTOMOUNT != 0,
        });
        self.kept.push(Kept { name: begin..self.names.len(), position, expected });
    }

    fn child<'a>(names: &'a [u8], kept: &Kept) -> Child<'a> {
        Child { name: &names[kept.name.clone()], position: kept.position }
    }

    /// How many will still be entered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len() - self.next
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that will still be entered, in this order.
    pub fn iter(&self) -> impl Iterator<Item = Child<'_>> {
        self.kept[self.next..].iter().map(|kept| Self::child(&self.names, kept))
    }

    /// Puts them into another order.
    pub fn sort_by(&mut self, mut compare: impl FnMut(Child<'_>, Child<'_>) -> Ordering) {
        let names = &self.names;
        self.kept[self.next..].sort_by(|a, b| compare(Self::child(names, a), Self::child(names, b)));
    }

    /// Keeps only those for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(Child<'_>) -> bool) {
        let names = &self.names;
        self.kept.drain(..self.next);
        self.next = 0;
        self.kept.retain(|kept| keep(Self::child(names, kept)));
    }

    /// Enters none of them.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.next = 0;
    }

    pub(super) fn take(&mut self) -> Option<(&[u8], Option<Expected>)> {
        let kept = self.kept.get(self.next)?;
        self.next += 1;
        Some((&self.names[kept.name.clone()], kept.expected))
    }
}
