//! Node numbers: what the kernel calls an inode by.
//!
//! A node number is the inode's number, except that the kernel calls the root 1: if the tree numbers its root
//! otherwise, the two numbers change places. The tree keeps what the kernel counts ([`Exports`]).
//!
//! A file handle (`name_to_handle_at`, NFS) is a node number and a generation. It may come back after the kernel has
//! forgotten the node, so a tree in memory finds an inode by its number as long as the inode has a name. Numbers are not
//! reused while a tree lives, so all nodes of a mount have one generation. It is drawn at random: a handle of another mount is
//! stale here. The root's is 0, which the kernel insists on.
//!
//! Where trees are mounted in each other and one of them has a backing, two inodes may have one number: of such trees only
//! the root's is served, or those that have no backing, and no name leads into the others (EXDEV).

use std::hash::{BuildHasher, RandomState};

use pando_vfs::{DentryRef, Error, Exports, Result, Vfs};

/// What the kernel calls the root (`FUSE_ROOT_ID`).
const ROOT: u64 = 1;

/// The nodes the kernel knows.
pub(crate) struct Nodes {
    exports: Exports,
    root: DentryRef,
    generation: u32,
}

impl Nodes {
    pub(crate) fn new(vfs: &Vfs) -> Self {
        let root = vfs.root();
        // The kernel keeps it in a signed word of 32 bits.
        let generation = (RandomState::new().hash_one(0) >> 33) as u32 | 1;
        Self { exports: vfs.exports(), root, generation }
    }

    /// The inode that the kernel means by `node`.
    ///
    /// # Errors
    /// ESTALE if the number was never handed out, or the inode has neither a count nor a name.
    pub(crate) fn get(&self, node: u64) -> Result<DentryRef> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        self.exports.iget(self.number(node)).ok_or(Error::Stale)
    }

    /// What distinguishes `node` from a node of another mount that has the same number.
    pub(crate) fn generation(&self, node: u64) -> u32 {
        if node == ROOT { 0 } else { self.generation }
    }

    /// From inode number to node number, and back.
    pub(crate) fn number(&self, number: u64) -> u64 {
        let root = self.root.ino();
        match number {
            ROOT => root,
            number if number == root => ROOT,
            number => number,
        }
    }

    /// The kernel gives up `lookups` of its counts.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        // The root is never counted: it lives as long as the mount.
        if node != ROOT {
            self.exports.forget(self.number(node), lookups);
        }
    }

    /// The kernel has gone, and all its counts with it.
    pub(crate) fn forget_all(&self) {
        self.exports.forget_all();
    }

    /// Starts an answer that hands out nodes.
    pub(crate) fn hand_out(&self) -> Handout<'_> {
        Handout { nodes: self, counted: Vec::new() }
    }
}

/// The counts of one answer: taken back when it is dropped unsent (an error or a panic after some were counted).
pub(crate) struct Handout<'a> {
    nodes: &'a Nodes,
    counted: Vec<u64>,
}

impl Handout<'_> {
    /// Counts one look-up of `dentry`.
    ///
    /// # Errors
    /// EXDEV if something else may have its number.
    pub(crate) fn count(&mut self, dentry: &DentryRef) -> Result<()> {
        let ino = dentry.ino();
        let is_root = ino == self.nodes.root.ino();
        self.nodes.exports.remember(dentry, u64::from(!is_root))?;
        if !is_root {
            self.counted.push(ino);
        }
        Ok(())
    }

    /// Takes back the count of the last one, `dentry`: it is not in the answer after all.
    pub(crate) fn leave_out(&mut self, dentry: &DentryRef) {
        if let Some(ino) = self.counted.pop_if(|last| *last == dentry.ino()) {
            self.nodes.exports.forget(ino, 1);
        }
    }

    /// The answer goes to the kernel, and the counts with it.
    pub(crate) fn sent(mut self) {
        self.counted.clear();
    }
}

impl Drop for Handout<'_> {
    fn drop(&mut self) {
        for &ino in &self.counted {
            self.nodes.exports.forget(ino, 1);
        }
    }
}
