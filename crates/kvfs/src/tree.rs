//! The tree in the store: its records, and how they are read.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use pando_sync::{Padded, Quota, lock};
use pando_vfs::{Error, NodeAttr, Record, RecordMask, Result, Xattr};

use crate::{
    files::{ContentsFile, Files},
    key::{HASH_BITS, Key},
    numbers::{InodeNumbers, RUN_BITS},
    open::identity,
    record::{Inode, Names, SLOTS, decode_xattrs},
    space::Space,
    staged::{Batch, Pressure, Staged},
};

/// See the module.
pub(crate) struct Tree {
    pub staged: Staged,
    pub numbers: InodeNumbers,
    /// How many inodes there are, and may be.
    pub inodes: Quota,
    pub space: Space,
    pub files: Box<dyn Files>,
    /// The key of the hashes of names. Secret, so that nobody can choose names with one hash.
    hash_key: [u8; 16],
    /// What is done at the next commit besides the records. Guarded by its own mutex, a leaf.
    file_changes: Mutex<FileChanges>,
    /// How many files of contents were written since the last generation was closed, and how many
    /// may be until the next one is. Atomic: a single independent value.
    written: AtomicUsize,
    written_max: usize,
    pub unnamed: Unnamed,
    /// A flush has failed, or the thread that commits has panicked. Nothing more is committed, and
    /// nothing more may be changed. Atomic: a single independent value.
    pub has_stopped: Arc<AtomicBool>,
}

/// What belongs to a generation besides its records.
#[derive(Default)]
pub(crate) struct FileChanges {
    /// Files of contents that were written, held open. They are flushed before the records are
    /// committed.
    pub written: HashMap<u64, Arc<dyn ContentsFile>>,
    /// Files of contents that are removed after the commit.
    pub removed: Vec<u64>,
    /// Whether files of contents were made.
    pub made: bool,
}

impl FileChanges {
    /// No record has this file any more, from the next commit on.
    pub(crate) fn remove(&mut self, number: u64) {
        self.written.remove(&number);
        self.removed.push(number);
    }
}

/// A closed generation.
pub(crate) struct Generation {
    pub batches: Vec<Batch>,
    pub files: FileChanges,
    /// All numbers in it are of runs before this one.
    pub next_run: u64,
    /// How many inodes there are then, and the space of their contents.
    pub inodes: u64,
    pub space: u64,
    /// It is the last one.
    pub closes: bool,
    /// How many commits there were before the first attempt to commit it.
    pub commits_before: Option<i64>,
}

impl Generation {
    pub(crate) fn is_empty(&self) -> bool {
        let files = &self.files;
        self.batches.is_empty() && files.written.is_empty() && files.removed.is_empty() && !files.made
    }
}

/// The inodes that have lost their last name, or have not had one, and that the namespace still
/// uses.
#[derive(Default)]
pub(crate) struct Unnamed {
    parts: [Padded<Mutex<HashSet<u64>>>; 16],
    /// Those that it does not use any more, and that are still to be freed. Guarded by its own
    /// mutex, a leaf.
    forgotten: Mutex<Vec<u64>>,
}

impl Unnamed {
    /// Threads that make files have runs of their own.
    fn part(&self, ino: u64) -> MutexGuard<'_, HashSet<u64>> {
        lock(&self.parts[(ino >> RUN_BITS) as usize % 16].0)
    }

    pub(crate) fn insert(&self, ino: u64) {
        self.part(ino).insert(ino);
    }

    /// Whether it was there.
    pub(crate) fn remove(&self, ino: u64) -> bool {
        self.part(ino).remove(&ino)
    }

    pub(crate) fn forget(&self, ino: u64) {
        self.forgotten().push(ino);
    }

    /// At most so many of those that are to be freed.
    pub(crate) fn take_forgotten(&self, most: usize) -> Vec<u64> {
        let mut forgotten = self.forgotten();
        let rest = forgotten.len().saturating_sub(most);
        forgotten.split_off(rest)
    }

    fn forgotten(&self) -> MutexGuard<'_, Vec<u64>> {
        lock(&self.forgotten)
    }
}

/// The first cookie of an entry. Those below stand for the start and for `.` and `..`.
const FIRST_COOKIE: u64 = 3;

