//! An engine in this process that keeps its records in one storage, as a rule a file.
//!
//! The work is done by the crate `redb`: a B-tree that is never changed in place. A commit writes
//! the changed pages to free places, and then the new root into one of two slots, each with a
//! checksum. Each page has its checksum in the page above. Opening reads all pages and checks them.
//!
//! What happens when the storage fails:
//! * A read or write: the database is opened again with the next call. It then has what was
//!   committed last. Older snapshots fail.
//! * A flush: the kernel may have dropped what was not written, and a later flush would return
//!   success. So nothing more is done until the engine is opened anew ([`Error::Stopped`]).

use std::{
    io,
    ops::{Bound, Range},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use crate::{Assertion, Capabilities, Change, Engine, Error, Numbers, Outcome, Result, Snapshot, Storage, Transaction};

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("records");
/// The number of commits, under the only key. It tells whether a commit that has failed was made.
const COMMITS: TableDefinition<'static, (), u64> = TableDefinition::new("commits");

/// The most bytes of pages that are kept in memory, unless the caller says otherwise.
const CACHE: usize = 256 << 20;

/// An engine in this process. Commits are made one by one, and each is durable when it returns.
#[derive(Debug)]
pub struct Embedded {
    storage: Arc<dyn Storage>,
    cache: usize,
    /// A flush has failed. Atomic, with release and acquire.
    has_stopped: Arc<AtomicBool>,
    /// Guarded by its own mutex. It is held while the database is opened again.
    instance: Mutex<Arc<Instance>>,
}

/// A database since it was opened.
#[derive(Debug)]
struct Instance {
    database: Database,
    backend: Backend,
}

impl Embedded {
    /// Makes an engine without records in an empty storage.
    ///
    /// # Errors
    /// The storage has bytes, or it fails.
    pub fn create(storage: Arc<dyn Storage>) -> Result<Self> {
        if !storage.is_empty()? {
            return Err(Error::Damaged("not empty".into()));
        }
        Self::make(storage, CACHE)
    }

    /// Opens an engine that was made before. All pages are read and checked. 256 MiB of pages are
    /// kept in memory at most.
    ///
    /// # Errors
    /// The storage has no such engine, the engine is damaged, or the storage fails.
    pub fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        Self::open_with_cache(storage, CACHE)
    }

    /// As [`Embedded::open`]. At most so many bytes of pages are kept in memory.
    ///
    /// # Errors
    /// As for [`Embedded::open`].
    pub fn open_with_cache(storage: Arc<dyn Storage>, cache: usize) -> Result<Self> {
        if storage.is_empty()? {
            return Err(Error::Damaged("empty".into()));
        }
        Self::make(storage, cache)
    }

    fn make(storage: Arc<dyn Storage>, cache: usize) -> Result<Self> {
        let has_stopped = Arc::default();
        let instance = Instance::open(&storage, &has_stopped, cache)?;
        Ok(Self { storage, cache, has_stopped, instance: Mutex::new(Arc::new(instance)) })
    }

    /// Makes the storage as small as it can be. A failure leaves all records.
    ///
    /// # Errors
    /// Those of the storage, and [`Error::InUse`] if there is a snapshot.
    pub fn compact(&mut self) -> Result<()> {
        drop(self.instance()?);
        let instance = self.instance.get_mut().unwrap_or_else(PoisonError::into_inner);
        let database = &mut Arc::get_mut(instance).ok_or(Error::InUse)?.database;
        let compacted = database.compact();
        compacted.map(drop).map_err(|error| self.error(error))
    }

    /// The database. It is opened again if the storage has failed. Snapshots of the old one fail
    /// from then on.
    fn instance(&self) -> Result<Arc<Instance>> {
        if self.has_stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        let mut instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
        if instance.backend.has_failed() {
            *instance = Arc::new(Instance::open(&self.storage, &self.has_stopped, self.cache)?);
        }
        Ok(Arc::clone(&instance))
    }

    /// An error of the database.
    fn error(&self, error: impl Into<redb::Error>) -> Error {
        if self.has_stopped.load(Ordering::Acquire) { Error::Stopped } else { convert(error.into()) }
    }

    /// A write transaction with all changes, which is not committed yet, and the number of the
    /// commit. None if an assertion does not hold.
    fn prepare(
        database: &Database,
        transaction: &Transaction,
    ) -> std::result::Result<Option<(redb::WriteTransaction, u64)>, redb::Error> {
        let write = database.begin_write()?;
        let mut table = write.open_table(RECORDS)?;
        for assertion in transaction.assertions() {
            let holds = match assertion {
                Assertion::Value { key, value } => {
                    table.get(&**key)?.as_ref().map(|found| found.value()) == value.as_deref()
                }
                Assertion::Empty { start, end } => {
                    table.range::<&[u8]>(bounds(start, end))?.next().transpose()?.is_none()
                }
            };
            if !holds {
                return Ok(None);
            }
        }
        for change in transaction.changes() {
            match change {
                Change::Put { key, value } => drop(table.insert(&**key, &**value)?),
                Change::Remove { key } => drop(table.remove(&**key)?),
                Change::Merge { key, index, delta } => {
                    let mut numbers = Numbers::of(table.get(&**key)?.as_ref().map(|found| found.value()));
                    numbers.merge(*index, *delta);
                    drop(table.insert(&**key, numbers.value())?);
                }
            }
        }
        drop(table);
        let number = {
            let mut commits = write.open_table(COMMITS)?;
            let number = commits.get(())?.map_or(0, |number| number.value()) + 1;
            commits.insert((), number)?;
            number
        };
        Ok(Some((write, number)))
    }

    /// The number of commits.
    fn commits(&self) -> Result<u64> {
        let instance = self.instance()?;
        let read = || -> std::result::Result<u64, redb::Error> {
            match instance.database.begin_read()?.open_table(COMMITS) {
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(0),
                table => Ok(table?.get(())?.map_or(0, |number| number.value())),
            }
        };
        read().map_err(|error| self.error(error))
    }
}

