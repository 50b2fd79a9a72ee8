//! The directory: a table of slots, its life, and what is counted about it.
//!
//! Nothing in here takes a lock. Whoever changes a name holds that name's lock; different names meet only in the
//! table's buckets and in the stripe of their thread.

use pando_sync::{
    AtomicCounted, Counted, Counter, Detached, Guard, IndexAddress, Life, LifeState, LockGranularity, Node, OwnLine,
    Rejected, Revocable, Shared, SplitTable, Stamp, Striped, Sum,
};

use crate::{
    Error, Result,
    objects::{
        backed_dir::BackedDir,
        dentry::{Anchor, Dentry, Slot},
    },
    types::{name::equal, part::Part},
};

/// A directory's own part of its inode. The first line is what walks through it read and changes of names do not write.
#[repr(C, align(64))]
pub(crate) struct Directory {
    table: SplitTable<Slot>,
    /// Of a tree that is kept elsewhere; none when this table is all there is.
    pub backed: Option<Box<BackedDir>>,
    /// The root of the tree that is mounted here.
    pub mounted: AtomicCounted<Dentry>,
    /// Alive, being removed, removed (protocol 2).
    pub life: Life,
    /// The permission to change its names: stands for whoever has checked it, until it is being taken away.
    pub permission: Revocable,
    /// Whether each name has a lock of its own.
    pub grain: LockGranularity,
    stripes: OwnLine<Striped<Stripe>>,
}

const _: () = assert!(std::mem::offset_of!(Directory, stripes) == 64 && size_of::<Directory>() <= 192);

/// What each name that comes or goes changes: one stripe until threads contend, then one per core.
#[derive(Default)]
struct Stripe {
    entries: Counter,
    subdirs: Counter,
    /// The latest change: mtime and ctime of the directory.
    stamp: Stamp,
    anchor: AtomicCounted<Anchor>,
}

/// A directory's subdirectories, as they were counted at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subdirs {
    /// How often they were counted up or down: a number that only rises.
    changes: u64,
    count: u64,
}

