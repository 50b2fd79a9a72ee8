//! What only the cache knows of an inode is stored in its backing.

use pando_sync::{NameGuard, pin};

use crate::{
    AttrMask, Backing, Error, NodeAttr, Result,
    objects::{inode::Inode, stat::attr_of},
};

/// Stores changed attributes in the backing: those, of `which`, that `change` says it has changed. What it
/// refuses does not happen. Changes of one inode come one after the other: the lock that orders them is returned, to be held
/// until the cache is changed too.
pub(crate) fn store_first<'i>(
    inode: &'i Inode,
    which: AttrMask,
    change: impl FnOnce(&mut NodeAttr) -> Result<AttrMask>,
) -> Result<NameGuard<'i>> {
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let order = sb.name_space.names.lock(&[sb.inode_key(inode.ino)]);
    let mut unstored = Unstored::take(inode, which);
    let mut attr = attr_of(inode, &pin());
    let changed = change(&mut attr)?;
    backing.setattr(inode.ino, &attr, changed)?;
    unstored.what.remove(changed);
    Ok(order)
}

/// What was taken from what only the cache knows: stored now, it is no more known better here, unless it changes again. What of
/// it is not stored goes back, also if the backing panics. The inode's lock is held.
struct Unstored<'i> {
    inode: &'i Inode,
    what: AttrMask,
}

impl<'i> Unstored<'i> {
    fn take(inode: &'i Inode, which: AttrMask) -> Self {
        Self { inode, what: inode.take_dirty(which) }
    }
}

impl Drop for Unstored<'_> {
    fn drop(&mut self) {
        self.inode.set_dirty(self.what);
    }
}

/// Stores the times that only the cache knows, if there are any. No guard is held.
pub(crate) fn store_times(inode: &Inode) -> Result<()> {
    let sb = &inode.shard.sb;
    match sb.ask_backing().filter(|_| !inode.dirty().is_empty()) {
        Some(backing) => {
            let _order = sb.name_space.names.lock(&[sb.inode_key(inode.ino)]);
            store_dirty(inode, backing)
        }
        None => Ok(()),
    }
}

/// As [`store_times`]; the caller holds the inode's lock.
pub(crate) fn store_dirty(inode: &Inode, backing: &dyn Backing) -> Result<()> {
    let mut unstored = Unstored::take(inode, AttrMask::all());
    if unstored.what.is_empty() {
        return Ok(());
    }
    let attr = attr_of(inode, &pin());
    match backing.setattr(inode.ino, &attr, unstored.what) {
        // Others have removed it: there is nothing to store it in.
        Ok(()) | Err(Error::NoEntry | Error::Stale) => {}
        Err(error) => return Err(error),
    }
    unstored.what = AttrMask::empty();
    Ok(())
}
