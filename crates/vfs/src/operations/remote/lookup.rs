//! Look-ups in a tree that is kept elsewhere: what the cache does not know is asked for.

use std::sync::atomic::Ordering;

use pando_sync::{Guard, Node, Shared};

use crate::{
    Error,
    caches::ask::Ask,
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
    },
    operations::{
        parent::Parent,
        step::{Step, Stop},
    },
};

/// A slot, and the dentry that it shows.
type Shown<'g> = (Shared<'g, Node<Slot>>, Shared<'g, Dentry>);

/// The slot of a name that is bound; none if it is known that there is no such name. Otherwise the backing is to be asked:
/// the attempt ends.
pub(crate) fn cached_or_ask<'g>(
    dir: Shared<'g, Dentry>,
    (name, hash): (&[u8], u64),
    guard: &'g Guard,
    find: impl FnOnce(&'g Directory, u64, &[u8], &'g Guard) -> Option<Shared<'g, Node<Slot>>>,
) -> Step<Option<Shown<'g>>> {
    let directory = dir.to_ref().directory()?;
    check_fresh(dir, directory)?;
    let bound = find(directory, hash, name, guard).and_then(|slot| Some((slot, slot.to_ref().value.load(guard)?)));
    if bound.is_none() && !directory.is_known_absent(hash, name, guard) {
        return Err(Stop::Ask(Box::new(Ask::Name(dir.get().ok_or(Stop::Again)?, name.into()))));
    }
    Ok(bound)
}

/// Whether what is cached of a directory is still the backing's state: if others have changed it, the backing is to be asked.
fn check_fresh(dir: Shared<'_, Dentry>, directory: &Directory) -> Step<()> {
    let inode = dir.to_ref().inode();
    let (Some(backed), Some(backing)) = (&directory.backed, inode.shard.sb.driver.backing()) else { return Ok(()) };
    let now = backing.change_count(inode.ino);
    if backed.checked.load(Ordering::Acquire) == now {
        return Ok(());
    }
    Err(Stop::Ask(Box::new(Ask::Changes(dir.get().ok_or(Stop::Again)?, now))))
}

/// The hash of a name that is to be made, and shows nothing.
pub(crate) fn expect_free(place: Parent<'_>, name: &[u8], guard: &Guard) -> Step<u64> {
    let hash = place.hash_of(name);
    let exists = match place.seen {
        Some(seen) => seen.dentry.is_some(),
        None => cached_or_ask(place.dir, (name, hash), guard, Directory::slot)?.is_some(),
    };
    if exists { Err(Error::Exists.into()) } else { Ok(hash) }
}
