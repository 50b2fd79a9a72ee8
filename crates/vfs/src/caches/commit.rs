//! Committing a change to the backing, with an answer whatever happens to its reply.

use pando_sync::pin;

use crate::{
    Error, FileKind, NodeAttr, RenameFlags, Result,
    driver::{Ack, Backing, Change, CommitError},
    objects::superblock::SuperBlock,
};

/// Commits a change. If the backing does not know whether it was made, its state is asked for:
/// success if the change is in effect, otherwise EIO. From then on nothing that is cached of the
/// tree is trusted before it was asked for again: others may have changed the same names and inodes
/// since, and the state would then look as if the change had never been made. The caller holds the
/// locks of the change and no guard.
pub(crate) fn commit(sb: &SuperBlock, backing: &dyn Backing, change: &Change<'_>) -> Result<Ack> {
    let _waiting = sb.foreground.enter();
    match backing.commit(change) {
        Ok(ack) => Ok(ack),
        Err(CommitError::Refused(error)) => Err(error),
        Err(CommitError::Unknown) => {
            // First, so that it is done whatever the answer is.
            if let Some(feed) = &sb.feed {
                feed.everything_changed();
            }
            let outcome = outcome(sb, backing, change);
            // Again: if the state is not known, the change may have taken effect after another
            // thread has asked.
            if let (Some(feed), Err(_) | Ok(None)) = (&sb.feed, &outcome) {
                feed.everything_changed();
            }
            match outcome {
                Ok(outcome) => outcome.ok_or(Error::Io),
                // ENOSPC would make the caller try again.
                Err(Error::NoSpace) => Err(Error::Io),
                Err(error) => Err(error),
            }
        }
    }
}

/// The acknowledgement of a change that is in effect, or none if it is not.
fn outcome(sb: &SuperBlock, backing: &dyn Backing, change: &Change<'_>) -> Result<Option<Ack>> {
    let leads_to = |dir, name| match backing.lookup_one(dir, name) {
        // The directory is gone, and its names with it.
        Err(Error::NoEntry | Error::Stale) => Ok(None),
        found => found,
    };
    let number = |dir, name| Ok::<_, Error>(leads_to(dir, name)?.map(|attr| attr.ino));
    let is_done = match *change {
        Change::Create { dir, name, attr, .. } => {
            let made = leads_to(dir, name)?.filter(|found| is_made_from(found, attr));
            return Ok(made.map(Ack::Made));
        }
        // Nobody can find it. If it was made, it goes with the connection.
        Change::CreateAnonymous { .. } => false,
        Change::Link { ino, dir, name } => number(dir, name)? == Some(ino),
        Change::Remove { dir, name, ino } => number(dir, name)? != Some(ino) && has_lost_a_name(sb, backing, ino)?,
        Change::Rename { from: (old_dir, old), to: (new_dir, new), ino, target, flags, whiteout } => {
            let (old, new) = (leads_to(old_dir, old)?, number(new_dir, new)?);
            let old_ino = old.as_ref().map(|old| old.ino);
            new == Some(ino)
                && if flags.contains(RenameFlags::EXCHANGE) {
                    old_ino == target
                } else {
                    old_ino != Some(ino)
                        && (whiteout.is_none() || old.is_some_and(|old| is_whiteout(&old)))
                        && target.map_or(Ok(true), |target| has_lost_a_name(sb, backing, target))?
                }
        }
        Change::SetAttr { ino, attr, meant } => {
            let found = backing.getattr_one(ino)?;
            let mut changed = found.clone();
            changed.assign(attr, meant);
            changed == found
        }
        Change::SetXattr { ino, name, value } => {
            let xattrs = backing.xattrs_one(ino)?;
            xattrs.iter().find(|(found, _)| **found == *name).map(|(_, value)| &**value) == value
        }
    };
    Ok(is_done.then_some(Ack::Done))
}

/// Whether an inode has fewer names than the cache knows of. Others may only have moved a name that
/// is not where it was.
fn has_lost_a_name(sb: &SuperBlock, backing: &dyn Backing, ino: u64) -> Result<bool> {
    let found = match backing.getattr_one(ino) {
        Err(Error::NoEntry | Error::Stale) => return Ok(true),
        found => found?,
    };
    let guard = pin();
    let known =
        sb.inodes.get(ino, &guard).filter(|known| !known.is_dir()).map_or(1, |known| known.inode().links.count());
    Ok(if found.kind == FileKind::Directory { found.nlink == 0 } else { found.nlink < known })
}

fn is_whiteout(attr: &NodeAttr) -> bool {
    attr.kind == FileKind::CharDevice && attr.rdev == 0
}

/// Whether an inode was made from these attributes. Others may have written to it since.
fn is_made_from(found: &NodeAttr, attr: &NodeAttr) -> bool {
    let identity = |attr: &NodeAttr| (attr.kind, attr.uid, attr.gid, attr.mode, attr.rdev, attr.btime);
    identity(found) == identity(attr)
}
