//! Changes that are not committed yet, in memory, over an engine.
//!
//! Each change belongs to a generation: the one that is collected when the change is made. Then the
//! generation is closed while no operation is in the middle of its changes, and committed as one
//! transaction. Meanwhile the next one is collected. So what a crash leaves are the operations
//! before some instant, all of them whole.
//!
//! A record is looked for in the generation that is collected, then in the one that is committed,
//! and then in the engine.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use pando_kv::{Engine, Snapshot, Transaction};
use pando_sync::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard, Padded, lock};
use pando_vfs::{Error, Result};

use crate::{
    key::{HASH_BITS, Key},
    numbers::RUN_BITS,
};

/// Records of a run of inodes share a part. The names of a directory are in some parts, by the
/// order of their hashes. Others seldom share one.
const PARTS: usize = 64;
/// How many parts the names of a directory are in: so many bits of the hash say in which.
const SPREAD_BITS: u32 = 3;

/// See the module.
pub(crate) struct Staged {
    pub engine: Box<dyn Engine>,
    /// What the engine has. It has every generation whose changes are in no part any more. Guarded
    /// by its own lock, a leaf.
    snapshot: BiasedRwLock<Box<dyn Snapshot>>,
    /// Held shared by an operation while it makes its changes, and exclusively when a generation is
    /// closed.
    gate: BiasedRwLock<()>,
    /// Each is guarded by its own mutex, a leaf. Several are taken in their order.
    parts: Vec<Padded<Mutex<Part>>>,
    /// The bytes of the changes that are collected, as far as parts have told. Atomic: a hint.
    bytes: AtomicUsize,
}

/// With so many bytes of changes, the generation is to be committed.
const SOME: usize = 32 << 20;
/// With so many, operations wait for it.
const FULL: usize = 4 * SOME;
/// A part tells of its bytes when they have changed by so much.
const STEP: usize = 64 << 10;

/// How urgent a commit is, because of the memory that changes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    None,
    /// Soon.
    Some,
    /// Before any further change.
    Full,
}

#[derive(Default)]
struct Part {
    /// The generation that is collected.
    collected: Changes,
    /// The bytes of its changes, and those that it has told of.
    bytes: usize,
    told: usize,
    /// The one that is committed.
    committing: Arc<Changes>,
    /// How many names were added. A directory with names in this part has got none here while it
    /// stays the same.
    added: u64,
    /// The directories that were removed and are still used. They get no names any more.
    removed: HashSet<u64>,
}

impl Part {
    /// The state of a record, if its value in the engine is not the newest.
    fn get(&self, key: &Key) -> Option<&Staging> {
        self.collected.get(key).or_else(|| self.committing.get(key))
    }

    /// Tells of a change by many bytes.
    fn tell(&mut self, total: &AtomicUsize) {
        if self.bytes.abs_diff(self.told) >= STEP {
            total.fetch_add(self.bytes.wrapping_sub(self.told), Ordering::Relaxed);
            self.told = self.bytes;
        }
    }
}

/// The changes of a generation.
type Changes = BTreeMap<Key, Staging>;

/// Records of the engine, in the order of keys.
#[derive(Default)]
struct Page {
    /// Each with the end of its value in `values`.
    keys: Vec<(Key, usize)>,
    values: Vec<u8>,
    has_unknown_key: bool,
}

impl Page {
    fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.has_unknown_key = false;
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let Some(key) = Key::of(key) else {
            self.has_unknown_key = true;
            return;
        };
        self.values.extend_from_slice(value);
        self.keys.push((key, self.values.len()));
    }

    fn records(&self) -> impl Iterator<Item = (Key, &[u8])> {
        let mut begin = 0;
        self.keys.iter().map(move |(key, end)| (*key, &self.values[std::mem::replace(&mut begin, *end)..*end]))
    }
}

/// The state of a record after the changes of a generation.
#[derive(Debug, Clone)]
struct Staging {
    /// None: there is no record.
    value: Option<Box<[u8]>>,
    /// Before the generation, there was no record.
    is_new: bool,
}

impl Staging {
    fn value(&self) -> Option<Vec<u8>> {
        self.value.as_deref().map(Into::into)
    }

