//! Where a walk to a parent ends: the directory of the last component, and that component.

use pando_sync::{Shared, pin};

use crate::{
    Error, Result,
    objects::{dentry::Dentry, inode::Body},
    types::name::NAME_MAX,
};

/// The directory of the last component, and that component.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'g> {
    pub dir: Shared<'g, Dentry>,
    pub last: Last<'g>,
    /// The path ended in a slash: only a directory will do.
    pub slash: bool,
    /// The hash of that name, if the walk has needed it.
    pub hash: Option<u64>,
    /// What the walk has seen there, if it looked.
    pub seen: Option<Seen<'g>>,
}

/// What one look at a name has found.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'g> {
    /// What it was bound to, across a mount if there is one.
    pub dentry: Option<Shared<'g, Dentry>>,
}

impl Seen<'_> {
    pub(crate) fn is_link(&self) -> bool {
        self.dentry.is_some_and(|child| matches!(child.to_ref().inode().body, Body::Symlink(_)))
    }
}

/// The last component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last<'g> {
    Name(&'g [u8]),
    Dot,
    DotDot,
    Root,
}

impl<'g> Parent<'g> {
    /// As [`Parent::name`], however long: a rename asks for the old name before it asks whether the new one is too long.
    pub(crate) fn any_name(&self, otherwise: Error) -> Result<&'g [u8]> {
        match self.last {
            Last::Name(name) => Ok(name),
            _ => Err(otherwise),
        }
    }

    /// Whether a change in there is made in a backing first. An operation asks once.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.dir.to_ref().sb().driver.backing().is_some()
    }

    /// The hash of its name, which this is.
    #[inline]
    pub(crate) fn hash_of(&self, name: &[u8]) -> u64 {
        debug_assert!(self.hash.is_none_or(|hash| hash == hash_in(self.dir, name)), "the hash of another name");
        self.hash.unwrap_or_else(|| hash_in(self.dir, name))
    }

    /// The name to be made, removed or moved; `otherwise` for `.`, `..` and the root.
    pub(crate) fn name(&self, otherwise: Error) -> Result<&'g [u8]> {
        match self.last {
            // Asked last: the directories of all names come before the names.
            Last::Name(name) if name.len() > NAME_MAX => {
                Err(self.dir.to_ref().directory()?.refusal(Error::NameTooLong, &pin()))
            }
            Last::Name(name) => Ok(name),
            _ => Err(otherwise),
        }
    }
}

/// The hash of a name in a directory.
pub(crate) fn hash_in(dir: Shared<'_, Dentry>, name: &[u8]) -> u64 {
    let inode = dir.to_ref().inode();
    inode.shard.sb.hash(inode.ino, name)
}
