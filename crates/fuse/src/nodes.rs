//! Node numbers: the numbers by which the kernel refers to inodes.
//!
//! A node number is the inode's number, with one exception: the kernel calls the root 1. If the
//! tree numbers its root otherwise, the two numbers are swapped. The tree stores the kernel's
//! look-up counts ([`Exports`]).
//!
//! A file handle (`name_to_handle_at`, NFS) is a node number and a generation. The kernel may use
//! it after it has forgotten the node. So a tree in memory, and one in a store, find an inode by
//! its number for as long as the inode has a name. The generation of the root is 0, which the
//! kernel requires. Those of other nodes differ between trees, so that a handle of another tree is
//! stale here. As a rule they are random, and the same for all nodes of a mount, because numbers
//! are not reused while a tree lives. Those of a store are the same in each mount. A crash may undo
//! a creation, and the number may be used again. So they depend on the birth time, too.
//!
//! If trees are mounted in each other and one of them has a backing, two inodes may have the same
//! number. Then only some of the trees are served: the root's tree, or all trees without a backing.
//! A look-up that would lead into another tree fails with EXDEV.

use std::hash::{BuildHasher, RandomState};

use pando_vfs::{DentryRef, Error, Exports, FileKind, Result, Stat, Vfs, records};

/// The node number of the root (`FUSE_ROOT_ID`).
const ROOT: u64 = 1;

/// An inode as the kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The node number.
    pub node: u64,
    /// Together with `node`, a file handle. A node of another tree has the same one only by an
    /// unlikely chance.
    pub generation: u32,
    /// The attributes.
    pub stat: Stat,
    /// The kernel must not keep the attributes: it may be changing the inode without a request.
    pub expired: bool,
}

/// The number of blocks that is reported to the kernel. tar takes a file without blocks for one
/// hole, but the kernel may have dirty pages of it. (ext4 also reports a block for a file that it
/// stores in the inode.)
fn shown_blocks(kind: FileKind, size: u64, blocks: u64) -> u64 {
    if kind == FileKind::File && size > 0 { blocks.max(1) } else { blocks }
}

/// The node number of an inode number, and the reverse, in a tree whose root has the number `root`.
pub(crate) fn swap_root(number: u64, root: u64) -> u64 {
    match number {
        ROOT => root,
        number if number == root => ROOT,
        number => number,
    }
}

/// The nodes of one mount.
pub(crate) struct Nodes {
    exports: Exports,
    root: DentryRef,
    generation: Generation,
}

/// The generations of the nodes of one mount.
#[derive(Debug, Clone, Copy)]
enum Generation {
    /// The same for all.
    OfMount(u32),
    /// One for each inode of the tree with this identity.
    OfInodes(u64),
}

impl Generation {
    /// That of a file with these attributes.
    fn of(self, stat: &Stat) -> u32 {
        match self {
            Self::OfMount(generation) => generation,
            Self::OfInodes(identity) => narrow((identity ^ stat.btime.0.cast_unsigned()).wrapping_mul(MIX)),
        }
    }
}

/// An odd number that mixes bits: 2 to the power of 64, divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generation of these bits: the kernel keeps it in a signed 32-bit word.
const fn narrow(bits: u64) -> u32 {
    (bits >> 33) as u32 | 1
}

impl Nodes {
    pub(crate) fn new(vfs: &Vfs) -> Self {
        let root = vfs.root();
        let exports = vfs.exports();
        let random = || Generation::OfMount(narrow(RandomState::new().hash_one(0)));
        let generation = exports.identity().map_or_else(random, Generation::OfInodes);
        Self { exports, root, generation }
    }

    /// The inode of `node`.
    ///
    /// # Errors
    /// ESTALE if the kernel was never given this number, or the inode has neither a look-up count
    /// nor a name.
    pub(crate) fn get(&self, node: u64) -> Result<DentryRef> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        self.exports.ilookup(self.number(node)).ok_or(Error::Stale)
    }

    /// The inode of a file handle's node, also if the kernel has forgotten the node. Waits for the
    /// tree's backing if need be.
    ///
    /// # Errors
    /// ESTALE if there is no such inode, or it has no name, or the backing does not find inodes by
    /// numbers. Those of the backing.
    pub(crate) fn find(&self, node: u64) -> Result<DentryRef> {
        if node == ROOT { Ok(self.root.clone()) } else { self.exports.find(self.number(node)) }
    }

    /// An inode with the attributes `stat`, as the kernel sees it.
    pub(crate) fn attr(&self, mut stat: Stat) -> Attr {
        stat.blocks = shown_blocks(stat.kind, stat.size, stat.blocks);
        let node = self.number(stat.ino);
        Attr { node, generation: if node == ROOT { 0 } else { self.generation.of(&stat) }, stat, expired: false }
    }

    /// Changes the attributes of a record to what [`Nodes::attr`] shows.
    pub(crate) fn update(&self, attr: &mut records::Attr) {
        attr.ino = self.number(attr.ino);
        if let Some(kind) = attr.kind() {
            attr.blocks = shown_blocks(kind, attr.size, attr.blocks);
        }
    }

    /// The node number of an inode number, and the reverse.
    pub(crate) fn number(&self, number: u64) -> u64 {
        swap_root(number, self.root.ino())
    }

    /// The kernel drops `lookups` of its counts of `node`.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        // The root is never counted: it lives as long as the mount.
        if node != ROOT {
            self.exports.forget(self.number(node), lookups);
        }
    }

    /// Drops all counts: the connection has ended.
    pub(crate) fn forget_all(&self) {
        self.exports.forget_all();
    }

    /// Starts a reply that counts nodes.
    pub(crate) fn start_reply(&self) -> CountedReply<'_> {
        CountedReply { nodes: self, counted: Vec::new() }
    }
}

/// The look-ups that one reply counts. They are taken back if this is dropped before
/// [`CountedReply::commit`], after an error or a panic.
pub(crate) struct CountedReply<'a> {
    nodes: &'a Nodes,
    counted: Vec<u64>,
}

impl CountedReply<'_> {
    /// Counts one look-up of `dentry`.
    ///
    /// # Errors
    /// EXDEV if another inode may have the same number.
    pub(crate) fn count(&mut self, dentry: &DentryRef) -> Result<()> {
        let ino = dentry.ino();
        let is_root = ino == self.nodes.root.ino();
        self.nodes.exports.remember(dentry, u64::from(!is_root))?;
        if !is_root {
            self.counted.push(ino);
        }
        Ok(())
    }

    /// Takes back the count of `dentry`, which was counted last but did not fit into the reply.
    pub(crate) fn uncount(&mut self, dentry: &DentryRef) {
        if let Some(ino) = self.counted.pop_if(|last| *last == dentry.ino()) {
            self.nodes.exports.forget(ino, 1);
        }
    }

    /// The reply will be sent: the kernel now owns the counts.
    pub(crate) fn commit(mut self) {
        self.counted.clear();
    }
}

impl Drop for CountedReply<'_> {
    fn drop(&mut self) {
        for &ino in &self.counted {
            self.nodes.exports.forget(ino, 1);
        }
    }
}
