//! Look-ups in a backed tree. If the cache does not know a name, the backing is asked.

use pando_sync::{Guard, Node, Shared};

use crate::{
    Error,
    caches::ask::{Ask, unseen_reports},
    objects::{
        dentry::{Dentry, Dirent},
        directory::Directory,
    },
    operations::{
        parent::Parent,
        step::{Step, Stop},
    },
    types::Walk,
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
    expect_fresh(dir)?;
    let bound =
        find(directory, hash, name, guard).and_then(|dirent| Some((dirent, dirent.to_ref().value.load(guard)?)));
    if bound.is_none() && !directory.is_known_negative(hash, name, guard) {
        return Err(Stop::Ask(Box::new(Ask::Name(dir.get().ok_or(Stop::Again)?, name.into()))));
    }
    if let Some((_, dentry)) = bound
        && dentry.to_ref().inode().note_use()
    {
        dir.to_ref().sb().counts.ahead_used.add(1);
        directory.backed.iter().for_each(|backed| backed.note_ahead(true));
    }
    Ok(bound)
}

/// Checks that what is cached of a directory is up to date. If others have changed it, the attempt
/// ends with a question to the backing (analogous to `d_revalidate`). A walk checks each directory
/// that it passes, and the one in which it ends.
pub(crate) fn expect_fresh(dir: Shared<'_, Dentry>) -> Step<()> {
    if dir.to_ref().inode().is_reported() {
        return Err(Stop::Ask(Box::new(Ask::Attributes(dir.get().ok_or(Stop::Again)?))));
    }
    match unseen_reports(dir.to_ref()) {
        None => Ok(()),
        Some(count) => Err(Stop::Ask(Box::new(Ask::Changes(dir.get().ok_or(Stop::Again)?, count)))),
    }
}

/// As [`expect_fresh`], for an inode to which no walk has led. A change of it was reported for the
/// directory of its name.
pub(crate) fn expect_fresh_itself<'g>(dentry: Shared<'g, Dentry>, guard: &'g Guard) -> Step<()> {
    if !dentry.to_ref().inode().is_backed() {
        return Ok(());
    }
    expect_fresh(dentry)?;
    match dentry.to_ref().parent(guard) {
        Some(parent) => expect_fresh(parent),
        None => Ok(()),
    }
}

/// Checks that the cached attributes are up to date. The attempt ends with a question to the
/// backing if others have changed them. So it does if an operation of this tree has made the
/// backing stamp times, and the walk is for the attributes.
pub(crate) fn expect_attributes(dentry: Shared<'_, Dentry>, flags: Walk) -> Step<()> {
    let inode = dentry.to_ref().inode();
    if inode.is_reported() || flags.contains(Walk::ATTRIBUTES) && inode.is_outdated() {
        return Err(Stop::Ask(Box::new(Ask::Attributes(dentry.get().ok_or(Stop::Again)?))));
    }
    Ok(())
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