/// What a directory holds, at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub entries: u64,
    pub subdirs: u64,
    /// The latest change, in nanoseconds since the epoch; `i64::MIN`-like small when there was none.
    pub stamp: i64,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            table: SplitTable::new(),
            life: Life::new(),
            permission: Revocable::new(),
            grain: LockGranularity::coarse(),
            stripes: OwnLine(Striped::new(Stripe::default())),
            backed: None,
            mounted: AtomicCounted::new(None),
        }
    }

    /// A directory of a tree that is kept elsewhere: nothing of it is cached yet. Names are locked while that is asked.
    pub(crate) fn backed(change_count: u64, nlink: u32) -> Self {
        let subdirs = Counter::new(u64::from(nlink.saturating_sub(2)));
        let stripes = OwnLine(Striped::new(Stripe { subdirs, ..Stripe::default() }));
        let backed = Some(Box::new(BackedDir::new(change_count)));
        Self { backed, stripes, grain: LockGranularity::split(), ..Self::new() }
    }

    /// The slot of a name, whatever it shows.
    #[inline]
    pub(crate) fn slot<'g>(&self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<Shared<'g, Node<Slot>>> {
        self.table.get(hash, |slot| equal(slot.name.as_bytes(), name), guard)
    }

    /// Where it is found out where a slot lies.
    #[inline]
    pub(crate) fn index_address(&self, guard: &Guard) -> IndexAddress {
        self.table.index_address(guard)
    }

    /// As [`Directory::slot`], for whoever is going to remove it.
    #[inline]
    pub(crate) fn slot_to_change<'g>(
        &self,
        hash: u64,
        name: &[u8],
        guard: &'g Guard,
    ) -> Option<Shared<'g, Node<Slot>>> {
        self.table.get_for_update(hash, |slot| equal(slot.name.as_bytes(), name), guard)
    }

    /// What a name is bound to. No lock, no count, no write (P1).
    #[inline]
    pub(crate) fn lookup<'g>(&self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        self.slot(hash, name, guard)?.to_ref().value.load(guard)
    }

    /// Puts the slot of `name` into the table; the caller holds the name's lock, and has found no slot of that name, if only
    /// before he had the lock.
    ///
    /// # Errors
    /// EEXIST if there is one after all; ENOSPC when the 4093 positions of a hash are used up: with a keyed hash, only a broken
    /// one does that. What the slot was to show is let go of.
    pub(crate) fn insert<'g>(
        &self,
        hash: u64,
        name: &[u8],
        slot: Detached<Slot>,
        guard: &'g Guard,
    ) -> Result<Shared<'g, Node<Slot>>> {
        debug_assert_eq!(slot.name.as_bytes(), name);
        match self.table.insert(hash, |other| equal(other.name.as_bytes(), name), slot, guard) {
            Ok(inserted) => {
                if inserted.contended {
                    self.contended(guard);
                }
                Ok(inserted.node)
            }
            Err(rejected) => {
                let (slot, error) = match rejected {
                    Rejected::Exists { node, .. } => (node, Error::Exists),
                    Rejected::Exhausted { node } => (node, Error::NoSpace),
                };
                // The slot waits for readers from here on. What it was to show, which is paid for, does not wait with it.
                drop(slot.value.take());
                Err(error)
            }
        }
    }

    /// Takes an emptied slot out of the table.
    pub(crate) fn remove(&self, slot: Shared<'_, Node<Slot>>, guard: &Guard) {
        if self.table.remove(slot, guard).contended {
            self.contended(guard);
        }
    }

    /// Another thread was in the way.
    pub(crate) fn contended(&self, guard: &Guard) {
        self.stripes.0.note_contention();
        self.table.adapt(self.approximate_len(), true, guard);
    }

    /// Counts an entry that comes, on this thread's stripe.
    pub(crate) fn count_up(&self, is_dir: bool, guard: &Guard) {
        let stripe = self.stripes.0.mine();
        let contended = stripe.entries.add(1) | (is_dir && stripe.subdirs.add(1));
        self.counted(contended, guard);
    }

    /// Counts an entry that has gone.
    pub(crate) fn count_down(&self, is_dir: bool, guard: &Guard) {
        let stripe = self.stripes.0.mine();
        let contended = stripe.entries.sub(1) | (is_dir && stripe.subdirs.sub(1));
        self.counted(contended, guard);
    }

    fn counted(&self, contended: bool, guard: &Guard) {
        if contended {
            self.stripes.0.note_contention();
        }
        self.adapt_now_and_then(guard);
    }

    /// Stamps a change of the entries, mtime and ctime, on this thread's stripe, and says with what: later than that stripe's
    /// last stamp and than what is `known` besides.
    ///
    /// `now` was read after the change could be seen, or little before. If a clock that was set back says less than was
    /// stamped, it is one more than all. (Stripes are not compared else: what a thread stamps that has changed nothing here
    /// since before the time to which the clock was set back is hidden behind the others' stamps, until they or it go on.)
    pub(crate) fn stamp(&self, now: i64, known: i64) -> i64 {
        let stamp = &self.stripes.0.mine().stamp;
        let is_later = now > stamp.get().max(known);
        let at = if is_later { now } else { self.latest_stamp().max(known).saturating_add(1) };
        if stamp.raise(at) {
            self.stripes.0.note_contention();
        }
        at
    }

    /// A subdirectory came from another directory, or took the place of something else, or the reverse.
    pub(crate) fn subdirs_changed(&self, up: bool) {
        let subdirs = &self.stripes.0.mine().subdirs;
        let contended = if up { subdirs.add(1) } else { subdirs.sub(1) };
        if contended {
            self.stripes.0.note_contention();
        }
    }

    /// Lets the table grow or shrink: looked at for every change of a small directory, and for each few of a large one,
    /// where counting means reading all stripes.
    fn adapt_now_and_then(&self, guard: &Guard) {
        let mine = self.stripes.0.mine().entries.changes();
        if !self.stripes.0.is_inflated() || mine.is_multiple_of(16) {
            self.table.adapt(self.approximate_len(), false, guard);
        }
    }

    /// An entry that is there already was taken into the cache, or has left it.
    pub(crate) fn entry_cached(&self, more: bool, guard: &Guard) {
        if let Some(backed) = &self.backed {
            backed.loaded(more);
            self.table.adapt(self.approximate_len(), false, guard);
        }
    }

    /// A backing says how many links the directory has, or had when `known` was: what was counted since stays counted.
    pub(crate) fn set_nlink(&self, nlink: u32, known: Subdirs) {
        let more = u64::from(nlink.saturating_sub(2)).wrapping_sub(known.count).cast_signed();
        let mine = &self.stripes.0.mine().subdirs;
        let _ = if more > 0 { mine.add(more.unsigned_abs()) } else { mine.sub(more.unsigned_abs()) };
    }

    /// Its subdirectories, as they are counted now.
    pub(crate) fn subdirs(&self) -> Subdirs {
        let counters = || self.stripes.0.all().map(|stripe| &stripe.subdirs);
        let changes = counters().map(Counter::changes).fold(0, u64::wrapping_add);
        Subdirs { changes, count: Counter::sum(counters).value }
    }

    fn approximate_len(&self) -> usize {
        if let Some(backed) = &self.backed {
            // Of entries that were loaded and then removed, only the removal is among the counted.
            let here = self.entries().value.cast_signed();
            return usize::try_from(here.saturating_add(backed.loaded_len())).unwrap_or(0);
        }
        let entries = Counter::estimate(self.stripes.0.all().map(|stripe| &stripe.entries));
        usize::try_from(entries).unwrap_or(usize::MAX)
    }

    /// How many names have come and gone: a number that only rises.
    pub(crate) fn changes(&self) -> u64 {
        self.stripes.0.all().map(|stripe| stripe.entries.changes()).fold(0, u64::wrapping_add)
    }

    fn entries(&self) -> Sum {
        Counter::sum(|| self.stripes.0.all().map(|stripe| &stripe.entries))
    }

    /// Entries, subdirectories and the latest stamp. Exact when quiescent, never an impossible value.
    pub(crate) fn census(&self) -> Census {
        Census {
            entries: self.entries().value,
            // Less than none, if a backing has told of one less, and then it is counted here, too.
            subdirs: u64::try_from(self.subdirs().count.cast_signed()).unwrap_or(0),
            stamp: self.latest_stamp(),
        }
    }

    /// The latest change of an entry.
    pub(crate) fn latest_stamp(&self) -> i64 {
        Stamp::latest(self.stripes.0.all().map(|stripe| &stripe.stamp))
    }

    /// The slots whose position is after `position`, in order.
    pub(crate) fn slots_after<'g>(
        &'g self,
        position: u64,
        guard: &'g Guard,
    ) -> impl Iterator<Item = Shared<'g, Node<Slot>>> + 'g {
        self.table.iter_after(position, guard)
    }

    /// The anchor of this thread's stripe: what a new slot holds on to. `this` is the directory's dentry.
    ///
    /// # Errors
    /// ENOENT once the directory is gone.
    pub(crate) fn anchor(&self, this: Shared<'_, Dentry>, guard: &Guard) -> Result<Counted<Anchor>> {
        let place = &self.stripes.0.mine().anchor;
        loop {
            if let Some(anchor) = place.load(guard) {
                match anchor.get() {
                    Some(anchor) => return Ok(anchor),
                    // Just let go of, by a removal or by an eviction that found the directory in use: it has left its place.
                    None => continue,
                }
            }
            let dir = this.get().ok_or(Error::NoEntry)?;
            // Losing this race to another thread of the same stripe is as good as winning it.
            let _ = place.compare_exchange(None, Some(Counted::new(Anchor::new(dir))));
            // A removal that has let go of this place before is seen here: both are exchanges of one word, and the removal
            // was decided before its own. There is no place that it did not come to: see `detach`.
            if self.is_removed(guard) {
                self.detach();
                return Err(Error::NoEntry);
            }
        }
    }

    /// Whether nothing needs to be asked about a name that is not bound here: it is known to be absent, the directory was
    /// removed, or the table is all there is.
    pub(crate) fn is_known_absent(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.backed.as_ref().is_none_or(|backed| backed.is_absent(hash, name, guard) || self.is_removed(guard))
    }

    /// Whether it was removed: nothing is in it, and nothing will be.
    pub(crate) fn is_removed(&self, guard: &Guard) -> bool {
        matches!(self.life.state(guard), LifeState::Removed)
    }

    /// Why something is refused in here: of a directory that was removed nobody is told more than that.
    #[cold]
    pub(crate) fn refusal(&self, error: Error, guard: &Guard) -> Error {
        if self.is_removed(guard) { Error::NoEntry } else { error }
    }

    /// The directory was removed: lets go of its dentry for good. From now on only slots that open files keep hold it.
    ///
    /// First there are no more stripes to come, so that every place where an anchor can be made is come to. A creator that
    /// is late in one of them finds the directory removed afterwards, and calls this again.
    pub(crate) fn detach(&self) {
        self.stripes.0.freeze();
        self.let_go();
        // The slots of entries that this thread has removed hold the dentry, too: others can reclaim them.
        pando_sync::flush_retired();
    }

    /// Lets go of the directory's own dentry: nothing is in it now. The next name makes a new anchor.
    pub(crate) fn let_go(&self) {
        for stripe in self.stripes.0.all() {
            drop(stripe.anchor.swap(None));
        }
    }

    /// Where it lies.
    pub(crate) fn parts(&self, guard: &Guard, parts: &mut Vec<Part>) {
        parts.push(Part::of("Directory", self));
        parts.push(Part::of("Directory.table", &self.table));
        parts.push(Part::of("Directory.life", &self.life));
        parts.push(Part::of("Directory.stripes", &self.stripes));
        for (i, stripe) in self.stripes.0.all().enumerate() {
            if i > 0 {
                parts.push(Part::of("a stripe of Directory", stripe));
            }
            parts.extend(stripe.anchor.load(guard).map(|anchor| Part::of("Anchor", anchor.to_ref())));
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::{Operation, pin};

    use super::*;

    #[test]
    fn what_is_counted_while_a_backing_is_asked_stays_counted() {
        let (directory, guard) = (Directory::backed(0, 2), pin());
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

    /// A late anchor in a stripe that came after the removal's `detach` would hold the directory for ever.
    #[test]
    fn a_removed_directory_gets_no_stripes() {
        let directory = Directory::new();
        let op = Operation::new();
        let removal = directory.life.begin_removal(&op).expect("alive");
        assert!(op.commit());
        removal.finish();
        directory.detach();
        (0..64).for_each(|_| directory.contended(&pin()));
        assert!(!directory.stripes.0.is_inflated());
    }

    /// But one that was let go of while it was in use still spreads over the cores.
    #[test]
    fn a_directory_that_stays_gets_stripes_when_it_needs_them() {
        let directory = Directory::new();
        directory.let_go();
        (0..64).for_each(|_| directory.contended(&pin()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(directory.stripes.0.is_inflated(), cores > 1);
    }
}