    fn bytes(&self) -> usize {
        size_of::<(Key, Self)>() + self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// The permission to change records. What one operation changes under one permission is in one
/// generation.
pub(crate) enum Changing<'s> {
    Shared {
        _gate: BiasedReadGuard<'s, ()>,
    },
    /// No other operation changes anything.
    Alone {
        _gate: BiasedWriteGuard<'s, ()>,
    },
}

/// The value of a record, as it was read under a [`Changing`].
pub(crate) struct Below(Option<Vec<u8>>);

impl Below {
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl Staged {
    pub(crate) fn new(engine: Box<dyn Engine>) -> pando_kv::Result<Self> {
        let snapshot = BiasedRwLock::new(engine.snapshot()?);
        let parts = (0..PARTS).map(|_| Padded::default()).collect();
        Ok(Self { engine, snapshot, gate: BiasedRwLock::new(()), parts, bytes: AtomicUsize::new(0) })
    }

    /// Waits while a generation is closed.
    pub(crate) fn change(&self) -> Changing<'_> {
        Changing::Shared { _gate: self.gate.read() }
    }

    /// As [`Staged::change`]. None if it would have to wait.
    pub(crate) fn try_change(&self) -> Option<Changing<'_>> {
        Some(Changing::Shared { _gate: self.gate.try_read()? })
    }

