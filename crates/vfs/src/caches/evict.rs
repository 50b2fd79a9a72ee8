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
//! 6. *Many threads evict at the same time.* Each claims the inodes that it looks at
//!    ([`InodeCache::idle_batch`](crate::objects::tables::InodeCache::idle_batch)), and tells the
//!    backing itself.
//! 7. *The inode's number was handed out.* The table of handed-out numbers holds a reference, too
//!    ([`crate::caches::nodes`]).

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, PoisonError, RwLockReadGuard,
        atomic::{Ordering, fence},
    },
    thread,
};

use pando_sync::{Counted, Guard, NameGuard, NameKey, Node, Shared, pin};

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
        tables::Forgets,
    },
};

/// How many inodes more than necessary are evicted at a time, so that the next look-ups find room.
const SPARE: usize = 64;
/// The most inodes that a thread looks at before it goes on with its own work, which adds one.
const LOOKED_MOST: usize = 1024;
/// For each inode that it adds, it looks at this many at least, and stores the times of this many
/// at most. Each store is a call of the backing.
const FOR_EACH: usize = 4;
/// A search is worth its time if it frees one in this many inodes that it looks at, or leaves it to
/// its second chance. Inodes that only clients hold do not count: they stay until the clients
/// answer.
const WORTH: usize = 16;
/// After a search that was not worth its time, this many inodes may be added before the next one.
const ADDED_AFTER: usize = 256;

/// A search for idle inodes.
#[derive(Default)]
struct Search {
    evicted: usize,
    looked: usize,
    /// Left to their second chance.
    spared: usize,
    /// How many had times that the backing lacked.
    stored: usize,
    /// The first error of the backing.
    error: Option<Error>,
    /// The numbers of idle inodes that only a server's clients keep in the cache.
    counted: Vec<u64>,
}

/// The result of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    Done,
    InUse,
}

impl SuperBlock {
    /// Evicts up to `count` inodes that are not in use, beginning where the last eviction stopped.
    /// Returns how many were evicted, or the first error. Analogous to `prune_icache_sb()`.
    pub(crate) fn evict(self: &Arc<Self>, namespace: &Namespace, count: usize) -> Result<usize> {
        if self.driver.backing().is_none() || count == 0 {
            return Ok(0);
        }
        let evicting = self.evicting.read().unwrap_or_else(PoisonError::into_inner);
        let search = self.search(namespace, count, None, &evicting);
        search.error.map_or(Ok(search.evicted), Err)
    }

    /// Evicts up to `count` inodes. For a thread that adds `added` inodes, it looks at some only,
    /// stores the times of few, and waits for no lock. Otherwise it ends with the first error.
    /// `_evicting`: the tree is not shut down meanwhile.
    fn search(
        self: &Arc<Self>,
        namespace: &Namespace,
        count: usize,
        added: Option<usize>,
        _evicting: &RwLockReadGuard<'_, ()>,
    ) -> Search {
        let is_bounded = added.is_some();
        let (look, store) =
            added.map_or((usize::MAX, usize::MAX), |added| (LOOKED_MOST.max(added * FOR_EACH), added * FOR_EACH));
        self.evict_links(namespace, count.min(look), is_bounded);
        let (mut search, mut turns) = (Search::default(), 0);
        let is_over = |search: &Search| {
            search.evicted >= count || search.stored >= store || !is_bounded && search.error.is_some()
        };
        // The first turn may have begun anywhere, and the second may have left inodes to their
        // second chance.
        while !is_over(&search) && search.looked < look && turns < 3 {
            let guard = pin();
            let idle = self.inodes.idle_batch(|ino| self.nodes.is_counted(ino, &guard), &guard);
            drop(guard);
            turns += u32::from(idle.at_end);
            search.looked += idle.looked;
            search.spared += idle.spared;
            search.counted.extend(idle.counted);
            for dentry in idle.inodes {
                if is_over(&search) {
                    break;
                }
                search.stored += usize::from(dentry.inode().has_unstored());
                match self.evict_one(namespace, dentry, !is_bounded) {
                    Ok(result) => search.evicted += usize::from(result == Evicted::Done),
                    Err(error) => {
                        search.error.get_or_insert(error);
                    }
                }
            }
        }
        self.send_forgets();
        search.counted.truncate(count.saturating_sub(search.evicted));
        self.prune(&search.counted);
        search
    }

