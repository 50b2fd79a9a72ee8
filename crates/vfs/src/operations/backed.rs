//! What an operation does in a tree with a backing: questions on the way, and what it says of names.

use std::sync::atomic::Ordering;

use pando_sync::{Guard, Shared};

use crate::{
    Error,
    caches::ask::Ask,
    objects::{backed_dir::BackedDir, dentry::Dentry, directory::Directory, inode::Inode},
    operations::step::{Step, Stop},
};

/// What a name is bound to, as far as the cache knows; what it does not know is asked for.
#[inline]
pub(crate) fn find<'g>(
    dir: Shared<'g, Dentry>,
    hash: u64,
    name: &[u8],
    guard: &'g Guard,
) -> Step<Option<Shared<'g, Dentry>>> {
    let inode = dir.to_ref().inode();
    let directory = inode.directory()?;
    match directory.lookup(hash, name, guard) {
        None if directory.backed.is_some() => {
            miss(dir, inode, directory, hash, name, guard)?;
            Ok(None)
        }
        found => Ok(found),
    }
}

/// Nothing is bound: whether that is known, or must be asked.
pub(crate) fn miss(
    dir: Shared<'_, Dentry>,
    inode: &Inode,
    directory: &Directory,
    hash: u64,
    name: &[u8],
    guard: &Guard,
) -> Step<()> {
    if directory.is_known_absent(hash, name, guard) {
        return Ok(());
    }
    debug_assert!(inode.shard.sb.driver.backing().is_some(), "a backed directory has a backing");
    Err(Stop::Ask(Box::new(Ask::Name(dir.get().ok_or(Stop::Again)?, name.into()))))
}

/// Whether what is cached of a directory is still the backing's state; asks if not. One load for a memory driver.
#[inline]
pub(crate) fn check_fresh(dir: Shared<'_, Dentry>, inode: &Inode, directory: &Directory) -> Step<()> {
    let Some(backed) = &directory.backed else { return Ok(()) };
    check_backed(dir, inode, backed)
}

fn check_backed(dir: Shared<'_, Dentry>, inode: &Inode, backed: &BackedDir) -> Step<()> {
    let Some(backing) = inode.shard.sb.driver.backing() else { return Ok(()) };
    let now = backing.change_count(inode.ino);
    if backed.checked.load(Ordering::Acquire) == now {
        return Ok(());
    }
    Err(Stop::Ask(Box::new(Ask::Changes(dir.get().ok_or(Stop::Again)?, now))))
}

/// What a refusal of the backing says about a name that was to be made: if others have made it, it is asked for when
/// somebody wants it. The caller holds its lock.
pub(crate) fn note_refusal<'a>(
    directory: &'a Directory,
    hash: u64,
    name: &'a [u8],
    guard: &'a Guard,
) -> impl FnOnce(&Stop) + 'a {
    move |refusal| {
        if let (Some(backed), Stop::Error(Error::Exists)) = (&directory.backed, refusal) {
            backed.note_present(hash, name, guard);
        }
    }
}
