//! The directories within a directory, kept until it is their turn.

use std::{cmp::Ordering, fmt, ops::Range, sync::Arc};

use pando_vfs::bulk::Record;

use super::ahead::Ahead;

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

struct Kept {
    name: Range<usize>,
    position: u64,
    expected: Option<Expected>,
    ahead: Option<Arc<Ahead>>,
}

/// A child whose turn it is.
pub(super) struct Taken<'a> {
    pub name: &'a [u8],
    pub expected: Option<Expected>,
    pub ahead: Option<Arc<Ahead>>,
}

/// A child whose turn comes.
pub(super) struct Coming<'a> {
    pub name: &'a [u8],
    pub expected: Option<Expected>,
    pub ahead: &'a mut Option<Arc<Ahead>>,
}

/// The directories found in a directory, in its order. Whoever reads the walk may put them into another order, or
/// take some away. Memory for them is not in the budget: 56 bytes and the name for each that is still to be entered, on
/// all levels down to the one that is read; and in that one, while it is read, up to three times as much.
#[derive(Default)]
pub struct Children {
    names: Vec<u8>,
    kept: Vec<Kept>,
    next: usize,
}

// There may be millions: what the documentation says of them holds.
const _: () = assert!(size_of::<Kept>() <= 56);

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
        self.kept.push(Kept { name: begin..self.names.len(), position, expected, ahead: None });
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

    /// No more will come: what was kept for more is given back.
    pub(super) fn settle(&mut self) {
        self.kept.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    pub(super) fn take(&mut self) -> Option<Taken<'_>> {
        let kept = self.kept.get_mut(self.next)?;
        self.next += 1;
        let ahead = kept.ahead.take();
        Some(Taken { name: &self.names[kept.name.clone()], expected: kept.expected, ahead })
    }

    /// The next ones, at most so many.
    pub(super) fn coming(&mut self, most: usize) -> impl Iterator<Item = Coming<'_>> {
        let names = &self.names;
        self.kept[self.next..].iter_mut().take(most).map(|kept| Coming {
            name: &names[kept.name.clone()],
            expected: kept.expected,
            ahead: &mut kept.ahead,
        })
    }

    /// Lets the last one go that is read ahead; none if there is none.
    pub(super) fn let_go(&mut self) -> Option<()> {
        self.kept[self.next..].iter_mut().rev().find_map(|kept| kept.ahead.take()).map(drop)
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
