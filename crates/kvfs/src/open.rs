//! Makes and opens stores.

use std::{
    collections::HashSet,
    fmt,
    fs::{self, DirBuilder, File, TryLockError},
    hash::Hasher,
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use pando_kv::{Delta, Embedded, Engine, FileStorage, Numbers, Outcome, Transaction};
use pando_sync::Quota;
use pando_vfs::{Error, FileKind, NodeAttr, Timestamp};
use rustix::process::{getegid, geteuid};
use siphasher::sip::SipHasher13;

use crate::{
    committer::{CLOSED, COMMITTED, INODES, NEXT_RUN, SPACE},
    files::{Files, HostFiles},
    key::Key,
    numbers::{InodeNumbers, ROOT},
    record::{Contents, Inode},
    space::{Space, UNIT},
    staged::Staged,
    tree::Tree,
};

/// What the record of the header begins with: the format of a store.
const FORMAT: &[u8] = b"pandofs store 2\n";
/// The bytes of the secret key of hashes, which follow.
const HASH_KEY: usize = 16;

/// The file of records in the directory of a store, and the directory of contents.
pub(crate) const RECORDS: &str = "pandofs-records";
const CONTENTS: &str = "pandofs-contents";
/// The file of records of a store that is being made.
pub(crate) const NEW_RECORDS: &str = "pandofs-records.new";

/// Options of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    pub(crate) interval: Duration,
    pub(crate) inodes: Option<u64>,
    pub(crate) bytes: Option<u64>,
    descriptors: usize,
    owner: Option<(u32, u32)>,
    mode: u32,
}

impl StoreOptions {
    /// Commits every 5 seconds.
    #[must_use]
    pub const fn new() -> Self {
        Self { interval: Duration::from_secs(5), inodes: None, bytes: None, descriptors: 500, owner: None, mode: 0o755 }
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

    /// How many files of the host are open for the contents of large files, at most. 500 by
    /// default, and 8 at least. If an eighth of them were written since the last commit, the next
    /// one begins, and with a quarter, operations wait for it.
    #[must_use]
    pub const fn descriptors(self, descriptors: usize) -> Self {
        Self { descriptors: if descriptors < 8 { 8 } else { descriptors }, ..self }
    }

    /// The owner and the group of the root directory, if the store is made now. Those of this
    /// process by default.
    #[must_use]
    pub const fn owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: Some((uid, gid)), ..self }
    }

    /// The permission bits of the root directory, if the store is made now. 755 by default.
    #[must_use]
    pub const fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// How a store was found whose last process had not closed it: the process was killed, or the
/// machine crashed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// When the last commit was made. The tree is as it was then.
    pub committed: Timestamp,
    /// How many inodes were without a name, in use by the process. They are freed.
    pub unnamed: u64,
    /// How many files of contents belonged to no inode. They are removed.
    pub unused: u64,
}

/// Why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The host has failed.
    Io(io::Error),
    /// The directory has no store.
    NoStore,
    /// The directory has other things than a store.
    NotAStore,
    /// The store was made by a newer version.
    Newer,
    /// The store was made before the first release, in a format that nothing reads any more.
    Older,
    /// Something in the store is wrong.
    Damaged(String),
    /// Another process has the store open.
    InUse,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoStore => f.write_str("there is no store"),
            Self::NotAStore => f.write_str("not a store of pandofs, and not empty"),
            Self::Newer => f.write_str("a store of a newer version of pandofs"),
            Self::Older => f.write_str("a store of an older version of pandofs"),
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
pub(crate) type Parts = (Embedded, HostFiles);

/// The parts of the store in a directory. It is made if the directory is empty or missing.
pub(crate) fn open_or_make(dir: &Path, options: StoreOptions) -> Result<Parts, OpenError> {
    if !dir.join(RECORDS).try_exists()? {
        make(dir, options)?;
    }
    let parts = open_parts(dir, options)?;
    // The process that made the store may have been killed before it did this.
    File::open(dir)?.sync_all()?;
    Ok(parts)
}

/// The parts of the store in a directory.
///
/// # Errors
/// There is none, too.
pub(crate) fn open_existing(dir: &Path, options: StoreOptions) -> Result<Parts, OpenError> {
    if dir.join(RECORDS).try_exists()? {
        return open_parts(dir, options);
    }
    let mut entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::NoStore),
        entries => entries?,
    };
    Err(if entries.any(|entry| entry.is_ok_and(is_not_of_store)) { OpenError::NotAStore } else { OpenError::NoStore })
}

fn open_parts(dir: &Path, options: StoreOptions) -> Result<Parts, OpenError> {
    let engine = Embedded::open(Arc::new(FileStorage::open(dir.join(RECORDS))?))?;
    Ok((engine, HostFiles::new(dir.join(CONTENTS), options.descriptors / 2)?))
}

/// Whether this can't be in the directory of a store, or in one where a store can be made.
fn is_not_of_store(entry: fs::DirEntry) -> bool {
    [NEW_RECORDS, CONTENTS, "lost+found"].iter().all(|expected| entry.file_name() != **expected)
}

