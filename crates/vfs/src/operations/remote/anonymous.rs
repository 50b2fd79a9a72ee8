//! Making a file without a name in a backing (O_TMPFILE).
//!
//! While it has no name, the inode is not in the inode cache, as after the removal of a last name:
//! no look-up can find it. A link puts it there before the backing makes the name.

use std::sync::Arc;

use pando_sync::{Counted, Guard, Shared};

use crate::{
    Ack, Backing, Change, Charge, Error, Result, Timestamp,
    caches::{
        binding::{adopt_loaded, inode_report_count},
        commit::commit,
    },
    objects::{dentry::Dentry, superblock::SuperBlock},
    operations::{
        locks::Locks,
        make::{ChargeGuard, Make},
        remote::change::PreparedChange,
        remote::create::{attr_of_new, loaded_inode},
        step::{Step, Stop},
    },
    types::cred::Permissions,
};

/// A file without a name that is to be made.
pub(crate) struct Anonymous {
    /// The directory whose superblock the file is made on.
    dir: Counted<Dentry>,
    permissions: Permissions,
    /// The permission bits that the umask has cleared.
    umasked: u32,
    linkable: bool,
    now: i64,
    /// The number of reports of inodes before the commit.
    reports: u64,
}

/// The file, as the caller may make it. `linkable`: it may get a name later. The caller holds the
/// lock of some name in the directory. So nothing is made after an unmount, and a backing that
/// takes one call for a directory at a time gets one.
pub(crate) fn prepare(
    dir: Shared<'_, Dentry>,
    permissions: Permissions,
    umasked: u32,
    linkable: bool,
    guard: &Guard,
) -> Step<Box<Anonymous>> {
    let dir = dir.get().ok_or(Stop::Again)?;
    dir.sb().expect_mounted()?;
    if dir.directory()?.is_removed(guard) {
        return Err(Error::NoEntry.into());
    }
    let reports = inode_report_count(dir.sb());
    Ok(Box::new(Anonymous { dir, permissions, umasked, linkable, now: Timestamp::now().0, reports }))
}

impl PreparedChange for Anonymous {
    type Ack = crate::NodeAttr;
    type Done = Counted<Dentry>;

    fn sb(&self) -> &Arc<SuperBlock> {
        &self.dir.inode().shard.sb
    }

    fn commit(&self, backing: &dyn Backing) -> Result<Self::Ack> {
        let charge = ChargeGuard::take(&*self.sb().driver, Charge::Inode)?;
        let attr = &attr_of_new(Make::File, &self.permissions, 0, self.now);
        let change = Change::CreateAnonymous { dir: self.dir.inode().ino, attr, umasked: self.umasked };
        let Ack::Made(made) = commit(self.sb(), backing, &change)? else { return Err(Error::Io) };
        charge.keep();
        Ok(made)
    }

    fn publish(&self, made: &Self::Ack, guard: &Guard, _locks: &mut Locks<'_>) -> Step<Self::Done> {
        let sb = self.sb();
        let shard = sb.shard(guard).unwrap_or_else(|_| self.dir.inode().shard.clone());
        let dentry = Counted::new(Dentry::new(loaded_inode(shard, made)));
        if self.linkable {
            dentry.inode().links.allow_first_link();
        }
        // From now on the release of the inode makes the backing forget it.
        adopt_loaded(sb, &dentry, self.reports, guard);
        drop(sb.inodes.remove_unlinked(&dentry, guard));
        Ok(dentry)
    }
}
