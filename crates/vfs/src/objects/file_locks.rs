//! The locks of files that programs ask for, of all trees of a namespace. Analogous to fs/locks.c.
//!
//! The locks of an inode are a list behind one mutex, and so are the threads that wait for one of
//! them. A change of the list that makes room wakes those that may use the room, and they look
//! again. So each call has its instant in that mutex.
//!
//! **Deadlocks** are found for processes, as on Linux. A process that waits is noted together with
//! all those whose locks it waits for. Before it waits, the notes are followed from these: if they
//! lead back, the call fails (EDEADLK). Each note is true: a call that makes room removes the notes
//! of the threads that it wakes, before it returns. No note is missing: a new lock for which a
//! thread must wait as well wakes it, too. Threads that are woken note again what they wait for,
//! and fail if that closes a circle now.
//!
//! Lock order: the shard of the table, the list of the inode, the notes. A thread that has one of
//! them takes no lock of the tree.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pando_sync::lock;

use crate::{
    Error, Result,
    types::file_lock::{HeldLock, LockKind, LockRange, LockWait},
};

const SHARDS: usize = 64;
/// The most locks on ranges of all files together. More could fill the memory.
const LOCKS_MAX: usize = 1 << 20;

/// The owner of a lock: a process, or an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Process(u64),
    OpenFile(u64),
}

impl Owner {
    fn process(self) -> Option<u64> {
        match self {
            Self::Process(number) => Some(number),
            Self::OpenFile(_) => None,
        }
    }
}

/// A file: superblock and inode number.
pub(crate) type Key = (u64, u64);

/// See the module.
pub(crate) struct FileLocks {
    shards: [Mutex<HashMap<Key, Arc<InodeLocks>>>; SHARDS],
    /// Which process waits for which others, and with how many threads.
    notes: Mutex<HashMap<u64, HashMap<u64, usize>>>,
    /// How many locks on ranges there are.
    count: AtomicUsize,
    /// The number of the next open file that has locks.
    next_file: AtomicU64,
}

/// The locks of an inode.
#[derive(Default)]
struct InodeLocks {
    list: Mutex<List>,
    /// A thread that waits was woken.
    woken: Condvar,
}

#[derive(Default)]
struct List {
    ranges: Vec<RangeLock>,
    /// Of whole open files (flock(2)), one of each.
    flocks: Vec<(u64, LockKind)>,
    waits: Vec<Wait>,
    next_wait: u64,
}

#[derive(Debug, Clone, Copy)]
struct RangeLock {
    owner: Owner,
    kind: LockKind,
    range: LockRange,
}

/// A thread that waits.
struct Wait {
    number: u64,
    /// By which open file it waits.
    file: u64,
    /// The range that it waits for. None: an flock.
    range: Option<LockRange>,
    /// The process that waits. None: an open file.
    process: Option<u64>,
    /// The processes that are noted to be waited for. None after it was woken.
    noted: Vec<u64>,
    woken: bool,
    interrupted: bool,
}

impl Wait {
    /// Whether a process waits, and not for this owner.
    fn must_also_wait_for(&self, owner: Owner) -> bool {
        let (Some(me), Owner::Process(process)) = (self.process, owner) else { return false };
        !self.woken && me != process && !self.noted.contains(&process)
    }
}

/// Why a call must wait.
struct Excluded {
    range: Option<LockRange>,
    /// The process that must wait, and the processes whose locks it waits for.
    process: Option<u64>,
    noted: Vec<u64>,
}

fn exclude(one: LockKind, other: LockKind) -> bool {
    one == LockKind::Exclusive || other == LockKind::Exclusive
}

impl List {
    fn is_unused(&self) -> bool {
        self.ranges.is_empty() && self.flocks.is_empty() && self.waits.is_empty()
    }

    /// The locks of other owners that exclude this one.
    fn excluding(&self, owner: Owner, kind: LockKind, range: LockRange) -> impl Iterator<Item = &RangeLock> {
        self.ranges
            .iter()
            .filter(move |lock| lock.owner != owner && lock.range.overlaps(range) && exclude(lock.kind, kind))
    }

