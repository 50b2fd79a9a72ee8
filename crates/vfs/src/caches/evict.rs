//! Eviction: inodes that are not in use leave the cache of a tree with a backing.
//!
//! Difficulties, and the solution of each:
//! 1. *Another thread looks the inode up meanwhile.* The dentry is frozen if exactly the cache's
//!    own references are left. From then on no thread can get a reference. A thread that finds the
//!    dentry starts over until it is removed.
//! 2. *The cache has attributes that the backing does not have* (times). They are stored first,
//!    under the locks of the name and of the inode, so an older record never overwrites a younger
//!    one.
//! 3. *The same number is loaded again* before the backing was told to forget it, or meanwhile.
//!    Numbers to forget stand in a set, and a thread that loads a number removes it from the set.
//!    The thread that tells the backing holds the inode's lock, without which no last name can be
//!    removed. A thread whose answer may be from before that asks again
//!    ([`Departures`](pando_sync::Departures)).
//! 4. *Aliases hold the first dentry.* They have a table of their own, and are evicted before it.
//! 5. *The inode loses its last name* between the check and the eviction. Then the cache has
//!    released its reference, and one of the counted references belongs to a user. So the cache is
//!    checked again under the inode's lock, without which no last name can be removed. A create or
//!    a load that fails removes or freezes an entry without that lock. There, the thread that marks
//!    the entry as leaving removes it, and a dentry that was frozen wrongly is unfrozen
//!    ([`crate::caches::icache`]).
//! 6. *The inode's number was handed out.* The table of handed-out numbers holds a reference, too
//!    ([`crate::caches::nodes`]).

use std::sync::{Arc, PoisonError};

use pando_sync::{Counted, Guard, NameGuard, NameKey, Node, Shared, lock, pin};

use crate::{
    DentryRef, Error, Result,
    caches::{
        binding::unbind,
        icache::Frozen,
        write_back::{store_dirty, store_times},
    },
    objects::{
        dentry::{Dentry, Dirent},
        inode::Inode,
        lockable::Lockable,
        superblock::{Namespace, SuperBlock},
    },
};

/// The result of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    Done,
    InUse,
}

impl SuperBlock {
    /// Evicts up to `count` inodes that are not in use, beginning where the last eviction stopped.
    /// Returns how many were evicted. Analogous to `prune_icache_sb()`.
    pub(crate) fn evict(self: &Arc<Self>, namespace: &Namespace, count: usize) -> Result<usize> {
        if self.driver.backing().is_none() || count == 0 {
            return Ok(0);
        }
        let _evicting = self.evicting.read().unwrap_or_else(PoisonError::into_inner);
        self.evict_links(namespace, count)?;
        let (mut evicted, mut rounds) = (0, 0);
        while evicted < count && rounds < 2 {
            let (batch, wrapped) = self.inodes.idle_batch(&pin());
            rounds += u32::from(wrapped);
            for dentry in batch {
                if evicted == count {
                    break;
                }
                evicted += usize::from(self.evict_one(namespace, dentry)? == Evicted::Done);
            }
        }
        self.send_forgets();
        Ok(evicted)
    }

    /// Evicts aliases that are not in use. Looks at about `count` of them, and at each one once at
    /// most.
    fn evict_links(&self, namespace: &Namespace, count: usize) -> Result<()> {
        let mut looked = 0;
        loop {
            let (batch, ended) = self.links.batch();
            looked += batch.len();
            for link in batch {
                self.evict_link(namespace, &link)?;
            }
            if ended || looked >= count {
                return Ok(());
            }
        }
    }

