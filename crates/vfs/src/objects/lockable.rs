//! What can be locked.

use pando_sync::{LockGranularity, NameKey};

use crate::{
    Result,
    objects::{inode::Inode, superblock::SuperBlock},
};

/// What can be locked: a name, or an inode of a tree with a backing ([`SuperBlock::inode_key`]).
#[derive(Clone, Copy)]
pub(crate) struct Lockable<'g> {
    pub key: NameKey,
    /// Says of a name's key, once that is locked, whether it stands.
    pub grain: Option<&'g LockGranularity>,
}

impl<'g> Lockable<'g> {
    /// The name of this hash in `dir`: a lock of its own, or that of all names in there.
    #[inline]
    pub(crate) fn name(dir: &'g Inode, hash: u64) -> Result<Self> {
        let (grain, own) = (&dir.directory()?.grain, dir.shard.sb.key(dir.ino, hash));
        Ok(Self { key: grain.key(own.dir, own.hash), grain: Some(grain) })
    }

    /// The attributes of an inode, and its number of names.
    pub(crate) fn inode(inode: &Inode) -> Self {
        Self::number(&inode.shard.sb, inode.ino)
    }

    /// The same, of the inode of this number.
    pub(crate) fn number(sb: &SuperBlock, ino: u64) -> Self {
        Self { key: sb.inode_key(ino), grain: None }
    }

    /// Whether its lock, which is held, is what everybody locks for this.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        self.grain.is_none_or(|grain| grain.is_current(self.key))
    }
}
