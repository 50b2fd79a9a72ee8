//! The directory: a table of entries, its life, and striped counts and times.
//!
//! Nothing in this file takes a lock. A caller that changes a name holds the name lock. Threads
//! that change different names meet only in the buckets of the table and in the stripe of their
//! CPU.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `table` | lock-free; an entry is inserted and removed under the lock of its name |
//! | `backed` | the option is immutable; for the inside see [`BackedDir`] |
//! | `mounted` | atomic pointer; written under the rename sequence |
//! | `life` | one atomic word (protocol 2) |
//! | `permission` | atomic: a single independent value; written under the permissions lock |
//! | `granularity` | atomic flags, never cleared; it is split under the directory's single lock |
//! | `stripes` | atomic words, merged by the reader (protocol 7) |

use pando_sync::{
    AtomicCounted, Counted, Counter, Detached, Guard, IndexAddress, Life, LifeState, LockGranularity, Node, OwnLine,
    Rejected, Revocable, Shared, SplitTable, Stamp, Striped, Sum,
};

use crate::{
    Error, Result,
    objects::{
        backed_dir::BackedDir,
        dentry::{Dentry, Dirent, ParentRef},
    },
    types::{name::equal, part::Part},
};

/// The directory's own part of its inode. Path walks read the first cache line. Changes of names do
/// not write it.
#[repr(C, align(64))]
pub(crate) struct Directory {
    table: SplitTable<Dirent>,
    /// State that only a tree with a backing needs. None in a tree in memory, where the table is
    /// the whole directory. The option is immutable.
    pub backed: Option<Box<BackedDir>>,
    /// The root of the tree that is mounted here. Atomic pointer, written while the rename sequence
    /// is held for writing.
    pub mounted: AtomicCounted<Dentry>,
    /// Alive, being removed, or removed (protocol 2). One atomic word.
    pub life: Life,
    /// The permission to change names in this directory. A thread that has checked it under a name
    /// lock may rely on it until it releases the lock. The check fails while a revocation runs.
    pub permission: Revocable,
    /// Lock granularity: one lock for all names, or one for each name.
    pub granularity: LockGranularity,
    stripes: OwnLine<Striped<Stripe>>,
}

const _: () = assert!(std::mem::offset_of!(Directory, stripes) == 64 && size_of::<Directory>() <= 192);

/// The words that each creation and removal of a name changes. There is one stripe until threads
/// contend, then one for each CPU.
#[derive(Default)]
struct Stripe {
    /// The number of entries: creations and removals on this stripe. Atomic.
    entries: Counter,
    /// The number of subdirectories. Atomic.
    subdirs: Counter,
    /// The time of the latest change of an entry. mtime and ctime of the directory are merged from
    /// the stamps of all stripes.
    stamp: Stamp,
    /// The parent reference of this stripe, which new entries hold. Atomic pointer.
    parent_ref: AtomicCounted<ParentRef>,
}

/// The number of subdirectories, as counted at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subdirs {
    /// How often the number was changed. Monotonic.
    changes: u64,
    count: u64,
}

/// The counts and the latest stamp of a directory at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub entries: u64,
    pub subdirs: u64,
    /// The time of the latest change in nanoseconds since the epoch. A value near `i64::MIN` if
    /// nothing has changed.
    pub stamp: i64,
}

impl Directory {
    /// An empty directory of a tree in memory. `whole`: with one lock for all names, for ever.
    pub(crate) fn new(whole: bool) -> Self {
        Self::with_granularity(if whole { LockGranularity::whole() } else { LockGranularity::coarse() })
    }

    fn with_granularity(granularity: LockGranularity) -> Self {
        Self {
            table: SplitTable::new(),
            life: Life::new(),
            permission: Revocable::new(),
            granularity,
            stripes: OwnLine(Striped::new(Stripe::default())),
            backed: None,
            mounted: AtomicCounted::new(None),
        }
    }

    /// A directory of a tree with a backing. Nothing of it is cached yet. Each name has its own
    /// lock from the start, because name locks are held while the backing is asked. `whole`: all
    /// names have one lock, for ever.
    pub(crate) fn backed(whole: bool, change_count: u64, nlink: u32) -> Self {
        let subdirs = Counter::new(u64::from(nlink.saturating_sub(2)));
        let stripes = OwnLine(Striped::new(Stripe { subdirs, ..Stripe::default() }));
        let backed = Some(Box::new(BackedDir::new(change_count)));
        let granularity = if whole { LockGranularity::whole() } else { LockGranularity::split() };
        Self { backed, stripes, ..Self::with_granularity(granularity) }
    }