    fn evict_link(&self, namespace: &Namespace, link: &Counted<Dentry>) -> Result<()> {
        let evict = |dirent: Shared<'_, Node<Dirent>>, guard: &Guard| {
            // The references of this function, of the table of aliases, and of the directory entry.
            if Counted::freeze(link, 3) {
                unbind(dirent.to_ref().parent_dir().to_ref().directory()?, dirent, guard);
            }
            Ok(())
        };
        self.with_bound_entry(link, |name| Some(namespace.names.lock(&[name])), evict).unwrap_or(Ok(()))
    }

    /// Calls `work` with the entry in which a dentry stands, under its name lock. None if the
    /// dentry has no name, if `lock` does not lock it, or if the dentry is moved meanwhile. The
    /// caller holds no guard.
    pub(crate) fn with_bound_entry<'n, T>(
        &self,
        dentry: &Counted<Dentry>,
        lock: impl FnOnce(NameKey) -> Option<NameGuard<'n>>,
        work: impl FnOnce(Shared<'_, Node<Dirent>>, &Guard) -> T,
    ) -> Option<T> {
        let key = self.place_key(dentry)?;
        let _lock = lock(key)?;
        if self.place_key(dentry) != Some(key) {
            // The dentry has moved.
            return None;
        }
        let guard = pin();
        let dirent = dentry.place.load(&guard).filter(|place| shown_at(dentry, place, &guard))?;
        Some(work(dirent, &guard))
    }

    /// The key of the name in which a dentry stands, or stood last.
    fn place_key(&self, dentry: &Dentry) -> Option<NameKey> {
        let guard = pin();
        let dirent = dentry.place.load(&guard)?.to_ref();
        let dir = dirent.parent_dir().to_ref().inode();
        Some(Lockable::name(dir, self.hash(dir.ino, dirent.name.as_bytes())).ok()?.key)
    }

    fn evict_one(self: &Arc<Self>, namespace: &Namespace, dentry: Counted<Dentry>) -> Result<Evicted> {
        let inode = dentry.inode();
        let own = self.inode_key(inode.ino);
        let keys = [own, self.place_key(&dentry).unwrap_or(own)];
        let _locks = namespace.names.lock(&keys);
        store_dirty(inode, self.ask_backing().ok_or(Error::NotSupported)?)?;
        let guard = pin();
        let place = dentry.place.load(&guard);
        if place.is_some_and(|_| self.place_key(&dentry) != Some(keys[1])) {
            // The dentry has moved.
            return Ok(Evicted::InUse);
        }
        let dirent = place.filter(|place| shown_at(&dentry, place, &guard));
        if let Ok(directory) = inode.directory() {
            // Names that were cached here after the directory looked idle hold it, too.
            directory.release_parent_refs();
        }
        // The reference of this function and that of the directory entry. With the cache's own,
        // these must be all.
        let references = 1 + usize::from(dirent.is_some());
        if !inode.unstored().is_empty() {
            return Ok(Evicted::InUse);
        }
        let Some(frozen) = self.inodes.freeze(&dentry, references, &guard) else { return Ok(Evicted::InUse) };
        if let Some(dirent) = dirent {
            unbind(dirent.to_ref().parent_dir().to_ref().directory()?, dirent, &guard);
        }
        evict_frozen(self, inode, frozen, &guard);
        Ok(Evicted::Done)
    }

    /// Tells the backing to forget the pending numbers. The caller holds no guard and no lock.
    pub(crate) fn send_forgets(&self) {
        let Some(backing) = self.ask_backing() else { return };
        let pending = || lock(&self.pending_forgets);
        loop {
            let Some(ino) = pending().first().copied() else { return };
            let _order = self.namespace.names.lock(&[self.inode_key(ino)]);
            // Before the number is removed from the set: a thread that uses the number from then on
            // finds that it is leaving, and asks again.
            let _leaving = self.inodes.departures.leave(ino);
            let still = pending().remove(&ino);
            if still {
                backing.forget(ino);
            }
        }
    }

    /// Stores all times that only the cache has. Tries all inodes and returns the first error. The
    /// caller holds no guard and no lock.
    pub(crate) fn store_times(&self, root: &DentryRef) -> Result<()> {
        if self.driver.backing().is_none() {
            return Ok(());
        }
        let stored = self.inodes.all().into_iter().map(|dentry| store_times(dentry.inode()));
        stored.fold(store_times(root.0.inode()), Result::and)
    }
}

/// Removes a frozen inode from the cache.
pub(crate) fn evict_frozen(sb: &SuperBlock, inode: &Inode, frozen: Frozen<'_>, guard: &Guard) {
    let _leaving = sb.inodes.departures.leave(inode.ino);
    // The forget is queued here, before the number can be loaded again. The last put would be too
    // late: it may run after the number was loaded again.
    inode.set_adopted(false);
    lock(&sb.pending_forgets).insert(inode.ino);
    sb.inodes.evict(frozen, guard);
}

/// Whether a directory entry shows a dentry.
pub(crate) fn shown_at(dentry: &Counted<Dentry>, dirent: &Shared<'_, Node<Dirent>>, guard: &Guard) -> bool {
    dirent.to_ref().value.load(guard).is_some_and(|shown| shown.ptr_eq(dentry.as_shared()))
}
