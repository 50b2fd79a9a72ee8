//! The result of a walk to a parent: the directory of the last component, and that component.

use pando_sync::{Shared, pin};

use crate::{
    Error, Result,
    objects::{dentry::Dentry, inode::Body},
    types::name::NAME_MAX,
};

/// The directory of the last component, and that component (analogous to `nd->path` and `nd->last`
/// after `path_parentat()` in fs/namei.c).
#[derive(Clone, Copy)]
pub(crate) struct Parent<'g> {
    pub dir: Shared<'g, Dentry>,
    pub last: Last<'g>,
    /// The path ended in a slash, so only a directory is acceptable.
    pub slash: bool,
    /// The hash of the last component, if the walk needed it.
    pub hash: Option<u64>,
    /// The result of the walk's look-up of the last component, if it made one.
    pub seen: Option<Seen<'g>>,
}

/// The result of one look-up of a name.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'g> {
    /// The dentry that the name was bound to, across a mount if there is one.
    pub dentry: Option<Shared<'g, Dentry>>,
}

impl Seen<'_> {
    pub(crate) fn is_link(&self) -> bool {
        self.dentry.is_some_and(|child| matches!(child.to_ref().inode().body, Body::Symlink(..)))
    }
}

/// The last component of a path (analogous to `LAST_NORM` and the like in fs/namei.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last<'g> {
    Name(&'g [u8]),
    Dot,
    DotDot,
    Root,
}

impl<'g> Parent<'g> {
    /// Like [`Parent::name`], without a limit on the length: a rename looks for the old name before
    /// it checks the length of the new one.
    pub(crate) fn any_name(&self, otherwise: Error) -> Result<&'g [u8]> {
        match self.last {
            Last::Name(name) => Ok(name),
            _ => Err(otherwise),
        }
    }

    /// Whether a change in this directory is made in a backing first. An operation asks once.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.dir.to_ref().sb().driver.backing().is_some()
    }

    /// The hash of `name`, which must be the last component.
    #[inline]
    pub(crate) fn hash_of(&self, name: &[u8]) -> u64 {
        debug_assert!(self.hash.is_none_or(|hash| hash == hash_in(self.dir, name)), "the hash of another name");
        self.hash.unwrap_or_else(|| hash_in(self.dir, name))
    }

    /// The name to be made, removed or moved. Fails with `otherwise` for `.`, `..` and the root.
    pub(crate) fn name(&self, otherwise: Error) -> Result<&'g [u8]> {
        match self.last {
            // The length is checked last: the directories of all names are checked before the
            // names.
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