/// Makes a store without records. A crash leaves all of it, or something that the next attempt
/// replaces.
fn make(dir: &Path, options: StoreOptions) -> Result<(), OpenError> {
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
        if is_not_of_store(entry?) {
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
    make_root(&engine, options)?;
    drop(engine);
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

/// What a store says of itself.
pub(crate) struct Header {
    pub totals: Numbers,
    pub hash_key: [u8; HASH_KEY],
}

/// A number that no other store has. It does not tell the key.
pub(crate) fn identity(hash_key: &[u8; HASH_KEY]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(hash_key);
    hasher.write(b"pandofs store 1\n");
    hasher.finish()
}

/// Reads the header of a store.
///
/// # Errors
/// It is that of no store, or of another format, or there is none.
pub(crate) fn read_header(engine: &dyn Engine) -> Result<Header, OpenError> {
    let found = engine.snapshot()?.get(&[&Key::HEADER, &Key::TOTALS])?;
    let header = found[0].as_deref().ok_or(OpenError::NoStore)?;
    match header.strip_prefix(FORMAT) {
        Some(key) => match key.first_chunk() {
            Some(key) => Ok(Header { totals: Numbers::of(found[1].as_deref()), hash_key: *key }),
            None => Err(OpenError::Damaged("its header is cut short".into())),
        },
        None if header.starts_with(b"pandofs store 1\n") => Err(OpenError::Older),
        None if header.starts_with(b"pandofs store ") => Err(OpenError::Newer),
        None => Err(OpenError::NotAStore),
    }
}

/// The tree in an engine. Frees what a crash has left without a name.
pub(crate) fn open_tree(
    engine: Box<dyn Engine>,
    files: Box<dyn Files>,
    options: StoreOptions,
) -> Result<(Tree, Option<Recovered>), OpenError> {
    let Header { totals, hash_key } = match read_header(&*engine) {
        Err(OpenError::NoStore) => {
            make_root(&*engine, options)?;
            read_header(&*engine)?
        }
        read => read?,
    };
    if totals.get(CLOSED) != 0 {
        mark_open(&*engine)?;
    }
    let used = totals.get(INODES).cast_unsigned().max(1);
    let inodes = Quota::new(options.inodes.unwrap_or(u64::MAX).max(used));
    inodes.charge(used).map_err(|_| OpenError::Damaged("its count of inodes is wrong".into()))?;
    let limit = options.bytes.map_or(u64::MAX, |bytes| bytes / UNIT);
    let space = Space::new(limit, totals.get(SPACE).cast_unsigned());
    let numbers = InodeNumbers::new(totals.get(NEXT_RUN).cast_unsigned());
    let tree = Tree::new(Staged::new(engine)?, files, hash_key, numbers, (inodes, space), options.descriptors / 4);
    let (unnamed, unused) = (free_unnamed(&tree)?, remove_unused_files(&tree)?);
    let recovered = Recovered { committed: Timestamp(totals.get(COMMITTED)), unnamed, unused };
    Ok((tree, (totals.get(CLOSED) == 0).then_some(recovered)))
}

/// Stores the header and the root directory.
fn make_root(engine: &dyn Engine, options: StoreOptions) -> Result<(), OpenError> {
    let mut root = NodeAttr::new(ROOT, FileKind::Directory, options.mode, Timestamp::now());
    (root.uid, root.gid) = options.owner.unwrap_or_else(|| (geteuid().as_raw(), getegid().as_raw()));
    let mut first = Transaction::new();
    first.expect_empty(&[]..&[0xff]);
    first.put(&*Key::HEADER, [FORMAT, &random_key()].concat());
    first.put(&*Key::inode(ROOT), Inode::new(root).encode());
    first.merge(&*Key::TOTALS, CLOSED, Delta::Add(1));
    first.merge(&*Key::TOTALS, COMMITTED, Delta::Add(Timestamp::now().0));
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

/// Removes the mark of a store that was closed.
fn mark_open(engine: &dyn Engine) -> Result<(), OpenError> {
    loop {
        let totals = engine.snapshot()?.get_one(&Key::TOTALS)?;
        let closed = Numbers::of(totals.as_deref()).get(CLOSED);
        if closed == 0 {
            return Ok(());
        }
        let mut open = Transaction::new();
        open.expect(&*Key::TOTALS, totals);
        open.merge(&*Key::TOTALS, CLOSED, Delta::Add(-closed));
        engine.commit(&open)?;
    }
}

/// Frees the inodes that had no name when the store was closed, or when the machine crashed.
fn free_unnamed(tree: &Tree) -> Result<u64, Error> {
    let mut unnamed = Vec::new();
    tree.staged.stored(Key::unnamed(0), Key::unnamed(u64::MAX), &mut |key, _| unnamed.push(key.number()))?;
    let changing = tree.staged.change();
    for ino in &unnamed {
        tree.free(&changing, *ino, true)?;
    }
    Ok(unnamed.len() as u64)
}

/// Removes the files of contents that no inode has: a crash came between a commit and a removal, or
/// before the commit that would have used them.
fn remove_unused_files(tree: &Tree) -> Result<u64, OpenError> {
    let mut unused: HashSet<u64> = tree.files.numbers()?.into_iter().collect();
    if unused.is_empty() {
        return Ok(0);
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
    for number in &unused {
        tree.files.remove(*number)?;
    }
    Ok(unused.len() as u64)
}