    /// Waits until no other operation is in the middle of its changes.
    pub(crate) fn change_alone(&self) -> Changing<'_> {
        Changing::Alone { _gate: self.gate.write() }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        match self.bytes.load(Ordering::Relaxed) {
            ..SOME => Pressure::None,
            SOME..FULL => Pressure::Some,
            _ => Pressure::Full,
        }
    }

    fn part(&self, key: &Key) -> MutexGuard<'_, Part> {
        let (group, place) = if key.is_names() { (key.number(), place_of(key)) } else { (key.number() >> RUN_BITS, 0) };
        lock(&self.parts[part_of(group, place)].0)
    }

    /// All parts with names of a directory, in the order of their locks.
    fn parts_of(&self, dir: u64) -> Vec<MutexGuard<'_, Part>> {
        let mut places: [usize; 1 << SPREAD_BITS] = std::array::from_fn(|place| part_of(dir, place));
        places.sort_unstable();
        places.iter().map(|place| lock(&self.parts[*place].0)).collect()
    }

    /// Reads from the engine. A snapshot fails for good after a failure of the storage, so then a
    /// new one is taken. `read` may be called twice.
    fn read<T>(&self, read: &mut dyn FnMut(&dyn Snapshot) -> pando_kv::Result<T>) -> Result<T> {
        let found = read(&**self.snapshot.read());
        match found {
            Err(pando_kv::Error::Io(_)) => self.renew_snapshot().and_then(|()| read(&**self.snapshot.read())),
            found => found,
        }
        .map_err(from_engine)
    }

    /// Waits for threads that read.
    fn renew_snapshot(&self) -> pando_kv::Result<()> {
        // Under the lock, so that no older one replaces a newer one.
        let mut place = self.snapshot.write();
        *place = self.engine.snapshot()?;
        Ok(())
    }

    /// The value of a record.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn get(&self, key: Key) -> Result<Option<Vec<u8>>> {
        let staged = self.part(&key).get(&key).map(Staging::value);
        // After the part was read: a generation that has left it since is in the snapshot.
        staged.map_or_else(|| self.read(&mut |snapshot| snapshot.get_one(&key)), Ok)
    }

    /// The values of records, in the order of the keys.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values: Vec<Option<Vec<u8>>> = Vec::with_capacity(keys.len());
        let mut missing: Vec<usize> = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let part = self.part(key);
            let staged = part.get(key);
            values.push(staged.and_then(Staging::value));
            if staged.is_none() {
                missing.push(place);
            }
        }
        if !missing.is_empty() {
            let wanted: Vec<&[u8]> = missing.iter().map(|place| &*keys[*place]).collect();
            // After the parts were read, as above.
            let found = self.read(&mut |snapshot| snapshot.get(&wanted))?;
            missing.iter().zip(found).for_each(|(place, value)| values[*place] = value);
        }
        Ok(values)
    }

    /// Calls `each` with the records from `from` on and before `end`, in the order of keys, until
    /// it returns false. Both keys are of one directory, or of one run of inodes.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn scan(&self, from: Key, end: Key, each: &mut dyn FnMut(Key, &[u8]) -> bool) -> Result<()> {
        const PAGE: usize = 256;
        let (mut start, mut stored) = (from, Page::default());
        while start < end {
            let mut staged: BTreeMap<Key, Option<Box<[u8]>>> = BTreeMap::new();
            let mut staged_to = None;
            let mut part_start = start;
            while staged_to.is_none() {
                let part_end = end_of_part(&part_start).filter(|part_end| *part_end < end);
                let part = self.part(&part_start);
                // The younger one last: it replaces the other.
                for changes in [&*part.committing, &part.collected] {
                    let mut taken = changes.range(part_start..part_end.unwrap_or(end));
                    staged.extend(taken.by_ref().take(PAGE).map(|(key, staging)| (*key, staging.value.clone())));
                    let next = taken.next().map(|(key, _)| *key);
                    staged_to = [staged_to, next].into_iter().flatten().min();
                }
                let Some(part_end) = part_end else { break };
                part_start = part_end;
                if staged.len() >= PAGE {
                    staged_to = staged_to.or(Some(part_end));
                }
            }
            // After the part was read, as above.
            let next = self.read(&mut |snapshot| {
                stored.clear();
                snapshot.page(&*start..&*end, PAGE, &mut |key, value| stored.push(key, value))
            })?;
            let next = next.map(|next| Key::of(&next).ok_or(Error::Io)).transpose()?;
            if stored.has_unknown_key {
                return Err(Error::Io);
            }
            // What is beyond the end of one of the sources is not complete yet.
            let complete_to = [staged_to, next].into_iter().flatten().min();
            let mut take = |key: Key, value: &[u8]| complete_to.is_some_and(|to| key >= to) || each(key, value);
            let mut staged = staged.into_iter().peekable();
            for (key, value) in stored.records() {
                let mut is_replaced = false;
                while let Some((staged_key, staged_value)) = staged.next_if(|(staged_key, _)| *staged_key <= key) {
                    is_replaced = staged_key == key;
                    if staged_value.is_some_and(|value| !take(staged_key, &value)) {
                        return Ok(());
                    }
                }
                if !is_replaced && !take(key, value) {
                    return Ok(());
                }
            }
            for (key, value) in staged {
                if value.is_some_and(|value| !take(key, &value)) {
                    return Ok(());
                }
            }
            let Some(to) = complete_to else { break };
            start = to;
        }
        Ok(())
    }

    /// Calls `each` with the records in a range that the engine has.
    ///
    /// # Errors
    /// Those of the engine, EIO for a key that no record has.
    pub(crate) fn stored(&self, from: Key, end: Key, each: &mut dyn FnMut(Key, &[u8])) -> Result<()> {
        let mut unknown = false;
        let mut each = |key: &[u8], value: &[u8]| match Key::of(key) {
            Some(key) => each(key, value),
            None => unknown = true,
        };
        let snapshot = self.engine.snapshot().map_err(from_engine)?;
        snapshot.scan(&*from..&*end, &mut each).map_err(from_engine)?;
        if unknown { Err(Error::Io) } else { Ok(()) }
    }

    /// Reads a record that is then changed with [`Staged::modify`].
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn load(&self, _: &Changing<'_>, key: Key) -> Result<Below> {
        // If a part has the record, what is below is not used.
        self.get(key).map(Below)
    }

    /// Changes a record. `change` gets its value, which another operation may have changed since it
    /// was loaded, and returns the new one. Returns what `change` returns beside it.
    pub(crate) fn modify<T>(
        &self,
        changing: &Changing<'_>,
        key: Key,
        below: &Below,
        change: impl FnOnce(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> T {
        self.modify_in(&mut self.part(&key), changing, key, below, change)
    }

    fn modify_in<T>(
        &self,
        part: &mut Part,
        _: &Changing<'_>,
        key: Key,
        below: &Below,
        change: impl FnOnce(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> T {
        let before = part.committing.get(&key).map_or(below.0.as_deref(), |staged| staged.value.as_deref());
        let staged = part.collected.get(&key);
        let is_new = staged.map_or(before.is_none(), |staged| staged.is_new);
        let (value, result) = change(staged.map_or(before, |staged| staged.value.as_deref()));
        let old = if value.is_none() && is_new {
            part.collected.remove(&key)
        } else {
            let now = Staging { value: value.map(Vec::into_boxed_slice), is_new };
            part.bytes += now.bytes();
            part.collected.insert(key, now)
        };
        part.bytes -= old.map_or(0, |old| old.bytes());
        part.tell(&self.bytes);
        result
    }

    /// As [`Staged::modify`], for the names of a directory, of which one is added.
    ///
    /// # Errors
    /// ENOENT if the directory was removed.
    pub(crate) fn add_name<T>(
        &self,
        changing: &Changing<'_>,
        key: Key,
        below: &Below,
        add: impl FnOnce(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> Result<T> {
        let mut part = self.part(&key);
        if part.removed.contains(&key.number()) {
            return Err(Error::NoEntry);
        }
        part.added += 1;
        Ok(self.modify_in(&mut part, changing, key, below, add))
    }

    /// Removes a directory if it has no names. From then on it gets none.
    ///
    /// # Errors
    /// ENOTEMPTY, and those of `is_empty`.
    pub(crate) fn remove_directory(&self, dir: u64, is_empty: impl Fn() -> Result<bool>) -> Result<()> {
        let added = |parts: &[MutexGuard<'_, Part>]| parts.iter().map(|part| part.added).collect::<Vec<_>>();
        loop {
            let before = added(&self.parts_of(dir));
            if !is_empty()? {
                return Err(Error::NotEmpty);
            }
            let mut parts = self.parts_of(dir);
            if added(&parts) == before {
                parts.iter_mut().for_each(|part| _ = part.removed.insert(dir));
                return Ok(());
            }
        }
    }

    /// A directory that was removed is not used any more, or it is not removed after all.
    pub(crate) fn forget_directory(&self, dir: u64) {
        self.parts_of(dir).iter_mut().for_each(|part| _ = part.removed.remove(&dir));
    }

    /// Adds a record that is not there.
    pub(crate) fn add(&self, changing: &Changing<'_>, key: Key, value: Vec<u8>) {
        self.modify(changing, key, &Below(None), |_| (Some(value), ()));
    }

    /// Removes a record that is there.
    pub(crate) fn remove(&self, changing: &Changing<'_>, key: Key) {
        self.modify(changing, key, &Below(Some(Vec::new())), |_| (None, ()));
    }

    /// As [`Staged::load`]. None if the engine would have to be asked.
    pub(crate) fn load_staged(&self, _: &Changing<'_>, key: Key) -> Option<Below> {
        self.part(&key).get(&key).map(|staged| Below(staged.value()))
    }

    /// Closes the generation. Its changes are the result. The one before must be
    /// [finished](Staged::finish).
    pub(crate) fn close(&self, _: &Changing<'_>) -> Vec<Batch> {
        let close = |part: &Padded<Mutex<Part>>| {
            let part = &mut *lock(&part.0);
            debug_assert!(part.committing.is_empty(), "one generation is committed at a time");
            part.committing = Arc::new(std::mem::take(&mut part.collected));
            (part.bytes, part.told) = (0, 0);
            Batch(Arc::clone(&part.committing))
        };
        self.bytes.store(0, Ordering::Relaxed);
        self.parts.iter().map(close).filter(|batch| !batch.0.is_empty()).collect()
    }

    /// The engine has committed the closed generation.
    ///
    /// # Errors
    /// Those of the engine. Then it is to be called again.
    pub(crate) fn finish(&self) -> pando_kv::Result<()> {
        self.renew_snapshot()?;
        for part in &self.parts {
            let old = std::mem::take(&mut lock(&part.0).committing);
            drop(old);
        }
        Ok(())
    }
}

/// Changes of a closed generation.
pub(crate) struct Batch(Arc<Changes>);

impl Batch {
    /// Adds the changes to a transaction.
    pub(crate) fn add_to(&self, transaction: &mut Transaction) {
        for (key, staged) in &*self.0 {
            if staged.is_new {
                transaction.expect_absent(&**key);
            }
            match &staged.value {
                Some(value) => transaction.put(&**key, &**value),
                None => transaction.remove(&**key),
            }
        }
    }
}

/// The part of the names of a directory that has this key.
fn place_of(names: &Key) -> usize {
    (names.hash() >> (HASH_BITS - SPREAD_BITS)) as usize
}

/// The part with the records of a group: of a run of inodes, or of a directory's names.
fn part_of(group: u64, place: usize) -> usize {
    let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed as usize + place) % PARTS
}

/// The first key that is in another part, if the key is one of names and another part has later
/// ones.
fn end_of_part(key: &Key) -> Option<Key> {
    let next = (key.is_names().then(|| place_of(key))? + 1) as u64;
    (next < 1 << SPREAD_BITS).then(|| Key::names(key.number(), next << (HASH_BITS - SPREAD_BITS)))
}

/// The error of an operation for which the engine has failed.
pub(crate) fn from_engine(error: pando_kv::Error) -> Error {
    match error {
        pando_kv::Error::Io(error) => error.into(),
        _ => Error::Io,
    }
}
