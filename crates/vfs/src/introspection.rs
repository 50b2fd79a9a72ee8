//! Introspection for tests and benchmarks: a fixed hash key, states that otherwise only contention
//! causes, and the addresses of objects. `pando bench conflicts` and `pando bench cost` use it.
//!
//! Not part of the stable interface.

pub use crate::types::part::Part;
use pando_sync::{collect, pin};

use crate::{
    DentryRef, Driver, Result, Vfs, VfsOptions, handles::held::make_per_cpu_refs, objects::lockable::Lockable,
};

/// As [`Vfs::with_options`], with a hash key that is not secret: names fall into the same
/// buckets and locks in each run.
///
/// For measurements only. If the key is known, a user who chooses names can make all of them
/// collide.
///
/// # Errors
/// As [`Vfs::new`].
pub fn vfs_with_hash_key(driver: impl Driver, options: VfsOptions, key: (u64, u64)) -> Result<Vfs> {
    Vfs::with_options(driver, VfsOptions { hash_key: Some(key), ..options })
}

/// Puts a directory into the state that contention would cause: split locks, striped counts, a
/// table with buckets. A single thread would never cause it.
///
/// # Errors
/// ENOTDIR.
pub fn force_contended(dir: &DentryRef) -> Result<()> {
    /// More reports of contention than any part of a directory needs.
    const REPORTS: usize = 64;
    let directory = dir.0.directory()?;
    let guard = pin();
    directory.granularity.note_contention();
    (0..REPORTS).for_each(|_| directory.contended(&guard));
    Ok(())
}

/// Puts a file or directory into the state that many concurrent opens would cause: it has per-CPU
/// reference counts.
pub fn force_per_cpu_count(vfs: &Vfs, dentry: &DentryRef) {
    make_per_cpu_refs(&dentry.0, |name| Some(vfs.namespace().names.lock(&[name])));
}

/// Puts a file that was written into the state that many concurrent readers would cause: the data
/// lock is biased towards readers, who then contend only with writers. The next change of the
/// contents undoes it.
///
/// # Errors
/// EISDIR or EINVAL if it is not a regular file.
pub fn force_read_biased(dentry: &DentryRef) -> Result<()> {
    dentry.0.inode().file_state()?.bias_to_readers();
    Ok(())
}

/// The approximate number of threads that wait for a request which another thread has made to a
/// backing. For tests that poll.
#[must_use]
pub fn waiting_for_loads(vfs: &Vfs) -> usize {
    vfs.roots().iter().map(|root| root.0.sb().requests.waiting()).sum()
}

/// The approximate number of threads that wait for the end of a revocation of a directory's
/// permissions. For tests that poll.
#[must_use]
pub fn waiting_for_revocations(vfs: &Vfs) -> usize {
    vfs.namespace().waiting_for_revocations()
}

/// Whether a thread that revokes permissions waits, about now, for a change that they had
/// permitted. For tests that poll.
#[must_use]
pub fn revocation_waits_for_changes(vfs: &Vfs) -> bool {
    vfs.namespace().names.awaited()
}

/// Whether any thread holds the lock of a name in this directory. Without a name: the lock of the
/// directory's own attributes, in a tree with a backing. Locks are striped, so a thread that holds
/// the lock for another name counts, too. For tests in which one operation may not wait for
/// another.
#[must_use]
pub fn is_locked(dir: &DentryRef, name: Option<&str>) -> bool {
    let inode = dir.0.inode();
    let sb = &inode.shard.sb;
    let named = |name: &str| Lockable::name(inode, sb.hash(inode.ino, name.as_bytes())).ok();
    let lockable = name.and_then(named).unwrap_or(Lockable::inode(inode));
    sb.namespace.names.try_lock(&[lockable.key]).is_none()
}

/// Reclaims the memory that this thread has retired, as far as readers permit, so that later
/// measurements do not include it.
pub fn settle() {
    collect();
}

/// The parts of a dentry and their addresses, from the outside in: a part that lies within another
/// one follows it.
#[must_use]
pub fn parts(dentry: &DentryRef) -> Vec<Part> {
    /// A counted object is followed by its count.
    const COUNT_BYTES: usize = size_of::<usize>();
    let guard = pin();
    let inode = dentry.0.inode();
    let whole = Part::of("Dentry", &*dentry.0);
    let count = Part { name: "Dentry's count", address: whole.address + whole.bytes, bytes: COUNT_BYTES };
    let mut parts = vec![count, whole, Part::of("Dentry.place", &dentry.0.place), Part::of("Inode", inode)];
    inode.parts(&mut parts);
    if let Ok(directory) = dentry.0.directory() {
        directory.parts(&guard, &mut parts);
    }
    if let Some(dirent) = dentry.0.place.load(&guard) {
        let dirent = dirent.to_ref();
        parts.push(Part::of("Dirent", dirent));
        parts.push(Part::of("Dirent.value", &dirent.value));
        parts.push(Part::of("Dirent.name", &dirent.name));
    }
    let shard = &*inode.shard;
    shard.parts(&mut parts);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Context, Credentials, Walk, driver::tests::Nothing};

    fn vfs(key: (u64, u64)) -> Vfs {
        vfs_with_hash_key(Nothing, VfsOptions::new(), key).expect("a tree")
    }

    fn order(vfs: &Vfs) -> Vec<Vec<u8>> {
        let context = Context::new(vfs, Credentials::root());
        for i in 0..20 {
            vfs.mkdir(&context, At::Cwd, format!("d{i}"), 0o755).expect("mkdir");
        }
        let root = vfs.open(&context, At::Cwd, "/", crate::OpenFlags::RDONLY, 0).expect("open");
        let mut names = Vec::new();
        root.readdir(0, |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .expect("readdir");
        names
    }

    #[test]
    fn readdir_order_depends_only_on_the_hash_key() {
        assert_eq!(order(&vfs((1, 2))), order(&vfs((1, 2))));
        assert_ne!(order(&vfs((1, 2))), order(&vfs((1, 3))));
    }

    #[test]
    fn parts_have_addresses_and_contention_adds_stripes() {
        let vfs = vfs((1, 2));
        let context = Context::new(&vfs, Credentials::root());
        let dir = vfs.mkdir(&context, At::Cwd, "d", 0o755).expect("mkdir");
        let find = |name: &str| parts(&dir).into_iter().find(|part| part.name == name);
        let (inode, times) = (find("Inode").expect("an inode"), find("Inode.times").expect("times"));
        assert!(times.address >= inode.address && times.address + times.bytes <= inode.address + inode.bytes);
        assert!(find("a stripe of Directory").is_none());
        force_contended(&dir).expect("a directory");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(find("a stripe of Directory").is_some(), cores > 1);
        // The directory still works.
        vfs.mkdir(&context, At::Dir(&dir), "e", 0o755).expect("mkdir");
        assert_eq!(vfs.stat(&context, At::Cwd, "d", Walk::empty()).expect("stat").nlink, 3);
    }
}