/// The place of a name in its directory.
fn cookie_of(hash: u64, slot: u8) -> u64 {
    hash * u64::from(SLOTS) + u64::from(slot) + FIRST_COOKIE
}

impl Tree {
    pub(crate) fn new(
        staged: Staged,
        files: Box<dyn Files>,
        hash_key: [u8; 16],
        numbers: InodeNumbers,
        (inodes, space): (Quota, Space),
        written_max: usize,
    ) -> Self {
        Self {
            staged,
            numbers,
            inodes,
            space,
            files,
            hash_key,
            file_changes: Mutex::default(),
            written: AtomicUsize::new(0),
            written_max,
            unnamed: Unnamed::default(),
            has_stopped: Arc::default(),
        }
    }

    /// A number that no other store has.
    pub(crate) fn identity(&self) -> u64 {
        identity(&self.hash_key)
    }

    /// The record in which a name is, if it is there.
    pub(crate) fn names_key(&self, dir: u64, name: &[u8]) -> Key {
        Key::of_name(&self.hash_key, dir, name)
    }

    pub(crate) fn file_changes(&self) -> MutexGuard<'_, FileChanges> {
        lock(&self.file_changes)
    }

    /// The contents in a file have changed.
    ///
    /// # Errors
    /// The file cannot be held open. The change may be lost with a crash.
    pub(crate) fn note_written(&self, number: u64, file: &dyn ContentsFile) -> Result<()> {
        let mut changes = self.file_changes();
        if let Entry::Vacant(place) = changes.written.entry(number) {
            place.insert(file.held()?);
            self.written.store(changes.written.len(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// How urgent a commit is.
    pub(crate) fn pressure(&self) -> Pressure {
        let of_files = match self.written.load(Ordering::Relaxed) {
            written if written < self.written_max / 2 => Pressure::None,
            written if written < self.written_max => Pressure::Some,
            _ => Pressure::Full,
        };
        self.staged.pressure().max(of_files)
    }

    /// Closes the generation that was collected. Calls `note` while no operation is in the middle
    /// of its changes.
    pub(crate) fn close(&self, note: impl FnOnce()) -> Generation {
        let changing = self.staged.change_alone();
        let batches = self.staged.close(&changing);
        note();
        let files = std::mem::take(&mut *self.file_changes());
        self.written.store(0, Ordering::Relaxed);
        let (next_run, inodes, space) = (self.numbers.next_run(), self.inodes.used(), self.space.used());
        Generation { batches, files, next_run, inodes, space, closes: false, commits_before: None }
    }

    /// An inode.
    ///
    /// # Errors
    /// ESTALE if there is none, EIO.
    pub(crate) fn inode(&self, ino: u64) -> Result<Inode> {
        let value = self.staged.get(Key::inode(ino))?.ok_or(Error::Stale)?;
        Inode::decode(ino, &value)
    }

    /// Inodes, in the order of the numbers. None for a number without an inode.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn read_inodes(&self, inos: &[u64]) -> Result<Vec<Option<Result<Inode>>>> {
        let mut found: Vec<Option<Result<Inode>>> = Vec::with_capacity(inos.len());
        found.resize_with(inos.len(), || None);
        let mut places: Vec<usize> = (0..inos.len()).collect();
        places.sort_unstable_by_key(|place| inos[*place]);
        let mut single: Vec<usize> = Vec::new();
        for run in places.chunk_by(|one, other| inos[*one] >> RUN_BITS == inos[*other] >> RUN_BITS) {
            let (first, last) = (inos[run[0]], inos[run[run.len() - 1]]);
            // A scan of the run costs as much as a few single records.
            if run.len() < 4 || (last - first) / 16 >= run.len() as u64 {
                single.extend(run);
                continue;
            }
            let mut wanted = run.iter().peekable();
            let end = Key::inode(last.saturating_add(1));
            self.staged.scan(Key::inode(first), end, &mut |key, value| {
                while wanted.next_if(|place| inos[**place] < key.number()).is_some() {}
                while let Some(place) = wanted.next_if(|place| inos[**place] == key.number()) {
                    found[*place] = Some(Inode::decode(key.number(), value));
                }
                wanted.peek().is_some()
            })?;
        }
        let keys: Vec<Key> = single.iter().map(|place| Key::inode(inos[*place])).collect();
        for (place, value) in single.iter().zip(self.staged.get_many(&keys)?) {
            found[*place] = value.map(|value| Inode::decode(inos[*place], &value));
        }
        Ok(found)
    }

    /// The attributes that names of a directory lead to.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn lookup(
        &self,
        dir: u64,
        names: &[&[u8]],
        each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>),
    ) -> Result<()> {
        let keys: Vec<Key> = names.iter().map(|name| self.names_key(dir, name)).collect();
        let mut bound = Vec::new();
        for (place, (name, value)) in names.iter().zip(self.staged.get_many(&keys)?).enumerate() {
            match Names::decode(value.as_deref()) {
                Ok(names) => match names.get(name) {
                    Some(name) => bound.push((place, name.ino)),
                    None => each(place, Ok(None)),
                },
                Err(error) => each(place, Err(error)),
            }
        }
        let inos: Vec<u64> = bound.iter().map(|(_, ino)| *ino).collect();
        for ((place, _), inode) in bound.into_iter().zip(self.read_inodes(&inos)?) {
            // A name without its inode: the store is damaged, or the name was removed just now.
            each(place, inode.map(|inode| inode.map(|inode| inode.attr)).transpose());
        }
        Ok(())
    }

    /// The entries of a directory after a cookie.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn scan(
        &self,
        dir: u64,
        cookie: u64,
        wanted: RecordMask,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> Result<()> {
        /// The entries that are read at a time.
        const PAGE: usize = 256;
        let mut after = cookie;
        loop {
            let first = after.saturating_sub(FIRST_COOKIE) / u64::from(SLOTS);
            let mut page = Vec::new();
            let mut damaged = Ok(());
            let end = Key::names(dir, 1 << HASH_BITS);
            self.staged.scan(Key::names(dir, first), end, &mut |key, value| {
                match Names::decode(Some(value)) {
                    Ok(names) => page.extend(names.0.into_iter().filter_map(|name| {
                        let cookie = cookie_of(key.hash(), name.slot);
                        (cookie > after).then_some((cookie, name))
                    })),
                    Err(error) => damaged = Err(error),
                }
                page.len() < PAGE && damaged.is_ok()
            })?;
            damaged?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            let inos: Vec<u64> = page.iter().map(|(_, name)| name.ino).collect();
            let inodes = if wanted.is_empty() { Vec::new() } else { self.read_inodes(&inos)? };
            let mut inodes = inodes.into_iter();
            let with_xattrs = wanted.contains(RecordMask::XATTRS);
            for (cookie, name) in &page {
                let inode = inodes.next().flatten().and_then(Result::ok);
                let xattrs = match &inode {
                    Some(inode) if with_xattrs && inode.has_xattrs => self.xattrs(name.ino).ok(),
                    Some(_) if with_xattrs => Some(Vec::new()),
                    _ => None,
                };
                let mut record = Record::new(&name.name, name.ino, name.kind, *cookie);
                record.attr = inode.as_ref().map(|inode| &inode.attr);
                record.xattrs = xattrs.as_deref();
                if !each(record) {
                    return Ok(());
                }
            }
        }
    }

    /// Whether a directory has no names.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn is_empty(&self, dir: u64) -> Result<bool> {
        let mut is_empty = true;
        self.staged.scan(Key::names(dir, 0), Key::names(dir, 1 << HASH_BITS), &mut |_, _| {
            is_empty = false;
            false
        })?;
        Ok(is_empty)
    }

    /// The names of an inode, as far as they are noted, each with its directory.
    ///
    /// # Errors
    /// ESTALE if there is no such inode, or it has no name; EIO.
    pub(crate) fn names_of(&self, ino: u64, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let keys = self.inode(ino)?.named_in;
        if keys.is_empty() {
            return Err(Error::Stale);
        }
        for (key, value) in keys.iter().zip(self.staged.get_many(&keys)?) {
            let names = Names::decode(value.as_deref())?;
            names.0.iter().filter(|name| name.ino == ino).for_each(|name| each(key.number(), &name.name));
        }
        Ok(())
    }

    /// The extended attributes of an inode.
    ///
    /// # Errors
    /// Those of the engine, EIO.
    pub(crate) fn xattrs(&self, ino: u64) -> Result<Vec<Xattr>> {
        decode_xattrs(self.staged.get(Key::xattrs(ino))?.as_deref())
    }
}