    /// A server's clients have forgotten an inode. If the cache is full, the inode leaves it,
    /// unless others use it. The caller holds no guard and no lock.
    pub(crate) fn evict_forgotten(self: &Arc<Self>, dentry: Counted<Dentry>) {
        let cache = &self.inodes;
        // A backing that panics once more would end the process.
        if !cache.is_full.load(Ordering::Relaxed) || thread::panicking() {
            return;
        }
        cache.note_size();
        self.evict_if_idle(dentry);
    }

    /// Evicts an inode or an alias, unless others use it. Waits for no lock. The caller holds no
    /// guard and no lock.
    pub(crate) fn evict_if_idle(self: &Arc<Self>, dentry: Counted<Dentry>) {
        if let Ok(_evicting) = self.evicting.try_read() {
            if dentry.is_link() {
                self.evict_link(&self.namespace, &dentry, false);
            } else {
                // If its times cannot be stored now, it stays.
                let _ = self.evict_one(&self.namespace, dentry, false);
            }
        }
    }

    /// Asks a server's clients to forget numbers. When they do, threads evict the inodes.
    fn prune(&self, counted: &[u64]) {
        let pruner = || self.inodes.pruner.read().unwrap_or_else(PoisonError::into_inner).upgrade();
        if !counted.is_empty()
            && let Some(pruner) = pruner()
        {
            pruner(counted);
        }
    }

    /// If the cache is full, evicts some inodes. Threads that add `count` inodes call this, so the
    /// more of them there are, the more evict. The caller holds no guard and no lock. Analogous to
    /// direct reclaim.
    pub(crate) fn make_room(self: &Arc<Self>, count: usize) {
        let cache = &self.inodes;
        if !cache.is_full.load(Ordering::Relaxed) || cache.skips_search(count) {
            return;
        }
        let excess = cache.excess();
        if excess == 0 {
            cache.is_full.store(false, Ordering::Relaxed);
            return;
        }
        let Ok(evicting) = self.evicting.try_read() else { return };
        let search = || self.search(&self.namespace, excess + count.max(SPARE), Some(count), &evicting);
        // A panic of the backing does not concern the operation that needs room.
        let search = panic::catch_unwind(AssertUnwindSafe(search));
        if search.is_ok_and(|search| (search.evicted + search.spared) * WORTH >= search.looked) {
            return;
        }
        cache.unsearched.store(ADDED_AFTER, Ordering::Relaxed);
    }

    /// Evicts aliases that are not in use. Looks at about `count` of them, and at each one once at
    /// most. `is_bounded`: not those that were used lately, or whose lock is held.
    fn evict_links(&self, namespace: &Namespace, count: usize, is_bounded: bool) {
        let mut looked = 0;
        loop {
            let (batch, ended) = self.links.batch();
            looked += batch.len();
            for link in batch {
                if !(is_bounded && link.inode().take_chance()) {
                    self.evict_link(namespace, &link, !is_bounded);
                }
            }
            if ended || looked >= count {
                return;
            }
        }
    }

    fn evict_link(&self, namespace: &Namespace, link: &Counted<Dentry>, may_wait: bool) {
        let names = &namespace.names;
        let lock = |name| if may_wait { Some(names.lock(&[name])) } else { names.try_lock_one(name) };
        let evict = |dirent: Shared<'_, Node<Dirent>>, guard: &Guard| {
            // The references of this function, of the table of aliases, and of the directory entry.
            if let Ok(directory) = dirent.to_ref().parent_dir().to_ref().directory()
                && Counted::freeze(link, 3)
            {
                unbind(directory, dirent, guard);
            }
        };
        self.with_bound_entry(link, lock, evict);
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

