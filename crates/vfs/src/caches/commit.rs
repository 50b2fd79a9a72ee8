//! Committing a change to the backing, with an answer whatever happens to its reply.

use crate::{
    Error, NodeAttr, Result,
    driver::{Ack, Backing, Change, CommitError},
    objects::superblock::SuperBlock,
};

/// Commits a change. If the backing does not know whether it was made, its state is asked for:
/// success if the change is in effect, otherwise EIO. If there is no answer to that either, nothing
/// that is cached of the tree is trusted any more, and each walk asks again. The caller holds the
/// locks of the change and no guard.
pub(crate) fn commit(sb: &SuperBlock, backing: &dyn Backing, change: &Change<'_>) -> Result<Ack> {
    match backing.commit(change) {
        Ok(ack) => Ok(ack),
        Err(CommitError::Refused(error)) => Err(error),
        Err(CommitError::Unknown) => match outcome(backing, change) {
            Ok(outcome) => outcome.ok_or(Error::Io),
            // The inode is gone.
            Err(error @ (Error::NoEntry | Error::Stale)) => Err(error),
            Err(error) => {
                if let Some(feed) = &sb.feed {
                    feed.everything_changed();
                }
                Err(error)
            }
        },
    }
}

/// The acknowledgement of a change that is in effect, or none if it is not.
fn outcome(backing: &dyn Backing, change: &Change<'_>) -> Result<Option<Ack>> {
    let leads_to = |dir, name| match backing.lookup_one(dir, name) {
        // The directory is gone, and its names with it.
        Err(Error::NoEntry | Error::Stale) => Ok(None),
        found => found,
    };
    let number = |dir, name| Ok::<_, Error>(leads_to(dir, name)?.map(|attr| attr.ino));
    let is_done = match *change {
        Change::Create { dir, name, attr } => {
            let made = leads_to(dir, name)?.filter(|found| is_made_from(found, attr));
            return Ok(made.map(|found| Ack::Made(found.ino)));
        }
        Change::Link { ino, dir, name } => number(dir, name)? == Some(ino),
        Change::Remove { dir, name, ino } => number(dir, name)? != Some(ino),
        Change::Rename { from, to, ino, .. } => {
            number(to.0, to.1)? == Some(ino) && number(from.0, from.1)? != Some(ino)
        }
        Change::SetAttr { ino, attr, meant } => {
            let found = backing.getattr_one(ino)?;
            let mut changed = found.clone();
            changed.assign(attr, meant);
            changed == found
        }
        Change::SetXattr { ino, name, value } => {
            let xattrs = backing.xattrs(ino)?;
            xattrs.iter().find(|(found, _)| **found == *name).map(|(_, value)| &**value) == value
        }
    };
    Ok(is_done.then_some(Ack::Done))
}

/// Whether an inode was made from these attributes. Others may have written to it since.
fn is_made_from(found: &NodeAttr, attr: &NodeAttr) -> bool {
    let identity = |attr: &NodeAttr| (attr.kind, attr.uid, attr.gid, attr.mode, attr.rdev, attr.btime);
    identity(found) == identity(attr)
}