    /// The entry of a name, whether or not a dentry is bound to it.
    #[inline]
    pub(crate) fn dirent<'g>(&self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<Shared<'g, Node<Dirent>>> {
        self.table.get(hash, |dirent| equal(dirent.name.as_bytes(), name), guard)
    }

    /// The address of the table's index. A caller that has it can prefetch the bucket of a name.
    #[inline]
    pub(crate) fn index_address(&self, guard: &Guard) -> IndexAddress {
        self.table.index_address(guard)
    }

    /// As [`Directory::dirent`], for a caller that is going to remove the entry.
    #[inline]
    pub(crate) fn dirent_to_remove<'g>(
        &self,
        hash: u64,
        name: &[u8],
        guard: &'g Guard,
    ) -> Option<Shared<'g, Node<Dirent>>> {
        self.table.get_for_update(hash, |dirent| equal(dirent.name.as_bytes(), name), guard)
    }

    /// The dentry that a name is bound to. Takes no lock, counts nothing and writes nothing (P1).
    /// Analogous to `__d_lookup_rcu()` in fs/dcache.c.
    #[inline]
    pub(crate) fn lookup<'g>(&self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        self.dirent(hash, name, guard)?.to_ref().value.load(guard)
    }

    /// Inserts the entry of `name` into the table. The caller holds the name lock. It has found no
    /// entry of that name, possibly before it took the lock.
    ///
    /// # Errors
    /// EEXIST if there is an entry after all. ENOSPC when the 4093 positions of a hash are used up;
    /// with a keyed hash, only a broken hash function can cause that. In both cases the dentry that
    /// the entry should have shown is released.
    pub(crate) fn insert<'g>(
        &self,
        hash: u64,
        name: &[u8],
        dirent: Detached<Dirent>,
        guard: &'g Guard,
    ) -> Result<Shared<'g, Node<Dirent>>> {
        debug_assert_eq!(dirent.name.as_bytes(), name);
        match self.table.insert(hash, |other| equal(other.name.as_bytes(), name), dirent, guard) {
            Ok(inserted) => {
                if inserted.contended {
                    self.contended(guard);
                }
                Ok(inserted.node)
            }
            Err(rejected) => {
                let (dirent, error) = match rejected {
                    Rejected::Exists { node, .. } => (node, Error::Exists),
                    Rejected::Exhausted { node } => (node, Error::NoSpace),
                };
                // From here on the entry waits for a grace period. The dentry that it should have
                // shown is charged for, so it is released now.
                drop(dirent.value.take());
                Err(error)
            }
        }
    }

    /// Removes an entry without a dentry from the table.
    pub(crate) fn remove(&self, dirent: Shared<'_, Node<Dirent>>, guard: &Guard) {
        if self.table.remove(dirent, guard).contended {
            self.contended(guard);
        }
    }

    /// Reports that this thread contended with another one.
    pub(crate) fn contended(&self, guard: &Guard) {
        self.stripes.0.note_contention();
        self.table.adapt(self.approximate_len(), true, guard);
    }

    /// Counts a new entry on this thread's stripe.
    pub(crate) fn count_up(&self, is_dir: bool, guard: &Guard) {
        let stripe = self.stripes.0.mine();
        let contended = stripe.entries.add(1) | (is_dir && stripe.subdirs.add(1));
        self.counted(contended, guard);
    }

    /// Counts the removal of an entry on this thread's stripe.
    pub(crate) fn count_down(&self, is_dir: bool, guard: &Guard) {
        let stripe = self.stripes.0.mine();
        let contended = stripe.entries.sub(1) | (is_dir && stripe.subdirs.sub(1));
        self.counted(contended, guard);
    }

    fn counted(&self, contended: bool, guard: &Guard) {
        if contended {
            self.stripes.0.note_contention();
        }
        self.adapt_periodically(guard);
    }

    /// Stamps a change of the entries (mtime and ctime) on this thread's stripe and returns the
    /// stamp. The stamp is later than the last one of this stripe and than `known`.
    ///
    /// The caller has read `now` after the change became visible, or shortly before. If the clock
    /// was set back and `now` is not later than these, the stamp is one nanosecond after the latest
    /// of all stripes. Otherwise stripes are not compared. So after the clock was set back by some
    /// time, a thread that has changed nothing here for as long can stamp below the stamps of other
    /// stripes. Its change then stays invisible in mtime until one of these threads makes another
    /// change.
    pub(crate) fn stamp(&self, now: i64, known: i64) -> i64 {
        let stamp = &self.stripes.0.mine().stamp;
        let is_later = now > stamp.get().max(known);
        let at = if is_later { now } else { self.latest_stamp().max(known).saturating_add(1) };
        if stamp.raise(at) {
            self.stripes.0.note_contention();
        }
        at
    }

    /// Counts a subdirectory that was moved into this directory or replaced something else (`up`),
    /// or the reverse.
    pub(crate) fn subdirs_changed(&self, up: bool) {
        let subdirs = &self.stripes.0.mine().subdirs;
        let contended = if up { subdirs.add(1) } else { subdirs.sub(1) };
        if contended {
            self.stripes.0.note_contention();
        }
    }

    /// Lets the table grow or shrink. A small directory is checked after each change. A large one
    /// has stripes, and counting means reading all of them, so it is checked after every 16th
    /// change of a stripe.
    fn adapt_periodically(&self, guard: &Guard) {
        let mine = self.stripes.0.mine().entries.changes();
        if !self.stripes.0.is_inflated() || mine.is_multiple_of(16) {
            self.table.adapt(self.approximate_len(), false, guard);
        }
    }

    /// An existing entry of the backing was cached, or has left the cache.
    pub(crate) fn entry_cached(&self, more: bool, guard: &Guard) {
        if let Some(backed) = &self.backed {
            backed.loaded(more);
            self.table.adapt(self.approximate_len(), false, guard);
        }
    }

    /// Applies the link count that the backing has given. The directory had `known` subdirectories
    /// when the backing was asked. Changes that were counted since then stay counted.
    pub(crate) fn set_nlink(&self, nlink: u32, known: Subdirs) {
        let more = u64::from(nlink.saturating_sub(2)).wrapping_sub(known.count).cast_signed();
        let mine = &self.stripes.0.mine().subdirs;
        let _ = if more > 0 { mine.add(more.unsigned_abs()) } else { mine.sub(more.unsigned_abs()) };
    }

    /// The number of subdirectories, as counted now.
    pub(crate) fn subdirs(&self) -> Subdirs {
        let counters = || self.stripes.0.all().map(|stripe| &stripe.subdirs);
        let changes = counters().map(Counter::changes).fold(0, u64::wrapping_add);
        Subdirs { changes, count: Counter::sum(counters).value }
    }

    fn approximate_len(&self) -> usize {
        if let Some(backed) = &self.backed {
            // An entry that was loaded and then removed is in the striped count only as a removal,
            // so the sum of both counters is the number of entries.
            let here = self.entries().value.cast_signed();
            return usize::try_from(here.saturating_add(backed.loaded_len())).unwrap_or(0);
        }
        let entries = Counter::estimate(self.stripes.0.all().map(|stripe| &stripe.entries));
        usize::try_from(entries).unwrap_or(usize::MAX)
    }

    /// How often an entry was created or removed. Monotonic.
    pub(crate) fn changes(&self) -> u64 {
        self.stripes.0.all().map(|stripe| stripe.entries.changes()).fold(0, u64::wrapping_add)
    }

    fn entries(&self) -> Sum {
        Counter::sum(|| self.stripes.0.all().map(|stripe| &stripe.entries))
    }

    /// Entries, subdirectories and the latest stamp. Exact when the directory is quiescent, and
    /// never an impossible value.
    pub(crate) fn census(&self) -> Census {
        Census {
            entries: self.entries().value,
            // The difference is negative if the backing has given a count that lacks a
            // subdirectory, and this cache then counts the removal of that subdirectory as well.
            subdirs: u64::try_from(self.subdirs().count.cast_signed()).unwrap_or(0),
            stamp: self.latest_stamp(),
        }
    }

    /// The time of the latest change of an entry.
    pub(crate) fn latest_stamp(&self) -> i64 {
        Stamp::latest(self.stripes.0.all().map(|stripe| &stripe.stamp))
    }

    /// The entries whose position is after `position`, in the order of positions.
    pub(crate) fn dirents_after<'g>(
        &'g self,
        position: u64,
        guard: &'g Guard,
    ) -> impl Iterator<Item = Shared<'g, Node<Dirent>>> + 'g {
        self.table.iter_after(position, guard)
    }

    /// The parent reference of this thread's stripe, which a new entry holds. `this` is the dentry
    /// of the directory.
    ///
    /// # Errors
    /// ENOENT if the directory has been removed.
    pub(crate) fn parent_ref(&self, this: Shared<'_, Dentry>, guard: &Guard) -> Result<Counted<ParentRef>> {
        let place = &self.stripes.0.mine().parent_ref;
        loop {
            if let Some(parent_ref) = place.load(guard) {
                match parent_ref.get() {
                    Some(parent_ref) => return Ok(parent_ref),
                    // A removal, or an eviction that found the directory in use, has just put this
                    // reference after taking it out of the stripe.
                    None => continue,
                }
            }
            let dir = this.get().ok_or(Error::NoEntry)?;
            // If another thread of the same stripe wins this race, its parent reference is as good.
            let _ = place.compare_exchange(None, Some(Counted::new(ParentRef::new(dir))));
            // If `detach` has emptied this stripe before the exchange above, the removal is seen
            // here. Both are exchanges of one word, and the removal was committed before `detach`
            // ran. `detach` visits every stripe that can exist: see there.
            if self.is_removed(guard) {
                self.drop_parent_refs();
                return Err(Error::NoEntry);
            }
        }
    }

    /// Whether the backing need not be asked about a name that is not bound here. That is so if the
    /// name has a negative dentry, if the directory was removed, and in a tree in memory.
    pub(crate) fn is_known_negative(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.backed.as_ref().is_none_or(|backed| backed.is_negative(hash, name, guard) || self.is_removed(guard))
    }

    /// Whether the directory was removed. It is empty then, and stays empty. Analogous to
    /// `IS_DEADDIR()`.
    pub(crate) fn is_removed(&self, guard: &Guard) -> bool {
        matches!(self.life.state(guard), LifeState::Removed)
    }

    /// The error for an operation that is refused in this directory. If the directory was removed,
    /// it is ENOENT and nothing else.
    #[cold]
    pub(crate) fn refusal(&self, error: Error, guard: &Guard) -> Error {
        if self.is_removed(guard) { Error::NoEntry } else { error }
    }

    /// The directory was removed. Releases the references to its dentry for good. From here on only
    /// entries that open files keep alive hold it.
    ///
    /// First the stripes are sealed, so no stripe can be added and the loop visits every stripe in
    /// which a parent reference can be made. A creator that stores a parent reference after that
    /// finds the directory removed, and calls this function again.
    pub(crate) fn drop_parent_refs(&self) {
        self.stripes.0.freeze();
        self.release_parent_refs();
        // The entries that this thread has removed hold the dentry, too. After the flush, other
        // threads can reclaim them.
        pando_sync::flush_retired();
    }

    /// Releases the parent references of an empty directory. The next creation of a name makes a
    /// new one.
    pub(crate) fn release_parent_refs(&self) {
        for stripe in self.stripes.0.all() {
            drop(stripe.parent_ref.swap(None));
        }
    }

    /// Appends the parts of the directory and their addresses.
    pub(crate) fn parts(&self, guard: &Guard, parts: &mut Vec<Part>) {
        parts.push(Part::of("Directory", self));
        parts.push(Part::of("Directory.table", &self.table));
        parts.push(Part::of("Directory.life", &self.life));
        parts.push(Part::of("Directory.stripes", &self.stripes));
        for (i, stripe) in self.stripes.0.all().enumerate() {
            if i > 0 {
                parts.push(Part::of("a stripe of Directory", stripe));
            }
            parts.extend(stripe.parent_ref.load(guard).map(|parent_ref| Part::of("ParentRef", parent_ref.to_ref())));
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::{Operation, pin};

    use super::*;

    #[test]
    fn counts_during_a_request_survive_set_nlink() {
        let (directory, guard) = (Directory::backed(false, 0, 2), pin());
        let known = directory.subdirs();
        directory.count_up(true, &guard);
        assert_ne!(directory.subdirs(), known);
        directory.set_nlink(2, known);
        assert_eq!(directory.census().subdirs, 1);
        (0..2).for_each(|_| directory.count_down(true, &guard));
        assert_eq!(directory.census().subdirs, 0);
        directory.set_nlink(3, directory.subdirs());
        assert_eq!(directory.census().subdirs, 1);
    }

    /// A parent reference in a stripe that is added after `detach` would hold the directory for
    /// ever.
    #[test]
    fn removed_directory_is_never_striped() {
        let directory = Directory::new(false);
        let op = Operation::new();
        let removal = directory.life.begin_removal(&op).expect("alive");
        assert!(op.commit());
        removal.finish();
        directory.drop_parent_refs();
        (0..64).for_each(|_| directory.contended(&pin()));
        assert!(!directory.stripes.0.is_inflated());
    }

    /// `release_parent_refs` does not seal the stripes: a directory that is still in use can get
    /// stripes after it.
    #[test]
    fn live_directory_is_striped_under_contention() {
        let directory = Directory::new(false);
        directory.release_parent_refs();
        (0..64).for_each(|_| directory.contended(&pin()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(directory.stripes.0.is_inflated(), cores > 1);
    }
}
