//! Eviction: what nobody uses leaves the cache of a tree that is kept elsewhere.
//!
//! Difficulties, and what answers each:
//! 1. *Somebody finds it meanwhile.* It is condemned at exactly the references that the cache itself holds: from then on
//!    nobody can get one, and whoever finds it starts over, until it is out.
//! 2. *The cache knows what the backing does not* (times). That is stored first, under the locks of the name and of the
//!    inode, so that no older record comes after a younger one.
//! 3. *The same number is loaded again* before the backing was told that nobody uses it. The number stands in a set until
//!    it is told, and whoever loads it takes it out; telling holds the inode's lock, without which no last name goes.
//! 4. *Further links hold the first dentry.* They stand in a table of their own, and are evicted before it.
//! 5. *It loses its last name* between the look and the eviction: then the cache's reference is gone, and one of as many as
//!    there should be is a user's. So the cache is looked at again under the inode's lock, without which no last name goes;
//!    and where somebody leaves the cache or is condemned without that lock (a create or a load that failed), who marks
//!    the entry goes on, and what was condemned wrongly is reprieved ([`crate::caches::icache`]).
//! 6. *Its number is handed out*: that is a reference, too ([`crate::caches::nodes`]).

use std::sync::{Arc, PoisonError};

use pando_sync::{Counted, Guard, NameGuard, NameKey, Node, Shared, lock, pin};

use crate::{
    DentryRef, Error, Result,
    caches::{
        binding::unbind,
        icache::Condemned,
        write_back::{store_dirty, store_times},
    },
    objects::{
        dentry::{Dentry, Slot},
        inode::Inode,
        lockable::Lockable,
        superblock::{NameSpace, SuperBlock},
    },
};

/// How an eviction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    Gone,
    InUse,
}

impl SuperBlock {
    /// Evicts up to `count` inodes that nobody uses, from where the last eviction stopped; how many went.
    pub(crate) fn evict(self: &Arc<Self>, name_space: &NameSpace, count: usize) -> Result<usize> {
        if self.driver.backing().is_none() || count == 0 {
            return Ok(0);
        }
        let _evicting = self.evicting.read().unwrap_or_else(PoisonError::into_inner);
        self.evict_links(name_space, count)?;
        let (mut gone, mut rounds) = (0, 0);
        while gone < count && rounds < 2 {
            let (batch, wrapped) = self.inodes.idle_batch(&pin());
            rounds += u32::from(wrapped);
            for dentry in batch {
                if gone == count {
                    break;
                }
                gone += usize::from(self.evict_one(name_space, dentry)? == Evicted::Gone);
            }
        }
        self.drain_forgotten();
        Ok(gone)
    }

    /// Lets go of up to `count` further links that nobody uses, one round at most.
    fn evict_links(&self, name_space: &NameSpace, count: usize) -> Result<()> {
        let mut looked = 0;
        loop {
            let (batch, ended) = self.links.batch();
            looked += batch.len();
            for link in batch {
                self.evict_link(name_space, &link)?;
            }
            if ended || looked >= count {
                return Ok(());
            }
        }
    }

