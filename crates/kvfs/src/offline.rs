//! The size and state of a store that is not in use, its check, its repair and its compaction.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    sync::Arc,
};

use pando_kv::{Embedded, FileStorage};
use pando_vfs::Timestamp;

use crate::{
    check::{Report, check_parts},
    committer::{CLOSED, COMMITS, COMMITTED, INODES, SPACE},
    files::Files,
    open::{NEW_RECORDS, OpenError, RECORDS, StoreOptions, identity, open_existing, read_header},
    repair::repair_parts,
    space::UNIT,
};

/// The size and the state of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// A number that no other store has.
    pub id: u64,
    /// Whether its last user has closed it. Otherwise that was killed, or the machine has crashed,
    /// and the next open frees what was left.
    pub is_closed: bool,
    /// How many commits there were.
    pub commits: u64,
    /// When the last one was made.
    pub committed: Timestamp,
    /// How many inodes there are, the root directory included.
    pub inodes: u64,
    /// How many bytes the contents of files occupy: those of small files in pages of 4096 bytes.
    pub bytes: u64,
    /// How many files have contents of their own on the host. The contents of others are records.
    pub large: u64,
    /// The size of the file of records.
    pub record_bytes: u64,
}

/// Reads the size and the state of the store in a directory.
///
/// # Errors
/// See [`OpenError`].
pub fn info(dir: impl AsRef<Path>) -> Result<Info, OpenError> {
    let dir = dir.as_ref();
    let (engine, files) = open_existing(dir, StoreOptions::new())?;
    let header = read_header(&engine)?;
    let total = |index| header.totals.get(index).cast_unsigned();
    Ok(Info {
        id: identity(&header.hash_key),
        is_closed: total(CLOSED) == 1,
        commits: total(COMMITS),
        committed: Timestamp(header.totals.get(COMMITTED)),
        inodes: total(INODES).max(1),
        bytes: total(SPACE) * UNIT,
        large: files.numbers()?.len() as u64,
        record_bytes: fs::metadata(dir.join(RECORDS))?.len(),
    })
}

/// Reads all records of the store in a directory, and checks each reference and each count. The
/// bytes of large files are not read. `progress` is called now and then with the number of records
/// that were read.
///
/// # Errors
/// See [`OpenError`]. A record that is damaged or missing is in the report.
pub fn check(dir: impl AsRef<Path>, progress: &mut dyn FnMut(u64)) -> Result<Report, OpenError> {
    let (engine, files) = open_existing(dir.as_ref(), StoreOptions::new())?;
    read_header(&engine)?;
    check_parts(&engine, &files, progress)
}

/// Makes the file of records of the store in a directory as small as it can be. Returns its sizes
/// before and after.
///
/// # Errors
/// See [`OpenError`]. The store has all of its records nevertheless.
pub fn compact(dir: impl AsRef<Path>) -> Result<(u64, u64), OpenError> {
    let dir = dir.as_ref();
    let (mut engine, _) = open_existing(dir, StoreOptions::new())?;
    read_header(&engine)?;
    let size = || fs::metadata(dir.join(RECORDS)).map(|records| records.len());
    let before = size()?;
    engine.compact()?;
    Ok((before, size()?))
}

/// Where a repair leaves the records as they were before. A number follows if there is one already.
const OLD_RECORDS: &str = "pandofs-records.before";

/// Makes a consistent tree of what the store in a directory has. Returns what that changes, a line
/// for each change. `apply`: stores it. The old records stay beside the new ones.
///
/// # Errors
/// See [`OpenError`]. Then the store is as it was before.
pub fn repair(dir: impl AsRef<Path>, apply: bool) -> Result<Vec<String>, OpenError> {
    let dir = dir.as_ref();
    let (engine, files) = open_existing(dir, StoreOptions::new())?;
    let (records, new) = (dir.join(RECORDS), dir.join(NEW_RECORDS));
    let remove = || match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    // Another process, which was killed, may have left it.
    remove()?;
    let repaired = (|| {
        let into = Embedded::create(Arc::new(FileStorage::create(&new)?))?;
        let changes = repair_parts(&engine, &files, &into)?;
        drop(into);
        if apply && !changes.is_empty() {
            let owner = fs::metadata(&records)?;
            chown(&new, Some(owner.uid()), Some(owner.gid()))?;
            keep(dir)?;
            fs::rename(&new, &records)?;
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(changes)
    })();
    remove()?;
    repaired
}

/// Gives the records a second name.
fn keep(dir: &Path) -> io::Result<()> {
    for number in 0_u32.. {
        let name = if number == 0 { OLD_RECORDS.into() } else { format!("{OLD_RECORDS}.{number}") };
        match fs::hard_link(dir.join(RECORDS), dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked,
        }
    }
    Ok(())
}
