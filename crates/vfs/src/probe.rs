//! What instruments need and no user: a hash that is the same in each run, the state that contention leaves behind, and
//! where things lie in memory. `pando bench conflicts` and `pando bench cost` are made with it.
//!
//! Not part of the stable interface.

pub use crate::types::part::Part;
use pando_sync::{collect, pin};

use crate::{DentryRef, Driver, Result, Vfs, handles::held::make_proxies, objects::lockable::Lockable};

/// As [`Vfs::with_root_attributes`], with a hash key that is no secret: names fall into the same buckets and locks in each run.
///
/// For measurements only. With a key that is known, whoever chooses names can make all of them collide.
///
/// # Errors
/// As [`Vfs::new`].
pub fn vfs_with_hash_key(driver: impl Driver, uid: u32, gid: u32, mode: u32, key: (u64, u64)) -> Result<Vfs> {
    Vfs::with_hash_key(driver, uid, gid, mode, key)
}

/// Puts a directory into the state that contention would bring about: spread over the cores, with buckets. What threads
/// that work in it at the same time do to it in any case, and one thread alone never does.
///
/// # Errors
/// ENOTDIR.
pub fn as_if_contended(dir: &DentryRef) -> Result<()> {
    /// More reports than any part of a directory asks for before it spreads.
    const REPORTS: usize = 64;
    let directory = dir.0.directory()?;
    let guard = pin();
    directory.grain.note_contention();
    (0..REPORTS).for_each(|_| directory.contended(&guard));
    Ok(())
}

/// Puts a file or a directory into the state that many threads bring about which open it at the same time: its references
/// are counted on a line of each core.
pub fn as_if_opened_by_many(vfs: &Vfs, dentry: &DentryRef) {
    make_proxies(&dentry.0, |name| Some(vfs.name_space().names.lock(&[name])));
}

/// Puts a file that was written into the state that many threads bring about which read it at the same time: they meet
/// nobody but writers. The next change of the contents undoes it.
///
/// # Errors
/// EISDIR, EINVAL: it is no regular file.
pub fn as_if_read_by_many(dentry: &DentryRef) -> Result<()> {
    dentry.0.inode().file_state()?.favour_readers();
    Ok(())
}

/// How many threads wait, about now, for what another one is asking a backing: for tests, which look again and again.
#[must_use]
pub fn waiting_for_answers(vfs: &Vfs) -> usize {
    vfs.roots().iter().map(|root| root.0.sb().requests.waiting()).sum()
}

/// How many threads wait, about now, for somebody who takes permissions of a directory away: for tests, as above.
#[must_use]
pub fn waiting_for_permissions(vfs: &Vfs) -> usize {
    vfs.name_space().waiting_for_permissions()
}

/// Whether somebody who takes permissions away waits, about now, for a change that they allowed: for tests, as above.
#[must_use]
pub fn permissions_wait_for_changes(vfs: &Vfs) -> bool {
    vfs.name_space().names.awaited()
}

/// Whether somebody has the lock of a name in this directory now, or without a name that of the directory's own attributes (of
/// a tree with a backing): also as one of another name, since locks are striped. For tests in which one may not wait for the other.
#[must_use]
pub fn is_locked(dir: &DentryRef, name: Option<&str>) -> bool {
    let inode = dir.0.inode();
    let sb = &inode.shard.sb;
    let named = |name: &str| Lockable::name(inode, sb.hash(inode.ino, name.as_bytes())).ok();
    let lockable = name.and_then(named).unwrap_or(Lockable::inode(inode));
    sb.name_space.names.try_lock(&[lockable.key]).is_none()
}

/// Gives back memory that this thread has retired, as far as others let it: what comes next has less to tidy up.
pub fn settle() {
    collect();
}

/// What a dentry consists of, where it lies; from the outside in: a part that lies within another comes after it.
#[must_use]
pub fn parts(dentry: &DentryRef) -> Vec<Part> {
    /// A counted object has its count behind it.
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
    if let Some(slot) = dentry.0.place.load(&guard) {
        let slot = slot.to_ref();
        parts.push(Part::of("Slot", slot));
        parts.push(Part::of("Slot.value", &slot.value));
        parts.push(Part::of("Slot.name", &slot.name));
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
        vfs_with_hash_key(Nothing, 0, 0, 0o755, key).expect("a tree")
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
    fn the_order_of_names_depends_on_the_key_alone() {
        assert_eq!(order(&vfs((1, 2))), order(&vfs((1, 2))));
        assert_ne!(order(&vfs((1, 2))), order(&vfs((1, 3))));
    }

    #[test]
    fn parts_lie_where_they_should_and_contention_adds_stripes() {
        let vfs = vfs((1, 2));
        let context = Context::new(&vfs, Credentials::root());
        let dir = vfs.mkdir(&context, At::Cwd, "d", 0o755).expect("mkdir");
        let find = |name: &str| parts(&dir).into_iter().find(|part| part.name == name);
        let (inode, times) = (find("Inode").expect("an inode"), find("Inode.times").expect("times"));
        assert!(times.address >= inode.address && times.address + times.bytes <= inode.address + inode.bytes);
        assert!(find("a stripe of Directory").is_none());
        as_if_contended(&dir).expect("a directory");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(find("a stripe of Directory").is_some(), cores > 1);
        // It is the same directory still.
        vfs.mkdir(&context, At::Dir(&dir), "e", 0o755).expect("mkdir");
        assert_eq!(vfs.stat(&context, At::Cwd, "d", Walk::empty()).expect("stat").nlink, 3);
    }
}
