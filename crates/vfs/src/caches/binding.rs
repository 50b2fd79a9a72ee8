//! Names and inodes of a backing: taken into the cache, and out of it.

use pando_sync::{Counted, Detached, Guard, Node, OpCell, Shared, lock};

use crate::{
    Error, Result,
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
        superblock::SuperBlock,
    },
};

/// Makes an inode the one of its number; false if there is another.
pub(crate) fn adopt(sb: &SuperBlock, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
    let adopted = sb.inodes.adopt(dentry, guard);
    if adopted {
        dentry.inode().set_adopted(true);
        // It is used again: what its predecessor left to be said is not true any more. Whoever says it just now holds the
        // inode's lock, without which the last name does not go: nothing is freed.
        lock(&sb.forgotten).remove(&dentry.inode().ino);
    }
    adopted
}

pub(crate) fn change_count(sb: &SuperBlock, ino: u64) -> u64 {
    sb.driver.backing().map_or(0, |backing| backing.change_count(ino))
}

/// Binds a name to what the backing says. The caller holds the name's lock.
pub(crate) fn bind_loaded(
    dir: &Counted<Dentry>,
    directory: &Directory,
    hash: u64,
    name: &[u8],
    dentry: Counted<Dentry>,
    guard: &Guard,
) -> Result<()> {
    dir.sb().expect_open()?;
    let anchor = directory.anchor(dir.as_shared(), guard)?;
    let slot = Detached::new(Slot::new(anchor, name, OpCell::new_pending(dentry.clone())));
    drop(dentry.place.replace(Some(slot.reference())));
    let node = directory.insert(hash, name, slot, guard).inspect_err(|_| drop(dentry.place.replace(None)))?;
    if directory.life.keep_alive(guard) {
        node.to_ref().value.publish(guard);
        directory.entry_cached(true, guard);
        dentry.sb().links.add(&dentry);
        return Ok(());
    }
    if node.to_ref().value.retract().is_some() {
        directory.remove(node, guard);
        directory.detach();
    }
    Err(Error::NoEntry)
}

/// A name is no more what the cache has: it is asked for when somebody wants it. The caller holds its lock.
pub(crate) fn unbind(directory: &Directory, slot: Shared<'_, Node<Slot>>, guard: &Guard) {
    if let Some(shown) = slot.to_ref().value.replace(None) {
        shown.sb().links.remove(&shown);
        directory.entry_cached(false, guard);
    }
    directory.remove(slot, guard);
}

/// Whatever the cache has of a name, the backing says otherwise. The caller holds the name's lock.
pub(crate) fn unbind_stale(directory: &Directory, hash: u64, name: &[u8], guard: &Guard) {
    if let Some(slot) = directory.slot(hash, name, guard) {
        unbind(directory, slot, guard);
    }
}
