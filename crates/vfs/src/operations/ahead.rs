//! Entries of a directory in memory, of which the next ones are on their way into the processor's
//! caches.
//!
//! The objects of entries lie anywhere in memory, so most of their cache lines are misses. While
//! the caller works on one entry, the lines of the next ones are prefetched: an address is read
//! when its line has had the time of a few entries to arrive.

use std::iter::Fuse;

use pando_records::Mask;
use pando_sync::{Guard, Node, Shared, prefetch};

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
/// How many entries ahead the lines of an inode are prefetched.
const INODE: usize = 6;
/// The inode has the address of its extended attributes.
const XATTRS: usize = 5;
/// They have the address of their present map.
const MAP: usize = 4;
/// The map has the address of the bytes.
const BYTES: usize = 2;

impl<'g, I: Iterator<Item = Place<'g>>> Ahead<'g, Fuse<I>> {
    /// Of each entry, the parts in `mask` are prefetched.
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
        if !self.mask.is_empty()
            && let Some(inode) = inode(INODE)
        {
            prefetch(&inode.ino);
            prefetch(&inode.links);
        }
        if self.mask.wants_xattrs() {
            let xattrs = |distance| Some(inode(distance)?.xattrs.load(self.guard)?.to_ref());
            let map = |distance| xattrs(distance)?.get(self.guard);
            xattrs(XATTRS).into_iter().for_each(|xattrs| prefetch(xattrs));
            map(MAP).into_iter().for_each(|map| prefetch(map));
            map(BYTES).into_iter().for_each(XattrMap::prefetch);
        }
        self.at += 1;
        next
    }
}