    /// Computes the locks of an owner after it sets a lock on a range, or removes its locks there.
    /// Locks of one kind that touch become one.
    fn replacement(&self, owner: Owner, kind: Option<LockKind>, range: LockRange) -> Replacement {
        let mut new = Replacement { locks: Vec::new(), replaced: 0, makes_room: false };
        let mut whole = range;
        for lock in self.ranges.iter().filter(|lock| lock.is_replaced_by(owner, kind, range)) {
            let old = lock.range;
            new.replaced += 1;
            if kind == Some(lock.kind) {
                whole = LockRange { first: whole.first.min(old.first), last: whole.last.max(old.last) };
                continue;
            }
            new.makes_room |= lock.kind == LockKind::Exclusive || kind.is_none();
            let before = (old.first < range.first).then(|| LockRange { first: old.first, last: range.first - 1 });
            let after = (old.last > range.last).then(|| LockRange { first: range.last + 1, last: old.last });
            new.locks.extend(before.into_iter().chain(after).map(|range| RangeLock { range, ..*lock }));
        }
        new.locks.extend(kind.map(|kind| RangeLock { owner, kind, range: whole }));
        new
    }

    /// Gives memory back after locks or waits were removed.
    fn shrink(&mut self) {
        fn shrink<T>(list: &mut Vec<T>) {
            if list.capacity() / 4 > list.len() {
                list.shrink_to_fit();
            }
        }
        shrink(&mut self.ranges);
        shrink(&mut self.flocks);
        shrink(&mut self.waits);
    }
}

impl RangeLock {
    /// Whether a change of what an owner has in a range replaces this lock.
    fn is_replaced_by(&self, owner: Owner, kind: Option<LockKind>, range: LockRange) -> bool {
        let (old, same_kind) = (self.range, kind == Some(self.kind));
        let touches = old.first <= range.last.saturating_add(1) && range.first <= old.last.saturating_add(1);
        self.owner == owner && (old.overlaps(range) || same_kind && touches)
    }
}

/// See [`List::replacement`].
struct Replacement {
    locks: Vec<RangeLock>,
    /// How many locks they replace.
    replaced: usize,
    /// Whether others may have more room.
    makes_room: bool,
}

impl Default for FileLocks {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            notes: Mutex::default(),
            count: AtomicUsize::new(0),
            next_file: AtomicU64::new(1),
        }
    }
}

impl FileLocks {
    /// A number for an open file. Not 0.
    pub(crate) fn number_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets a lock on a range, or removes what an owner has there. `file` is the open file that is
    /// used.
    ///
    /// # Errors
    /// EAGAIN: others have a lock, also after the wait. EDEADLK, EINTR, ENOLCK.
    pub(crate) fn set_range(
        &self,
        (key, file): (Key, u64),
        owner: Owner,
        kind: Option<LockKind>,
        range: LockRange,
        wait: LockWait,
    ) -> Result<()> {
        let inode = self.inode(key);
        inode.wait_for(file, wait, |list| {
            if let Some(kind) = kind {
                let process = owner.process();
                let mut noted = Vec::new();
                let mut is_free = true;
                for other in list.excluding(owner, kind, range) {
                    is_free = false;
                    noted.extend(other.owner.process().filter(|_| process.is_some()));
                }
                if !is_free {
                    noted.sort_unstable();
                    noted.dedup();
                    return Err(Excluded { range: Some(range), process, noted });
                }
            }
            let new = list.replacement(owner, kind, range);
            let grows = new.locks.len() > new.replaced;
            // One lock that is split becomes three.
            if grows && self.count.load(Ordering::Relaxed) + 2 > LOCKS_MAX {
                return Ok(Err(Error::NoLocks));
            }
            self.count.fetch_add(new.locks.len().wrapping_sub(new.replaced), Ordering::Relaxed);
            list.ranges.retain(|lock| !lock.is_replaced_by(owner, kind, range));
            list.ranges.extend(new.locks);
            list.shrink();
            let is_new_for = |wait: &Wait| kind.is_some() && wait.must_also_wait_for(owner);
            inode.wake(list, |wait| {
                wait.range.is_some_and(|wanted| wanted.overlaps(range)) && (new.makes_room || is_new_for(wait))
            });
            Ok(Ok(()))
        })?
    }

    /// The lock of another owner, the one with the first byte, that excludes this one.
    pub(crate) fn excluding(&self, key: Key, owner: Owner, kind: LockKind, range: LockRange) -> Option<HeldLock> {
        let inode = self.known_inode(key)?;
        let list = lock(&inode.locks().list);
        let lock = list.excluding(owner, kind, range).min_by_key(|lock| lock.range.first)?;
        Some(HeldLock { kind: lock.kind, range: lock.range, process: lock.owner.process() })
    }