    /// Evicts an inode that looks idle. `may_wait`: for locks. A thread that holds one may be
    /// waiting for the backing.
    fn evict_one(self: &Arc<Self>, namespace: &Namespace, dentry: Counted<Dentry>, may_wait: bool) -> Result<Evicted> {
        let (inode, names) = (dentry.inode(), &namespace.names);
        let own = self.inode_key(inode.ino);
        let keys = [own, self.place_key(&dentry).unwrap_or(own)];
        let locks = if may_wait { Some(names.lock(&keys)) } else { names.try_lock(&keys) };
        if locks.is_none() {
            return Ok(Evicted::InUse);
        }
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
        drop(guard);
        self.send_forget(inode.ino);
        Ok(Evicted::Done)
    }

    /// Tells the backing to forget the numbers that no other thread is about to send. The caller
    /// holds no guard and no lock.
    pub(crate) fn send_forgets(&self) {
        self.send_strays(|key| Some(self.namespace.names.lock(&[key])));
    }

    /// As [`SuperBlock::send_forgets`], for a thread that must not wait for a lock: its holder may
    /// be waiting for the backing. Other threads send the numbers that this one cannot.
    pub(crate) fn try_send_forgets(&self) {
        self.send_strays(|key| self.namespace.names.try_lock_one(key));
    }

    fn send_strays<'n>(&'n self, lock: impl Fn(NameKey) -> Option<NameGuard<'n>>) {
        if self.driver.backing().is_none() {
            return;
        }
        let mut are_all_sent = true;
        while are_all_sent {
            // Pairs with the one below: of a thread that has just released a lock, and one that
            // finds it held, one sends the number.
            fence(Ordering::SeqCst);
            let unsent = Unsent(&self.forgets, self.forgets.take_strays());
            if unsent.1.is_empty() {
                return;
            }
            for &ino in &unsent.1 {
                let key = self.inode_key(ino);
                let again = || {
                    self.forgets.leave_to_others(ino);
                    fence(Ordering::SeqCst);
                    lock(key)
                };
                match lock(key).or_else(again) {
                    Some(_order) => self.send_forget(ino),
                    // The thread that holds the lock comes here when it has released it.
                    None => are_all_sent = false,
                }
            }
        }
    }

    /// Tells the backing to forget a number, unless it is in use again. The caller holds the
    /// inode's lock and no guard.
    fn send_forget(&self, ino: u64) {
        let Some(backing) = self.ask_backing() else { return };
        // Before the number is removed from the set: a thread that uses the number from then on
        // finds that it is leaving, and asks again.
        let _leaving = self.inodes.departures.leave(ino);
        if self.forgets.remove(ino) {
            backing.forget(ino);
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

/// Numbers that this thread is about to send. If the backing panics, others are to send them.
struct Unsent<'a>(&'a Forgets, Vec<u64>);

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.1.iter().for_each(|&ino| self.0.leave_to_others(ino));
        }
    }
}

/// Removes a frozen inode from the cache. The caller sends the forget.
pub(crate) fn evict_frozen(sb: &SuperBlock, inode: &Inode, frozen: Frozen<'_>, guard: &Guard) {
    let _leaving = sb.inodes.departures.leave(inode.ino);
    if inode.take_read_ahead() {
        sb.counts.ahead_wasted.add(1);
    }
    // The forget is queued here, before the number can be loaded again. The last put would be too
    // late: it may run after the number was loaded again.
    inode.set_adopted(false);
    sb.forgets.add(inode.ino);
    sb.inodes.evict(frozen, guard);
}

/// The directory in which a dentry is bound. None if it has no name, or the cache has dropped it.
/// The caller holds no guard.
pub(crate) fn bound_parent(dentry: &Counted<Dentry>) -> Option<Counted<Dentry>> {
    let guard = pin();
    let place = dentry.place.load(&guard).filter(|place| shown_at(dentry, place, &guard));
    place.and_then(|place| place.to_ref().parent_dir().get())
}

/// Whether a directory entry shows a dentry.
pub(crate) fn shown_at(dentry: &Counted<Dentry>, dirent: &Shared<'_, Node<Dirent>>, guard: &Guard) -> bool {
    dirent.to_ref().value.load(guard).is_some_and(|shown| shown.ptr_eq(dentry.as_shared()))
}