    fn evict_link(&self, name_space: &NameSpace, link: &Counted<Dentry>) -> Result<()> {
        let evict = |slot: Shared<'_, Node<Slot>>, guard: &Guard| {
            // Ours, the table's of links, and the slot's.
            if Counted::freeze(link, 3) {
                unbind(slot.to_ref().anchor_dir().to_ref().directory()?, slot, guard);
            }
            Ok(())
        };
        self.while_bound(link, |name| Some(name_space.names.lock(&[name])), evict).unwrap_or(Ok(()))
    }

    /// Does something with the lock of a dentry's name, if it has one, `lock` locks it, and nobody moves it meanwhile. No guard is
    /// held.
    pub(crate) fn while_bound<'n, T>(
        &self,
        dentry: &Counted<Dentry>,
        lock: impl FnOnce(NameKey) -> Option<NameGuard<'n>>,
        work: impl FnOnce(Shared<'_, Node<Slot>>, &Guard) -> T,
    ) -> Option<T> {
        let key = self.place_key(dentry)?;
        let _lock = lock(key)?;
        if self.place_key(dentry) != Some(key) {
            // It has moved since.
            return None;
        }
        let guard = pin();
        let slot = dentry.place.load(&guard).filter(|place| shown_at(dentry, place, &guard))?;
        Some(work(slot, &guard))
    }

    /// The lock of the name that a dentry is bound to, or was.
    fn place_key(&self, dentry: &Dentry) -> Option<NameKey> {
        let guard = pin();
        let slot = dentry.place.load(&guard)?.to_ref();
        let dir = slot.anchor_dir().to_ref().inode();
        Some(Lockable::name(dir, self.hash(dir.ino, slot.name.as_bytes())).ok()?.key)
    }

    fn evict_one(self: &Arc<Self>, name_space: &NameSpace, dentry: Counted<Dentry>) -> Result<Evicted> {
        let inode = dentry.inode();
        let own = self.inode_key(inode.ino);
        let keys = [own, self.place_key(&dentry).unwrap_or(own)];
        let _locks = name_space.names.lock(&keys);
        store_dirty(inode, self.ask_backing().ok_or(Error::NotSupported)?)?;
        let guard = pin();
        let place = dentry.place.load(&guard);
        if place.is_some_and(|_| self.place_key(&dentry) != Some(keys[1])) {
            // It has moved since.
            return Ok(Evicted::InUse);
        }
        let slot = place.filter(|place| shown_at(&dentry, place, &guard));
        if let Ok(directory) = inode.directory() {
            // What came into it since it looked idle holds it, too.
            directory.let_go();
        }
        // Ours and the slot's: with these and no other but the cache's it is condemned.
        let references = 1 + usize::from(slot.is_some());
        if !inode.dirty().is_empty() {
            return Ok(Evicted::InUse);
        }
        let Some(condemned) = self.inodes.condemn(&dentry, references, &guard) else { return Ok(Evicted::InUse) };
        if let Some(slot) = slot {
            unbind(slot.to_ref().anchor_dir().to_ref().directory()?, slot, &guard);
        }
        take_out(self, inode, condemned, &guard);
        Ok(Evicted::Gone)
    }

    /// Tells the backing what nobody uses any more. No guard and no lock is held.
    pub(crate) fn drain_forgotten(&self) {
        let Some(backing) = self.ask_backing() else { return };
        let forgotten = || lock(&self.forgotten);
        loop {
            let Some(ino) = forgotten().first().copied() else { return };
            let _order = self.name_space.names.lock(&[self.inode_key(ino)]);
            let still = forgotten().remove(&ino);
            if still {
                backing.forget(ino);
            }
        }
    }

    /// Stores all times that only the cache knows; the first error, after all were tried. No guard and no lock is held.
    pub(crate) fn store_times(&self, root: &DentryRef) -> Result<()> {
        if self.driver.backing().is_none() {
            return Ok(());
        }
        let stored = self.inodes.all().into_iter().map(|dentry| store_times(dentry.inode()));
        stored.fold(store_times(root.0.inode()), Result::and)
    }
}

/// An inode that was condemned leaves the cache.
pub(crate) fn take_out(sb: &SuperBlock, inode: &Inode, condemned: Condemned<'_>, guard: &Guard) {
    // Said before its number is free, and not by its last reference, which may be put after it was loaded again.
    inode.set_adopted(false);
    lock(&sb.forgotten).insert(inode.ino);
    sb.inodes.evict(condemned, guard);
}

/// Whether a slot shows a dentry.
fn shown_at(dentry: &Counted<Dentry>, slot: &Shared<'_, Node<Slot>>, guard: &Guard) -> bool {
    slot.to_ref().value.load(guard).is_some_and(|shown| shown.ptr_eq(dentry.as_shared()))
}
