//! Write-back: stores attributes that only the cache has in the backing.

use pando_sync::{NameGuard, pin};

use crate::{
    AttrMask, Backing, Change, Error, NodeAttr, Result,
    caches::commit::commit,
    objects::{
        inode::{CHANGE_TIMES, Inode},
        stat::attr_of,
    },
};

/// Stores changed attributes in the backing before the cache is changed. `change` may change the
/// attributes in `which`, and returns those that it has changed. If the backing refuses, nothing is
/// changed. Changes of one inode are serialized by its lock. The lock is returned, and the caller
/// holds it until it has changed the cache, too.
pub(crate) fn store_first<'i>(
    inode: &'i Inode,
    which: AttrMask,
    change: impl FnOnce(&mut NodeAttr) -> Result<AttrMask>,
) -> Result<NameGuard<'i>> {
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let order = sb.namespace.names.lock(&[sb.inode_key(inode.ino)]);
    let mut unstored = Unstored::take(inode, which);
    let mut attr = attr_of(inode, &pin());
    let changed = change(&mut attr)?;
    commit(sb, backing, &Change::SetAttr { ino: inode.ino, attr: &attr, meant: changed })?;
    unstored.what.remove(changed);
    if sb.stamped_elsewhere {
        inode.set_dirty(CHANGE_TIMES);
    }
    Ok(order)
}

/// Dirty bits that were taken from an inode in order to store the attributes. After that they are
/// dirty again only if they change again. The drop sets the bits of attributes that were not
/// stored, also if the backing panics. The inode's lock is held.
pub(super) struct Unstored<'i> {
    inode: &'i Inode,
    pub what: AttrMask,
}

impl<'i> Unstored<'i> {
    pub(super) fn take(inode: &'i Inode, which: AttrMask) -> Self {
        inode.set_storing(true);
        Self { inode, what: inode.take_dirty(which) }
    }
}

impl Drop for Unstored<'_> {
    fn drop(&mut self) {
        self.inode.set_dirty(self.what);
        self.inode.set_storing(false);
    }
}

/// Stores the attributes that only the cache has, if there are any. The caller holds no guard.
pub(crate) fn store_times(inode: &Inode) -> Result<()> {
    let sb = &inode.shard.sb;
    match sb.ask_backing().filter(|_| inode.has_unstored()) {
        Some(backing) => {
            // Waits for another thread that is storing them.
            let _order = sb.namespace.names.lock(&[sb.inode_key(inode.ino)]);
            store_dirty(inode, backing)
        }
        None => Ok(()),
    }
}

/// As [`store_times`]. The caller holds the inode's lock.
pub(crate) fn store_dirty(inode: &Inode, backing: &dyn Backing) -> Result<()> {
    if inode.unstored().is_empty() {
        return Ok(());
    }
    let mut unstored = Unstored::take(inode, inode.unstored());
    if inode.shard.sb.stamped_elsewhere && unstored.what.contains(AttrMask::ATIME) {
        match backing.accessed(inode.ino) {
            Ok(()) | Err(Error::NoEntry | Error::Stale) => {}
            Err(error) => return Err(error),
        }
        unstored.what.remove(AttrMask::ATIME);
        // It has stamped the access.
        inode.set_dirty(CHANGE_TIMES);
    }
    if unstored.what.is_empty() {
        return Ok(());
    }
    let attr = attr_of(inode, &pin());
    let change = Change::SetAttr { ino: inode.ino, attr: &attr, meant: unstored.what };
    match commit(&inode.shard.sb, backing, &change) {
        // Others have removed the inode.
        Ok(_) | Err(Error::NoEntry | Error::Stale) => {}
        Err(error) => return Err(error),
    }
    unstored.what = AttrMask::empty();
    Ok(())
}
