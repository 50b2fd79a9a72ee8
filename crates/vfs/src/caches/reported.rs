//! The effect of reports on the cache: single names and inodes that others have changed.

use std::sync::{
    Weak,
    atomic::{Ordering, fence},
};

use pando_sync::{Guard, Shared, pin};

use crate::{
    caches::binding::unbind_stale,
    driver::ReportedTo,
    objects::{dentry::Dentry, lockable::Lockable, superblock::SuperBlock},
};

/// The cache of a tree with a backing.
pub(crate) struct ReportedCache(pub Weak<SuperBlock>);

impl ReportedTo for ReportedCache {
    /// Drops a name from the cache, or its negative dentry. The next walk that wants it asks the
    /// backing. The report does not wait for the name's lock: if another thread holds it, the
    /// directory is read again.
    fn name_changed(&self, dir: u64, name: &[u8]) -> bool {
        let Some(sb) = self.0.upgrade() else { return true };
        let guard = pin();
        // Nothing is cached of a directory that is not cached itself. The directory may be on its
        // way into the cache, but then none of its names can be.
        let Some(dir) = cached(&sb, dir, &guard) else { return true };
        let inode = dir.to_ref().inode();
        let Ok(directory) = inode.directory() else { return true };
        let hash = sb.hash(inode.ino, name);
        let Ok(name_lock) = Lockable::name(inode, hash) else { return true };
        let Some(_lock) = sb.namespace.names.try_lock_one(name_lock.key) else { return false };
        if let Some(backed) = &directory.backed {
            backed.remove_negative(hash, name, &guard);
        }
        unbind_stale(directory, hash, name, &guard);
        true
    }

    /// Marks the inode. The next thread that uses its attributes asks the backing.
    fn inode_changed(&self, ino: u64) {
        let Some(sb) = self.0.upgrade() else { return };
        // The report was counted before. Pairs with the fence of a thread that puts the inode into
        // the cache: either this finds the inode, or that thread sees the count.
        fence(Ordering::SeqCst);
        let guard = pin();
        if let Some(dentry) = cached(&sb, ino, &guard) {
            dentry.to_ref().inode().set_reported();
        }
    }
}

/// The inode of a number, if the cache has it.
fn cached<'g>(sb: &'g SuperBlock, ino: u64, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
    let root = sb.reported_root.load(guard).filter(|root| root.to_ref().inode().ino == ino);
    root.or_else(|| sb.inodes.look(ino, guard))
}
