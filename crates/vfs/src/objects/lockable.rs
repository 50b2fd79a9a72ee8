//! Keys of the name locks.

use pando_sync::{LockGranularity, NameKey};

use crate::{
    Result,
    objects::{inode::Inode, superblock::SuperBlock},
};

/// An object that can be locked by key: a name, or an inode of a tree with a backing
/// ([`SuperBlock::inode_key`]).
#[derive(Clone, Copy)]
pub(crate) struct Lockable<'g> {
    pub key: NameKey,
    /// The lock granularity of the directory that the name is in. After the key is locked, it says
    /// whether the key is still valid. None for an inode.
    pub granularity: Option<&'g LockGranularity>,
}

impl<'g> Lockable<'g> {
    /// The key of the name with this hash in `dir`: the lock of the name itself, or the single lock
    /// of all names in the directory.
    #[inline]
    pub(crate) fn name(dir: &'g Inode, hash: u64) -> Result<Self> {
        let (granularity, own) = (&dir.directory()?.granularity, dir.shard.sb.key(dir.ino, hash));
        Ok(Self { key: granularity.key(own.dir, own.hash), granularity: Some(granularity) })
    }

    /// The key of an inode's attributes and link count.
    pub(crate) fn inode(inode: &Inode) -> Self {
        Self::number(&inode.shard.sb, inode.ino)
    }

    /// As [`Lockable::inode`], by the inode number.
    pub(crate) fn number(sb: &SuperBlock, ino: u64) -> Self {
        Self { key: sb.inode_key(ino), granularity: None }
    }

    /// Whether the lock, which the caller holds, is still the one that every thread takes for this
    /// object.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        self.granularity.is_none_or(|granularity| granularity.is_current(self.key))
    }
}