    /// Sets the lock of a whole open file, or removes it. If one of another kind must wait for
    /// others, the old one is gone.
    ///
    /// # Errors
    /// EAGAIN: others have a lock, also after the wait. EINTR.
    pub(crate) fn set_flock(&self, key: Key, file: u64, kind: Option<LockKind>, wait: LockWait) -> Result<()> {
        let inode = self.inode(key);
        inode.wait_for(file, wait, |list| {
            let own = list.flocks.iter().position(|(owner, _)| *owner == file);
            if kind.is_some() && own.map(|own| list.flocks[own].1) == kind {
                return Ok(());
            }
            if let Some(own) = own {
                list.flocks.swap_remove(own);
            }
            let is_free = kind.is_none_or(|kind| !list.flocks.iter().any(|(_, other)| exclude(*other, kind)));
            list.flocks.extend(kind.filter(|_| is_free).map(|kind| (file, kind)));
            if own.is_some() {
                list.shrink();
                inode.wake(list, |wait| wait.range.is_none());
            }
            if is_free { Ok(()) } else { Err(Excluded { range: None, process: None, noted: Vec::new() }) }
        })
    }

    /// Removes all locks of an owner at an inode: those on ranges, and of an open file its flock.
    pub(crate) fn release(&self, key: Key, owner: Owner) {
        let Some(inode) = self.known_inode(key) else { return };
        let mut list = lock(&inode.locks().list);
        let mut freed: Vec<LockRange> =
            list.ranges.extract_if(.., |lock| lock.owner == owner).map(|lock| lock.range).collect();
        freed.sort_unstable_by_key(|range| range.first);
        self.count.fetch_sub(freed.len(), Ordering::Relaxed);
        let flocks = list.flocks.len();
        list.flocks.retain(|(file, _)| Owner::OpenFile(*file) != owner);
        let had_flock = list.flocks.len() < flocks;
        list.shrink();
        inode.wake(&mut list, |wait| match wait.range {
            // Those of one owner do not overlap.
            Some(wanted) => freed
                .get(freed.partition_point(|range| range.last < wanted.first))
                .is_some_and(|range| range.overlaps(wanted)),
            None => had_flock,
        });
    }

    /// Removes all locks of a process.
    pub(crate) fn release_process(&self, process: u64) {
        for shard in &self.shards {
            let keys: Vec<Key> = lock(shard).keys().copied().collect();
            keys.into_iter().for_each(|key| self.release(key, Owner::Process(process)));
        }
    }

    /// Ends the waits of an open file: EINTR.
    pub(crate) fn interrupt(&self, key: Key, file: u64) {
        let Some(inode) = self.known_inode(key) else { return };
        let mut list = lock(&inode.locks().list);
        list.waits.iter_mut().filter(|wait| wait.file == file).for_each(|wait| wait.interrupted = true);
        inode.wake(&mut list, |wait| wait.interrupted);
    }

    /// How many threads wait at an inode.
    #[cfg(feature = "introspection")]
    pub(crate) fn waiting(&self, key: Key) -> usize {
        self.known_inode(key).map_or(0, |inode| lock(&inode.locks().list).waits.len())
    }

    /// Whether nothing is kept: no entry, no lock on a range, no note.
    #[cfg(any(test, feature = "introspection"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
            && self.count.load(Ordering::Relaxed) == 0
            && lock(&self.notes).is_empty()
    }

    fn shard(&self, key: Key) -> &Mutex<HashMap<Key, Arc<InodeLocks>>> {
        // Inode numbers are handed out one after the other.
        &self.shards[key.1 as usize % SHARDS]
    }

    /// The locks of an inode, which need not have any.
    fn inode(&self, key: Key) -> Used<'_> {
        let locks = lock(self.shard(key)).entry(key).or_default().clone();
        Used { table: self, key, locks: Some(locks) }
    }

    /// The locks of an inode, if it has any.
    fn known_inode(&self, key: Key) -> Option<Used<'_>> {
        let locks = lock(self.shard(key)).get(&key).cloned()?;
        Some(Used { table: self, key, locks: Some(locks) })
    }
}

/// The locks of an inode in use. The last user removes them from the table if there are none.
struct Used<'a> {
    table: &'a FileLocks,
    key: Key,
    /// Always there, except in `drop`.
    locks: Option<Arc<InodeLocks>>,
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        let mut shard = lock(self.table.shard(self.key));
        self.locks = None;
        // New users come through the shard. Besides the table there is none now.
        let is_unused = |locks: &Arc<InodeLocks>| Arc::strong_count(locks) == 1 && lock(&locks.list).is_unused();
        if shard.get(&self.key).is_some_and(is_unused) {
            shard.remove(&self.key);
        }
        if shard.capacity() / 8 > shard.len() + SHARDS {
            shard.shrink_to_fit();
        }
    }
}

