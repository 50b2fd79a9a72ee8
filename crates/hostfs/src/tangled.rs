//! Large directories whose inodes are out of order, as ext4 has them, and which entries the caller asks for.
//!
//! Extended attributes are read from the inodes themselves, also where the kernel has them all in its caches: in their
//! order the kernel needs a fifth less (100,000 files on ext4; `measure/listing.sh`). So the caller, where it works alone,
//! asks for many entries at a time in the order of their inodes. Attributes alone are at hand: to sort would cost as much as
//! it saves.

use std::hint::black_box;

use pando_vfs::bulk::Names;

use crate::{Order, fill::Asked, job::by_inode};

/// So many entries are sorted at once: the more, the nearer lie those asked for one after the other.
const SORTED_ENTRIES: usize = 1 << 16;
/// Whether inodes are out of order is seen from so many entries on.
const SEEN_FROM: usize = 1024;
/// So many names are touched ahead.
const AHEAD: usize = 16;

/// Whether the caller sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tangled {
    Unknown,
    Yes,
    /// Nor would it pay, or it was tried and came to an early end.
    No,
}

impl Tangled {
    pub fn new(asked: Asked, order: Order) -> Self {
        if asked.wants_xattrs() && order != Order::Directory { Self::Unknown } else { Self::No }
    }

    /// The first names decide: whether every fourth inode comes before that of the entry before, at least.
    pub fn look(&mut self, names: &Names) {
        if *self == Self::Unknown {
            let back = (1..names.len()).filter(|&index| names.ino(index) < names.ino(index - 1)).count();
            let are_tangled = names.len() >= SEEN_FROM && back * 4 >= names.len();
            *self = if are_tangled { Self::Yes } else { Self::No };
        }
    }

    /// How many names the caller wants at once, at least.
    pub fn window(self) -> usize {
        if self == Self::Yes { SORTED_ENTRIES } else { 1 }
    }

    /// All of these, in the order of their inodes, if that is how the caller asks.
    pub fn sorted(self, names: &Names) -> Option<Which> {
        (self == Self::Yes && names.len() >= SEEN_FROM).then(|| Which::Those(by_inode(names, 0..names.len())))
    }
}

/// Which entries the caller asks for.
pub enum Which {
    /// From one on, at most so many.
    From(usize, usize),
    /// Those, in that order.
    Those(Vec<u32>),
}

impl Which {
    pub fn count(&self, names: &Names) -> usize {
        match self {
            Self::From(from, most) => (names.len() - from).min(*most),
            Self::Those(entries) => entries.len(),
        }
    }

    pub fn entry(&self, number: usize) -> usize {
        match self {
            Self::From(from, _) => from + number,
            Self::Those(entries) => entries[number] as usize,
        }
    }

    /// Names lie apart where entries are in another order: now and then those of the next few are read, all at once, so that
    /// each does not wait for memory by itself.
    pub fn touch_ahead(&self, number: usize, names: &Names) {
        if let Self::Those(entries) = self
            && number.is_multiple_of(AHEAD)
        {
            let next = entries.iter().skip(number + AHEAD).take(AHEAD);
            next.for_each(|&entry| _ = black_box(names.name(entry as usize).first().copied()));
        }
    }
}
