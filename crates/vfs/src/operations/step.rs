//! What an attempt yields: a result, or why it has none.

use std::sync::{Arc, atomic::Ordering};

use pando_sync::{Counted, Guard};

use crate::{
    Backing, Error, Result,
    caches::ask::Ask,
    objects::{dentry::Dentry, superblock::SuperBlock},
    operations::parent::{Last, Parent},
};

/// Why an attempt ended without a result.
pub(crate) enum Stop {
    /// It failed.
    Error(Error),
    /// It wants a lock that is taken.
    Wait,
    /// Permissions of the directory of this number are being taken away, by somebody who waits for this operation's locks.
    Revoked(u64),
    /// What it works on has changed under it: another attempt sees a consistent picture.
    Again,
    /// Directories kept changing their places while a step up was taken in a root of one's own.
    Moved,
    /// Only the backing knows: it is asked, without a guard, and the next attempt finds the answer.
    Ask(Box<Ask>),
    /// A change is to be made in the backing, with these directories and names.
    Change(Box<(Pinned, Call)>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What an attempt yields.
pub(crate) type Step<T> = std::result::Result<T, Stop>;

/// A change to be made in the backing.
pub(crate) struct Call {
    sb: Arc<SuperBlock>,
    make: Box<Change>,
}

type Change = dyn FnOnce(&dyn Backing) -> Result<u64>;

impl Call {
    pub(crate) fn new(sb: &Arc<SuperBlock>, make: impl FnOnce(&dyn Backing) -> Result<u64> + 'static) -> Self {
        Self { sb: sb.clone(), make: Box::new(make) }
    }

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        &self.sb
    }

    pub(crate) fn make(self) -> Result<u64> {
        (self.make)(self.sb.ask_backing().ok_or(Error::NotSupported)?)
    }
}

/// The directories and names of an operation whose change the backing has been told of: it is about these, wherever
/// its path may lead by now.
#[derive(Default)]
pub(crate) struct Pinned {
    /// None of a tree without a backing, in each operation: a box less to look into.
    parents: Option<Box<[PinnedParent]>>,
}

struct PinnedParent {
    dir: Counted<Dentry>,
    name: Box<[u8]>,
}

impl Drop for PinnedParent {
    fn drop(&mut self) {
        if let Some(backed) = self.dir.inode().backed_dir() {
            // Release: what has come of it is in the cache.
            backed.changing.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Pinned {
    pub(crate) fn new(parents: &[Parent<'_>]) -> Step<Self> {
        let pin = |parent: &Parent<'_>| {
            let dir = parent.dir.get().ok_or(Stop::Again)?;
            let name = parent.name(Error::Invalid)?.into();
            if let Some(backed) = dir.inode().backed_dir() {
                // SeqCst: before the backing is told.
                backed.changing.fetch_add(1, Ordering::SeqCst);
            }
            Ok(PinnedParent { dir, name })
        };
        Ok(Self { parents: Some(parents.iter().map(pin).collect::<Step<_>>()?) })
    }

    pub(crate) fn parent<'g>(&'g self, which: usize, guard: &'g Guard) -> Option<Parent<'g>> {
        let parent = self.parents.as_deref()?.get(which)?;
        // What a slash forbids was refused before the backing was told.
        Some(Parent {
            dir: parent.dir.share(guard),
            last: Last::Name(&parent.name),
            slash: false,
            hash: None,
            seen: None,
        })
    }
}