impl Engine for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities { largest: None, durable_on_commit: true, is_shared: false }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let instance = self.instance()?;
        let open = || -> std::result::Result<_, redb::Error> {
            match instance.database.begin_read()?.open_table(RECORDS) {
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                table => Ok(Some(table?)),
            }
        };
        let table = open().map_err(|error| self.error(error))?;
        Ok(Box::new(Records { table, instance }))
    }

    fn commit(&self, transaction: &Transaction) -> Result<Outcome> {
        let instance = self.instance()?;
        let Some((write, number)) =
            Self::prepare(&instance.database, transaction).map_err(|error| self.error(error))?
        else {
            return Ok(Outcome::Conflict);
        };
        let error = match write.commit().map_err(|error| self.error(error)) {
            Ok(()) => return Ok(Outcome::Committed),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => error,
        };
        // The new root may have been written or not. That is known when the database was opened
        // again.
        match self.commits() {
            Ok(commits) if commits >= number => Ok(Outcome::Committed),
            Ok(_) => Err(error),
            Err(_) => Ok(Outcome::Unknown),
        }
    }
}

/// The records of one instant.
struct Records {
    /// None before the first commit.
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    instance: Arc<Instance>,
}

impl Records {
    /// What was read from the table is right: if the database was opened again meanwhile, its pages
    /// may have been others.
    fn check<T>(&self, read: std::result::Result<T, redb::StorageError>) -> Result<T> {
        let read = read.map_err(convert)?;
        if self.instance.backend.has_failed() { Err(Error::Io(has_failed())) } else { Ok(read) }
    }
}

impl Snapshot for Records {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let get = |key: &&[u8]| match &self.table {
            Some(table) => self.check(table.get(*key).map(|found| found.map(|found| found.value().to_vec()))),
            None => Ok(None),
        };
        keys.iter().map(get).collect()
    }

    fn page(&self, range: Range<&[u8]>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Vec<u8>>> {
        let Some(table) = &self.table else { return Ok(None) };
        let records = self.check(table.range::<&[u8]>(bounds(range.start, range.end)))?;
        for (index, record) in records.enumerate() {
            let (key, value) = self.check(record)?;
            if index == limit {
                return Ok(Some(key.value().to_vec()));
            }
            each(key.value(), value.value());
        }
        Ok(None)
    }
}

/// The bounds of a range of keys. A range that ends before it begins is empty.
fn bounds<'k>(start: &'k [u8], end: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(start), Bound::Excluded(end.max(start)))
}

fn convert(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(what) => Error::Damaged(what),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Error::Damaged(error.to_string()),
        redb::Error::Io(error) => Error::Io(error),
        redb::Error::PreviousIo => Error::Io(has_failed()),
        error => Error::Damaged(error.to_string()),
    }
}

fn has_failed() -> io::Error {
    io::Error::other("the storage has failed before")
}

/// The storage, as one instance of a database uses it. After a failure, it is of no use to this
/// instance any more.
#[derive(Debug, Clone)]
struct Backend {
    storage: Arc<dyn Storage>,
    has_stopped: Arc<AtomicBool>,
    /// No call is in the storage when this is set, and none comes after. Atomic, with release and
    /// acquire.
    has_failed: Arc<AtomicBool>,
    /// Held shared by each call in the storage.
    calls: Arc<RwLock<()>>,
}

impl Instance {
    fn open(storage: &Arc<dyn Storage>, has_stopped: &Arc<AtomicBool>, cache: usize) -> Result<Self> {
        let (storage, has_stopped) = (Arc::clone(storage), Arc::clone(has_stopped));
        let backend = Backend { storage, has_stopped, has_failed: Arc::default(), calls: Arc::default() };
        let open = || {
            let backend = backend.clone();
            Builder::new().set_cache_size(cache).set_check_integrity_on_open(true).create_with_backend(backend)
        };
        // The crate checks what it reads, but for some damages with a panic.
        let opened = panic::catch_unwind(AssertUnwindSafe(open));
        let database = opened.map_err(|_| Error::Damaged("its structure is inconsistent".into()))?.map_err(convert)?;
        Ok(Self { database, backend })
    }
}

impl Backend {
    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn call<T>(&self, call: impl FnOnce(&dyn Storage) -> io::Result<T>) -> io::Result<T> {
        let result = {
            let _calling = self.calls.read().unwrap_or_else(PoisonError::into_inner);
            if self.has_failed() {
                return Err(has_failed());
            }
            call(&*self.storage)
        };
        if result.is_err() {
            let _alone = self.calls.write().unwrap_or_else(PoisonError::into_inner);
            self.has_failed.store(true, Ordering::Release);
        }
        result
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.call(|storage| storage.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.call(|storage| storage.read(offset, buffer))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(|storage| storage.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(|storage| storage.sync().inspect_err(|_| self.has_stopped.store(true, Ordering::Release)))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(|storage| storage.write(offset, bytes))
    }
}
