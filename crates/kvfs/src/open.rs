//! Makes and opens stores.

use std::{
    collections::HashSet,
    fmt,
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use pando_kv::{Embedded, Engine, FileStorage, Numbers, Outcome, Transaction};
use pando_sync::Quota;
use pando_vfs::{Error, FileKind, NodeAttr, Timestamp};
use rustix::process::{getegid, geteuid};

use crate::{
    committer::{INODES, NEXT_RUN, SPACE},
    files::{Files, HostFiles},
    key::Key,
    numbers::{InodeNumbers, ROOT},
    record::{Contents, Inode},
    space::{Space, UNIT},
    staged::Staged,
    tree::Tree,
};

/// What the record of the header begins with: the format of a store.
const FORMAT: &[u8] = b"pandofs store 1\n";
/// The bytes of the secret key of hashes, which follow.
const HASH_KEY: usize = 16;

/// The file of records in the directory of a store, and the directory of contents.
const RECORDS: &str = "pandofs-records";
const CONTENTS: &str = "pandofs-contents";
/// The file of records of a store that is being made.
const NEW_RECORDS: &str = "pandofs-records.new";

/// Options of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    pub(crate) interval: Duration,
    pub(crate) inodes: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

impl StoreOptions {
    /// Commits every 5 seconds.
    #[must_use]
    pub const fn new() -> Self {
        Self { interval: Duration::from_secs(5), inodes: None, bytes: None }
    }

    /// How long an operation is uncommitted at most, if no fsync commits it before.
    #[must_use]
    pub const fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// The most inodes that the store may have, the root directory included. No limit of its own by
    /// default. A store that has more already gets no further ones.
    #[must_use]
    pub const fn inodes(self, inodes: u64) -> Self {
        Self { inodes: Some(inodes), ..self }
    }

    /// The most bytes that the contents of files may occupy: those of small files in pages of 4096
    /// bytes, those of large ones as the host counts them. No limit of its own by default. A store
    /// that has more already gets no further ones.
    #[must_use]
    pub const fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The host has failed.
    Io(io::Error),
    /// The directory has other things than a store.
    NotAStore,
    /// The store was made by a newer version.
    Newer,
    /// Something in the store is wrong.
    Damaged(String),
    /// Another process has the store open.
    InUse,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotAStore => f.write_str("not a store of pandofs, and not empty"),
            Self::Newer => f.write_str("a store of a newer version of pandofs"),
            Self::Damaged(what) => write!(f, "the store is damaged: {what}"),
            Self::InUse => f.write_str("another process uses the store"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<pando_kv::Error> for OpenError {
    fn from(error: pando_kv::Error) -> Self {
        match error {
            pando_kv::Error::Io(error) => Self::Io(error),
            pando_kv::Error::InUse => Self::InUse,
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Io(error.into())
    }
}

/// The engine of a store, and the files with the contents of large files.
type Parts = (Box<dyn Engine>, Box<dyn Files>);

/// The parts of the store in a directory. It is made if the directory is empty or missing.
pub(crate) fn open_directory(dir: &Path) -> Result<Parts, OpenError> {
    let records = dir.join(RECORDS);
    if !records.try_exists()? {
        make(dir)?;
    }
    let engine = Embedded::open(Arc::new(FileStorage::open(&records)?))?;
    // The process that made the store may have been killed before it did this.
    File::open(dir)?.sync_all()?;
    Ok((Box::new(engine), Box::new(HostFiles::new(dir.join(CONTENTS))?)))
}

/// Makes a store without records. A crash leaves all of it, or something that the next attempt
/// replaces.
fn make(dir: &Path) -> Result<(), OpenError> {
    let (new, contents) = (dir.join(NEW_RECORDS), dir.join(CONTENTS));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let open = File::open(dir)?;
    match open.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse),
        locked => locked.map_err(io::Error::from)?,
    }
    if dir.join(RECORDS).try_exists()? {
        // Another process has made it meanwhile.
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if ![NEW_RECORDS, CONTENTS, "lost+found"].iter().any(|expected| name == **expected) {
            return Err(OpenError::NotAStore);
        }
    }
    if new.try_exists()? {
        fs::remove_file(&new)?;
    }
    if !contents.try_exists()? {
        DirBuilder::new().mode(0o700).create(&contents)?;
    }
    let engine = Embedded::create(Arc::new(FileStorage::create(&new)?))?;
    drop(open_tree(Box::new(engine), Box::new(HostFiles::new(&contents)?), StoreOptions::new())?);
    fs::rename(&new, dir.join(RECORDS))?;
    // Its own name, too, and those of the directories that were made for it. It is no error if one
    // of them may not be opened.
    for above in dir.canonicalize()?.ancestors().skip(1) {
        let _ = File::open(above).and_then(|above| above.sync_all());
    }
    Ok(open.sync_all()?)
}

/// A random key, from the random state of the standard library.
fn random_key() -> [u8; HASH_KEY] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let half = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut key = [0; HASH_KEY];
    key[..8].copy_from_slice(&half());
    key[8..].copy_from_slice(&half());
    key
}

/// The tree in an engine. Frees what a crash has left without a name.
pub(crate) fn open_tree(
    engine: Box<dyn Engine>,
    files: Box<dyn Files>,
    options: StoreOptions,
) -> Result<Tree, OpenError> {
    let read = || engine.snapshot()?.get(&[&Key::HEADER, &Key::TOTALS]);
    let mut found = read()?;
    if found[0].is_none() {
        make_root(&*engine)?;
        found = read()?;
    }
    let header = found[0].as_deref().unwrap_or_default();
    let hash_key = match header.strip_prefix(FORMAT) {
        Some(key) => key.try_into().map_err(|_| OpenError::Damaged("its header is cut short".into()))?,
        None if header.starts_with(b"pandofs store ") => return Err(OpenError::Newer),
        None => return Err(OpenError::NotAStore),
    };
    let totals = Numbers::of(found[1].as_deref());
    let used = totals.get(INODES).cast_unsigned().max(1);
    let inodes = Quota::new(options.inodes.unwrap_or(u64::MAX).max(used));
    inodes.charge(used).map_err(|_| OpenError::Damaged("its count of inodes is wrong".into()))?;
    let limit = options.bytes.map_or(u64::MAX, |bytes| bytes / UNIT);
    let space = Space::new(limit, totals.get(SPACE).cast_unsigned());
    let numbers = InodeNumbers::new(totals.get(NEXT_RUN).cast_unsigned());
    let tree = Tree::new(Staged::new(engine)?, files, hash_key, numbers, (inodes, space));
    free_unnamed(&tree)?;
    remove_unused_files(&tree)?;
    Ok(tree)
}

/// Stores the header and the root directory, which belongs to the user of this process.
fn make_root(engine: &dyn Engine) -> Result<(), OpenError> {
    let mut root = NodeAttr::new(ROOT, FileKind::Directory, 0o755, Timestamp::now());
    (root.uid, root.gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut first = Transaction::new();
    first.expect_empty(&[]..&[0xff]);
    first.put(&*Key::HEADER, [FORMAT, &random_key()].concat());
    first.put(&*Key::inode(ROOT), Inode::new(root).encode());
    while engine.commit(&first)? != Outcome::Committed {
        let snapshot = engine.snapshot()?;
        if snapshot.get_one(&Key::HEADER)?.is_some() {
            break;
        }
        let mut is_empty = true;
        snapshot.page(&[]..&[0xff], 1, &mut |_, _| is_empty = false)?;
        if !is_empty {
            return Err(OpenError::NotAStore);
        }
    }
    Ok(())
}

/// Frees the inodes that had no name when the store was closed, or when the machine crashed.
fn free_unnamed(tree: &Tree) -> Result<(), Error> {
    let mut unnamed = Vec::new();
    tree.staged.stored(Key::unnamed(0), Key::unnamed(u64::MAX), &mut |key, _| unnamed.push(key.number()))?;
    let changing = tree.staged.change();
    for ino in unnamed {
        tree.free(&changing, ino, true)?;
    }
    Ok(())
}

/// Removes the files of contents that no inode has: a crash came between a commit and a removal, or
/// before the commit that would have used them.
fn remove_unused_files(tree: &Tree) -> Result<(), OpenError> {
    let mut unused: HashSet<u64> = tree.files.numbers()?.into_iter().collect();
    if unused.is_empty() {
        return Ok(());
    }
    let mut damaged = Ok(());
    tree.staged.stored(
        Key::inode(0),
        Key::inode(u64::MAX),
        &mut |key, value| match Inode::decode(key.number(), value) {
            Ok(Inode { contents: Contents::File(number), .. }) => {
                unused.remove(&number);
            }
            Ok(_) => {}
            Err(error) => damaged = Err(error),
        },
    )?;
    damaged?;
    // Those that the next commit removes are not to be removed before it.
    for number in tree.file_changes().removed.iter() {
        unused.remove(number);
    }
    for number in unused {
        tree.files.remove(number)?;
    }
    Ok(())
}
