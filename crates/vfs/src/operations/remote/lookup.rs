//! Look-ups in a backed tree. If the cache does not know a name, the backing is asked.

use std::sync::atomic::Ordering;

use pando_sync::{Guard, Node, Shared};

use crate::{
    Error,
    caches::ask::Ask,
    objects::{
        dentry::{Dentry, Dirent},
        directory::Directory,
    },
    operations::{
        parent::Parent,
        step::{Step, Stop},
    },
};

/// A directory entry, and the dentry that it shows.
type Shown<'g> = (Shared<'g, Node<Dirent>>, Shared<'g, Dentry>);

/// The entry of a bound name, or `None` if a negative dentry says that there is no such name.
/// Otherwise the attempt ends with a question to the backing.
pub(crate) fn cached_or_ask<'g>(
    dir: Shared<'g, Dentry>,
    (name, hash): (&[u8], u64),
    guard: &'g Guard,
    find: impl FnOnce(&'g Directory, u64, &[u8], &'g Guard) -> Option<Shared<'g, Node<Dirent>>>,
) -> Step<Option<Shown<'g>>> {
    let directory = dir.to_ref().directory()?;
    check_fresh(dir, directory)?;
    let bound =
        find(directory, hash, name, guard).and_then(|dirent| Some((dirent, dirent.to_ref().value.load(guard)?)));
    if bound.is_none() && !directory.is_known_negative(hash, name, guard) {
        return Err(Stop::Ask(Box::new(Ask::Name(dir.get().ok_or(Stop::Again)?, name.into()))));
    }
    Ok(bound)
}

/// Checks that the cached entries of a directory are up to date. If others have changed the
/// directory, the attempt ends with a question to the backing (analogous to `d_revalidate`).
fn check_fresh(dir: Shared<'_, Dentry>, directory: &Directory) -> Step<()> {
    let inode = dir.to_ref().inode();
    let (Some(backed), Some(backing)) = (&directory.backed, inode.shard.sb.driver.backing()) else { return Ok(()) };
    let now = backing.change_count(inode.ino);
    if backed.checked.load(Ordering::Acquire) == now {
        return Ok(());
    }
    Err(Stop::Ask(Box::new(Ask::Changes(dir.get().ok_or(Stop::Again)?, now))))
}

/// The hash of a name that is to be made, after a check that it is not bound.
pub(crate) fn expect_free(place: Parent<'_>, name: &[u8], guard: &Guard) -> Step<u64> {
    let hash = place.hash_of(name);
    let exists = match place.seen {
        Some(seen) => seen.dentry.is_some(),
        None => cached_or_ask(place.dir, (name, hash), guard, Directory::dirent)?.is_some(),
    };
    if exists { Err(Error::Exists.into()) } else { Ok(hash) }
}