impl Used<'_> {
    fn locks(&self) -> &InodeLocks {
        self.locks.as_ref().expect("it is there until this is dropped")
    }

    /// Tries to do something with the list, and waits while that is not possible. `act` returns its
    /// result, or what it must wait for.
    fn wait_for<T>(
        &self,
        file: u64,
        wait: LockWait,
        mut act: impl FnMut(&mut List) -> std::result::Result<T, Excluded>,
    ) -> Result<T> {
        let deadline = match wait {
            LockWait::For(time) => Instant::now().checked_add(time),
            LockWait::No | LockWait::Forever => None,
        };
        let locks = self.locks();
        let mut list = lock(&locks.list);
        loop {
            let excluded = match act(&mut list) {
                Ok(done) => return Ok(done),
                Err(excluded) => excluded,
            };
            let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if wait == LockWait::No || left() == Some(Duration::ZERO) {
                return Err(Error::TryAgain);
            }
            let number = self.begin_wait(&mut list, file, excluded)?;
            let ended = loop {
                list = match left() {
                    None => locks.woken.wait(list).unwrap_or_else(PoisonError::into_inner),
                    Some(left) => locks.woken.wait_timeout(list, left).unwrap_or_else(PoisonError::into_inner).0,
                };
                let place = list.waits.iter().position(|wait| wait.number == number);
                let place = place.expect("this thread removes it");
                if list.waits[place].woken || list.waits[place].interrupted || left() == Some(Duration::ZERO) {
                    break list.waits.swap_remove(place);
                }
            };
            list.shrink();
            self.remove_notes(ended.process, ended.noted);
            if ended.interrupted {
                return Err(Error::Interrupted);
            }
            if !ended.woken {
                return Err(Error::TryAgain);
            }
        }
    }

    /// Adds a wait, and returns its number.
    ///
    /// # Errors
    /// EDEADLK: one of those that it waits for waits for this process.
    fn begin_wait(&self, list: &mut List, file: u64, excluded: Excluded) -> Result<u64> {
        let Excluded { range, process, noted } = excluded;
        if let Some(me) = process
            && !noted.is_empty()
        {
            let mut notes = lock(&self.table.notes);
            let mut next = noted.clone();
            let mut seen = HashSet::new();
            while let Some(process) = next.pop() {
                if process == me {
                    return Err(Error::Deadlock);
                }
                if seen.insert(process) {
                    next.extend(notes.get(&process).into_iter().flat_map(HashMap::keys));
                }
            }
            let mine = notes.entry(me).or_default();
            noted.iter().for_each(|other| *mine.entry(*other).or_default() += 1);
        }
        let number = list.next_wait;
        list.next_wait += 1;
        list.waits.push(Wait { number, file, range, process, noted, woken: false, interrupted: false });
        Ok(number)
    }

    /// Wakes threads that wait, after their notes were removed.
    fn wake(&self, list: &mut List, is_concerned: impl Fn(&Wait) -> bool) {
        let mut any = false;
        for wait in &mut list.waits {
            if is_concerned(wait) {
                (wait.woken, any) = (true, true);
                self.remove_notes(wait.process, mem::take(&mut wait.noted));
            }
        }
        if any {
            self.locks().woken.notify_all();
        }
    }

    fn remove_notes(&self, process: Option<u64>, noted: Vec<u64>) {
        let Some(me) = process.filter(|_| !noted.is_empty()) else { return };
        let mut notes = lock(&self.table.notes);
        let Entry::Occupied(mut mine) = notes.entry(me) else { return };
        for other in noted {
            if let Entry::Occupied(mut threads) = mine.get_mut().entry(other) {
                *threads.get_mut() -= 1;
                if *threads.get() == 0 {
                    threads.remove();
                }
            }
        }
        if mine.get().is_empty() {
            mine.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a guest could fill the memory with the room of locks that it had.
    #[test]
    fn the_room_of_released_locks_is_given_back() {
        let (locks, key) = (FileLocks::default(), (1, 1));
        let set = |owner, first| {
            let range = LockRange { first, last: first };
            locks.set_range((key, owner), Owner::OpenFile(owner), Some(LockKind::Shared), range, LockWait::No)
        };
        (0..1000).for_each(|place| set(1, 2 * place).expect("locked"));
        set(2, 0).expect("locked");
        (3..500).for_each(|file| locks.set_flock(key, file, Some(LockKind::Shared), LockWait::No).expect("locked"));
        let room = || {
            let inode = locks.known_inode(key).expect("there are locks");
            let list = lock(&inode.locks().list);
            (list.ranges.capacity(), list.flocks.capacity())
        };
        assert!(room().0 >= 1000 && room().1 >= 497, "{:?}", room());
        locks.release(key, Owner::OpenFile(1));
        (3..500).for_each(|file| locks.release(key, Owner::OpenFile(file)));
        assert!(room().0 <= 16 && room().1 <= 16, "{:?}", room());
        locks.release(key, Owner::OpenFile(2));
        assert!(locks.is_empty());
    }
}
