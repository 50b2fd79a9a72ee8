//! Entries of a directory in memory, of which the next ones are on their way into the processor's
//! caches.
//!
//! The objects of entries lie anywhere in memory, so most of their cache lines are misses. While
//! the caller works on one entry, the lines of the next ones are read. The processor does not wait
//! for a value that nothing depends on.

use std::{hint::black_box, iter::Fuse};

use pando_records::Mask;
use pando_sync::{Guard, Node, Shared};

use crate::{objects::dentry::Dirent, types::xattr_map::XattrMap};

/// An entry of a directory.
type Place<'g> = Shared<'g, Node<Dirent>>;

/// Entries of a directory in memory.
pub(crate) struct Ahead<'g, I> {
    dirents: I,
    /// The next entries, from `at` on.
    ring: [Option<Place<'g>>; AHEAD],
    at: usize,
    mask: Mask,
    guard: &'g Guard,
}

/// How many entries are known before they are returned.
const AHEAD: usize = 8;
/// How many entries ahead an inode is read. It has the address of its map of extended attributes.
const INODE: usize = 6;
/// How many entries ahead that map is read. It has the address of the bytes.
const MAP: usize = 4;
/// How many entries ahead the bytes are read.
const BYTES: usize = 2;

impl<'g, I: Iterator<Item = Place<'g>>> Ahead<'g, Fuse<I>> {
    /// Of each entry, the parts in `mask` are read.
    pub(crate) fn new(dirents: I, mask: Mask, guard: &'g Guard) -> Self {
        let mut dirents = dirents.fuse();
        let ring = std::array::from_fn(|_| dirents.next());
        Self { dirents, ring, at: 0, mask, guard }
    }
}

impl<'g, I: Iterator<Item = Place<'g>>> Iterator for Ahead<'g, I> {
    type Item = Place<'g>;

    fn next(&mut self) -> Option<Place<'g>> {
        let next = std::mem::replace(&mut self.ring[self.at % AHEAD], self.dirents.next());
        let inode = |distance: usize| {
            let dentry = self.ring[(self.at + distance) % AHEAD]?.to_ref().value.load(self.guard)?;
            Some(dentry.to_ref().inode())
        };
        if !self.mask.is_empty() {
            black_box(inode(INODE).map(|inode| (inode.perm(self.guard).mode, inode.size())));
        }
        if self.mask.wants_xattrs() {
            let map = |distance| inode(distance).and_then(|inode| inode.cached_xattrs(self.guard).flatten());
            black_box((map(MAP).map(XattrMap::is_empty), map(BYTES).map(XattrMap::touch)));
        }
        self.at += 1;
        next
    }
}
